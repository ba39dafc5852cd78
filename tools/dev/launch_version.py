"""Compiler launcher of versions: with LADDER_KEEP_GOING=1, a version that does not compile does not fail the build.

CMake starts it as `launch_version.py <compiler> ... -c <source> -o <object> ...`. Without LADDER_KEEP_GOING, or for a
source that is no version, it just runs the compiler. With it, a version that fails prints one line, and the launcher
writes <object>.missing (the missing version), <object>.errors (the compiler's output) and an empty object file in place
of the version's, dated 1970 so that the next build compiles it again. `./ladder bench` sets the variable; tests do not.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

VARIABLE = "LADDER_KEEP_GOING"
SUFFIX = ".missing"

_VERSION = re.compile(r".*/(dev/(\w+/\w+)/v(\d\d)_\w+\.cu)")
_ERROR = re.compile(r"(\S*?\S+\.\w+)[:(](\d+)(?::\d+|\))?:? (?:fatal )?error:? (.+)")


def main(command):
    source, output = _after(command, "-c"), _after(command, "-o")
    version = _VERSION.fullmatch(source)
    if not version or not output:
        return subprocess.run(command).returncode
    missing, errors = Path(output + SUFFIX), Path(output + ".errors")
    for old in (missing, errors):
        old.unlink(missing_ok=True)
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return subprocess.run(command).returncode

    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode == 0:
        sys.stdout.write(done.stdout)
        return 0
    if done.returncode < 0 or not _empty_object(
        command, source, output
    ):  # interrupted, or the compiler itself is broken
        sys.stdout.write(done.stdout)
        return done.returncode if done.returncode > 0 else 1
    line = f"{version[2]} v{version[3]} does not compile: {first_error(done.stdout)}"
    errors.write_text(done.stdout, encoding="utf-8")
    missing.write_text(
        json.dumps({"source": version[1], "path": version[2], "number": int(version[3]), "line": line}),
        encoding="utf-8",
    )
    print(line)
    return 0


def first_error(said):
    """The first error in the compiler's output, as "v07_wmma.cu:12: message"."""
    for line in said.splitlines():
        found = _ERROR.search(line)
        if found:
            return f"{os.path.basename(found[1])}:{found[2]}: {found[3]}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else "the compiler said nothing"


def _empty_object(command, source, output):
    """Runs the command on an empty source, so that `output` is an empty object. Returns False if that fails too."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / Path(source).name
        empty.touch()
        replaced = [str(empty) if word == source else word for word in command]
        if subprocess.run(replaced, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            return False
    os.utime(output, (1, 1))  # Ninja takes 0 for a missing file
    return True


def _after(command, option):
    """Argument that follows `option` in a command line; "" without the option."""
    at = command.index(option) + 1 if option in command else len(command)
    return command[at] if at < len(command) else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
