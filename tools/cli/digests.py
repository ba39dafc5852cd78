"""What has changed since the last full run of the tests, by content: a clone that CI made may have no history.

tests/last_full_run.json has a digest of every version that passed then, and one of what all of them share. A version's
digest covers its file, the headers below dev/ that it includes, and its layer's other sources, problems and reference; the
shared one the core, runtime/ and nn/, the tests that versions are put through, and how everything is compiled.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field

from . import files, paths

SCHEMA = "ladder.full_run/1"

# All that a program may be made of or read.
FOLDERS = ("bench", "cmake", "core", "dev", "io", "nn", "reference", "runtime", "tests", "tools", "train")

_SHARED = (
    "core/**/*",
    "runtime/*",
    "nn/**/*",
    "tests/test_versions.cpp",
    "tests/main.cpp",
    "tests/repeats.*",
    "tests/support.*",
    "CMakeLists.txt",
    "CMakePresets.json",
    "cmake/*",
    "tests/CMakeLists.txt",
)
_DEV_INCLUDE = re.compile(r'^\s*#\s*include "(dev/[^"]+)"', re.MULTILINE)
_INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
# How a version says that another one does its work; which, only the compiler knows.
_HANDS_ON = re.compile(r"\b(version_of|versions_of|find_version|plans_of)\b")


@dataclass(frozen=True)
class Version:
    layer: str
    name: str  # "conv3x3/fprop/v03_smem_tile"

    @property
    def suite(self):
        """Its tests in test_versions_<layer>."""
        return self.name.replace("/", "_")


@dataclass
class LastRun:
    date: str = ""
    shared: str = ""
    versions: dict = field(default_factory=dict)  # name -> digest


def record_path(root=None):
    return (root or paths.ROOT) / "tests" / "last_full_run.json"


def versions(root=None):
    root = root or paths.ROOT
    found = sorted(path.relative_to(root / "dev").with_suffix("") for path in root.glob("dev/*/*/v*.cu"))
    return [Version(path.parts[0], str(path)) for path in found]


def of_version(version, root=None):
    root = root or paths.ROOT
    file = root / "dev" / f"{version.name}.cu"
    sources = with_includes({file}, root)
    if hands_on(file, root):
        sources |= with_includes(set((root / "dev" / version.layer).glob("*/v*.cu")), root)
    for pattern in ("*.cpp", "*.cu"):
        sources |= with_includes(set((root / "dev" / version.layer).glob(pattern)), root)
    sources |= {root / "dev" / version.layer / "shapes.txt", root / "reference" / f"{version.layer}_reference.cpp"}
    return _digest(sources, root)


def hands_on(file, root=None):
    """Whether the version in `file` has others do its work."""
    return any(_HANDS_ON.search(_text(path)) for path in with_includes({file}, root))


def of_shared(root=None):
    root = root or paths.ROOT
    return _digest({path for pattern in _SHARED for path in root.glob(pattern)}, root)


def of_tree(root=None):
    """Of all that a test program may be made of or read."""
    root = root or paths.ROOT
    return _digest(
        {
            path
            for folder in FOLDERS
            for path in (root / folder).rglob("*")
            if "__pycache__" not in path.parts and path != record_path(root)
        }
        | {root / "CMakeLists.txt", root / "CMakePresets.json"},
        root,
    )


def last_run(root=None):
    """What the last full run left; empty where there was none, or none that can be read: then everything has changed."""
    try:
        raw = json.loads(record_path(root).read_text(encoding="utf-8"))
        if raw["schema"] != SCHEMA:
            return LastRun()
        return LastRun(raw["date"], raw["shared"], dict(raw["versions"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LastRun()


def write_last_run(date, shared, of_versions, counts, root=None):
    text = json.dumps(
        {
            "schema": SCHEMA,
            "date": date,
            "counts": counts,
            "shared": shared,
            "versions": dict(sorted(of_versions.items())),
        },
        indent=2,
    )
    files.replace(record_path(root), text + "\n")


def of_source(file, others=(), root=None):
    """Of a source with all of the repository's headers that it includes, and of `others`: all that its compiler reads here."""
    root = root or paths.ROOT
    return _digest(with_includes({file}, root, _INCLUDE) | set(others), root)


def with_includes(sources, root=None, include=_DEV_INCLUDE):
    """These files, and the headers below dev/, or others that `include` matches, that they include one way or another."""
    root = root or paths.ROOT
    found, ahead = set(), list(sources)
    while ahead:
        path = ahead.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        ahead += [root / name for name in include.findall(_text(path))]
    return found


def _text(path):
    return path.read_text(encoding="utf-8", errors="replace")


def _digest(sources, root):
    digest = hashlib.sha256()
    for path in sorted(sources):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]
