"""Versions unchanged since they last compiled without a warning, which CI can skip: tools/dev/compiled.py [--keep].

tests/last_compiled.json has a digest of every version that nvcc and clang compiled without a warning and whose spills
`./ladder resources` accepts, and of every host source without a clang-tidy finding (tools/dev/tidy.py). A digest covers
the source, all headers of the repository that it includes, and the build files that set its compiler flags. Comments of
versions do not count; those of clang-tidy's sources do, as NOLINT is one.

Prints the unchanged versions for CMake's LADDER_WITHOUT. CI compiles the others, and always the first version of every
pass. With --keep, writes the digests of a complete build:

    ./ladder build --preset clang --werror ladder_dev
    ./ladder build --preset cuda --werror ladder_ci_cuda && ./ladder resources && python3 tools/dev/compiled.py --keep
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from cli import digests, files, tools  # noqa: E402  (found from here when run as a program)

SCHEMA = "ladder.last_compiled/1"
RECORD = ROOT / "tests" / "last_compiled.json"
_OF_COMPILERS = re.compile(
    r"^.*(?:[Cc]ompile|CMAKE_C[UX]|INCLUDE|STANDARD).*\n", re.MULTILINE
)  # lines of CMakeLists.txt
BUILDS = {"cuda": "ladder_ci_cuda", "clang": "ladder_dev"}  # {build: its target with all versions}


def read(kind, record=RECORD):
    """{source: digest} of `kind`, "versions" or "tidy"; empty without a readable record."""
    try:
        raw = json.loads(record.read_text(encoding="utf-8"))
        return dict(raw[kind]) if raw["schema"] == SCHEMA else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def keep(kind, of_sources, record=RECORD):
    kept = {"schema": SCHEMA} | {each: read(each, record) for each in ("tidy", "versions")}
    kept[kind] = dict(sorted(of_sources.items()))
    files.replace(record, json.dumps(kept, indent=1) + "\n")


def of_versions(root=ROOT):
    """{source: digest} of each version in the tree."""
    how = hashlib.sha256((root / "cmake" / "LadderLayer.cmake").read_bytes())
    how.update(json.dumps([_settings(root, preset) for preset in BUILDS]).encode())
    how.update("".join(_OF_COMPILERS.findall((root / "CMakeLists.txt").read_text(encoding="utf-8"))).encode())
    found = {}
    for version in digests.versions(root):
        file = f"dev/{version.name}.cu"
        found[file] = f"{digests.of_source(root / file, root=root, code_only=True)} {how.hexdigest()[:8]}"
    return found


def _settings(root, preset):
    """The settings of CMakePresets.json for a build, inherited ones included."""
    listed = json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    presets = {each["name"]: each for each in listed}
    found = []
    while preset:
        found.append({key: value for key, value in presets[preset].items() if key != "displayName"})
        preset = presets[preset].get("inherits")
    return found


def without(now, before):
    """Sources whose digests are the same in `now` and `before`, except each pass's first version."""
    return [source for source, digest in now.items() if before.get(source) == digest and "/v01_" not in source]


def _lacks(build, target):
    """Reason that a build does not prove that all versions compile; "" if it does."""
    cache = ROOT / "build" / build / "CMakeCache.txt"
    said = cache.read_text(encoding="utf-8").splitlines() if cache.exists() else []
    if "LADDER_WERROR:BOOL=ON" not in said or "LADDER_WITHOUT:STRING=" not in said:
        return f"build/{build} is not a build of everything with warnings as errors"
    done = subprocess.run([tools.ninja(), "-C", cache.parent, target], capture_output=True, text=True)
    built = done.returncode != 0 or re.search(r"Building \w+ object", done.stdout)
    return f"build/{build} was not up to date: build and check it again" if built else ""


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="write the digests of what build/cuda and build/clang have")
    if parser.parse_args(arguments).keep:
        wrong = [why for build, target in BUILDS.items() if (why := _lacks(build, target))]
        for why in wrong:
            print(f"compiled: {why}", file=sys.stderr)
        if not wrong:
            keep("versions", of_versions())
        return 1 if wrong else 0
    now = of_versions()
    left_out = without(now, read("versions"))
    print(f"compiled: {len(left_out)} of {len(now)} versions are as they were and left out", file=sys.stderr)
    print(";".join(left_out))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
