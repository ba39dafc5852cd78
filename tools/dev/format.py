"""clang-format, ruff and words.py over the tree: tools/dev/format.py [--check] [files...], all C++, CUDA and Python by default.

--check changes nothing and exits 1 naming the files that differ. ruff also lints, by the rules of pyproject.toml.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from cli import options, paths, wheels
from cli.errors import Failure

from . import words

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
PYTHON_FOLDERS = ("tools", "tests", "reference", "python")


def sources():
    kernels = [path for folder in paths.CPP_FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return sorted(kernels) + sorted(path for folder in PYTHON_FOLDERS for path in (ROOT / folder).rglob("*.py"))


def main(arguments):
    parser = options.Parser("format", description="clang-format, ruff and words.py over the tree.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 naming the files that differ")
    parser.add_argument("files", nargs="*", type=Path, help="all C++, CUDA and Python sources by default")
    chosen = parser.parse_args(arguments)
    files = chosen.files or sources()
    python = [file for file in files if file.suffix == ".py"]
    others = [file for file in files if file.suffix != ".py"]
    # Run all, so that one call reports all findings.
    codes = [
        others and _clang_format(others, chosen.check),
        python and _ruff(python, chosen.check),
        words.report(files),
        chosen.check and words.too_many_names(words.names_by_folder(files)),
    ]
    return 1 if any(codes) else 0


def _clang_format(files, check):
    program = shutil.which("clang-format")
    if not program:
        raise Failure("format: clang-format is missing: install the package clang-format (version 14)")
    if not check:
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


def _ruff(files, check):
    ruff = [wheels.python_with(wheels.RUFF, paths.SETUP_LOG), "-I", "-m", "ruff"]
    # Run `check --fix` before `format`, which formats the fixes.
    steps = (["check"], ["format", "--check"]) if check else (["check", "--fix"], ["format"])
    return max(subprocess.run([*ruff, *step, "--quiet", *files], stdout=sys.stderr).returncode for step in steps)


if __name__ == "__main__":
    sys.exit(options.run(main))
