"""Ends a script in one line where this Python lacks numpy or torch, and names one that has them.

A script that people start imports this before numpy and torch.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("numpy", "torch")
_HAS_ALL = "import sys; sys.path[:] = filter(None, sys.path)\nimport importlib.util as util; sys.exit(not all(map(util.find_spec, sys.argv[1:])))"


def other_python():
    """LADDER_PYTHON or a python3 on PATH that finds PACKAGES; None for none."""
    on_path = [shutil.which("python3", path=folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    for python in filter(None, [os.environ.get("LADDER_PYTHON"), *on_path]):
        try:
            if subprocess.run([python, "-c", _HAS_ALL, *PACKAGES], stderr=subprocess.DEVNULL).returncode == 0:
                return python
        except OSError:
            continue
    return None


missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
if missing:
    python = other_python()
    remedy = f"{python} has both" if python else f"{sys.executable} -m pip install {' '.join(missing)}"
    sys.exit(
        f"{Path(sys.argv[0]).name}: needs numpy and torch: {sys.executable} lacks {' and '.join(missing)}; {remedy}"
    )
