"""The Python interpreter that a candidate's program loads (plain_python.py): its shared library, and what it reads."""

import json
from dataclasses import dataclass

from . import tools
from .errors import UsageError

_ASK = """
import sys
sys.path[:] = filter(None, sys.path)
import json, os, sysconfig, torch
if not torch.version.cuda:
    sys.exit("its PyTorch is built without CUDA")
variable = sysconfig.get_config_var
base, version = sys.base_prefix, variable("LDVERSION")
names = [variable("INSTSONAME"), f"libpython{version}.so.1.0", f"libpython{version}.so"]
folders = [variable("LIBDIR"), os.path.join(variable("LIBDIR"), variable("MULTIARCH") or ""), base + "/lib"]
found = [os.path.join(folder, name) for folder in folders for name in names if ".so" in name]
library = next(filter(os.path.isfile, found), None)
if not library:
    sys.exit(f"it has no {names[1]} (Debian's package libpython{version}; a --enable-shared build)")
print(json.dumps({"library": library, "home": f"{base}:{sys.base_exec_prefix}", "prefix": sys.prefix, "path": sys.path,
                  "executable": sys.executable, "read": [library, base, sys.prefix, *filter(os.path.exists, sys.path)]}))
"""


@dataclass(frozen=True)
class Interpreter:
    library: str  # libpython3.X.so
    home: str  # PYTHONHOME: where the standard library is
    prefix: str
    executable: str
    path: tuple
    read: tuple  # files and folders that its programs read


def find(python="python3"):
    """The Interpreter of the PATH's python3. Throws UsageError where it lacks PyTorch or a shared library."""
    try:
        done = tools.captured(python, "-c", _ASK)
    except OSError as error:
        raise UsageError(f"a Python function needs {python}: {error.strerror}") from None
    if done.returncode:
        said = tools.last_line(done.stderr)
        hint = "; python3 -m pip install torch" if "No module named 'torch'" in said else ""
        raise UsageError(f"a Python function needs a {python} on PATH with PyTorch: {said}{hint}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Interpreter(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})
