"""clang-format over the tree: tools/dev/format.py [--check] [files...], all C++ and CUDA sources by default.

--check changes nothing and exits 1 naming the files that differ.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from cli import options
from cli.errors import Failure

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
FOLDERS = ("core", "dev", "reference", "bench", "tests", "runtime", "nn", "io", "train")


def sources():
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def main(arguments):
    parser = options.Parser("format", description="clang-format over the tree.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 naming the files that differ")
    parser.add_argument("files", nargs="*", type=Path, help="all C++ and CUDA sources by default")
    chosen = parser.parse_args(arguments)
    program = shutil.which("clang-format")
    if not program:
        raise Failure("format: clang-format is missing: install the package clang-format (version 14)")

    files = chosen.files or sources()
    if not chosen.check:
        return subprocess.run([program, "-i", *files]).returncode
    differ = []
    for file in files:
        done = subprocess.run([program, file], stdout=subprocess.PIPE)
        if done.returncode != 0:
            return 1
        if done.stdout != file.read_bytes():
            differ.append(str(file.relative_to(ROOT) if file.is_absolute() else file))
    for name in differ:
        print(f"format: {name} differs from clang-format's; run ./ladder format", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(options.run(main))
