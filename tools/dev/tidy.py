"""clang-tidy on the host sources: tools/dev/tidy.py [--build build/emulator] [--keep] [files...]. Exit 1: findings.

Without files: checks the sources that changed since they last had no finding (compiled.py). --keep records the sources
without findings.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from cli import digests, paths  # noqa: E402  (found from here when run as a program)
from dev import compiled  # noqa: E402


def sources(build):
    """The *.cpp files of paths.LIBRARIES that the build compiles."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    compiled = {one["file"] for one in commands}
    found = sorted(path for folder in paths.LIBRARIES for path in (ROOT / folder).rglob("*.cpp"))
    return [path for path in found if str(path) in compiled]


def without_precompiled_headers(build):
    """Writes the build's compile commands, one per source, without g++'s precompiled headers, which clang-tidy cannot
    read; sources include what they need. Returns the folder."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    commands = list({one["file"]: one for one in commands}.values())
    for one in commands:
        one["command"] = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx", "", one["command"])
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(commands), encoding="utf-8")
    return folder


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "emulator")
    parser.add_argument("--keep", action="store_true", help="write down what nothing was found in")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    program = shutil.which("clang-tidy")
    if not program:
        print("tidy: clang-tidy is missing: ./ladder setup --dev installs it", file=sys.stderr)
        return 1
    if not (options.build / "compile_commands.json").exists():
        print(f"tidy: no compile_commands.json in {options.build}: ./ladder build --preset emulator", file=sys.stderr)
        return 1

    folder = without_precompiled_headers(options.build)

    def check(file):
        return subprocess.run([program, "--quiet", "-p", folder, file], capture_output=True, text=True)

    files, now = options.files, {}
    if not files:
        before = compiled.read("tidy")
        for file in sources(options.build):
            now[str(file.relative_to(ROOT))] = digests.of_source(file, {ROOT / ".clang-tidy"})
        files = [ROOT / file for file, digest in now.items() if before.get(file) != digest]
        print(f"tidy: {len(files)} of {len(now)} sources have changed since nothing was found in them", file=sys.stderr)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(check, files))
    for result in results:
        if result.returncode != 0:
            print(result.stdout, end="")
    wrong = any(result.returncode for result in results)
    if options.keep and now and not wrong:
        compiled.keep("tidy", now)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
