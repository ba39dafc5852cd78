"""Compiler launcher of versions: with LADDER_KEEP_GOING=1 in the environment one that does not compile stops no other.

Started by CMake as `launch_version.py <compiler> ... -c <source> -o <object> ...`. Without that variable, and for every
source that is no version, it is the compiler. With it, a version's failure is one line, <object>.missing says which
version the program lacks, <object>.errors holds the compiler's words, and an object without content takes the place of
the version's: dated 1970, so that the next build compiles it again. `./ladder bench` asks for this; tests are strict.
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
    """The compiler's first error as "v07_wmma.cu:12: what is wrong"."""
    for line in said.splitlines():
        found = _ERROR.search(line)
        if found:
            return f"{os.path.basename(found[1])}:{found[2]}: {found[3]}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else "the compiler said nothing"


def _empty_object(command, source, output):
    """The same command over an empty source. False where not even that compiles."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / Path(source).name
        empty.touch()
        replaced = [str(empty) if word == source else word for word in command]
        if subprocess.run(replaced, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            return False
    os.utime(output, (1, 1))  # 0 would be "not there" to Ninja
    return True


def _after(command, option):
    """What follows `option` in a command line; empty if it is not there."""
    at = command.index(option) + 1 if option in command else len(command)
    return command[at] if at < len(command) else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
