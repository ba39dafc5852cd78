"""The versions in the tree, the headers that a source includes, and digests of sources with them.

Digests are by content: a clone that CI made may have no history.
"""

import functools
import hashlib
import re
from dataclasses import dataclass

from . import paths

_DEV_INCLUDE = re.compile(r'^\s*#\s*include "(dev/[^"]+)"', re.MULTILINE)
_INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
# What C++ is cut into to take its comments out: literals, numbers and names are passed over whole.
_PIECE = re.compile(
    rb"""(?P<blank>(?:\s|//[^\n]*|/\*.*?\*/)+)"""
    rb"""|R"(?P<end>[^()\s\\]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\.?\d(?:[eEpP][+-]|[\w.'])*|\w+|'(?:\\.|[^'\\\n])+'|.""",
    re.DOTALL,
)
# How a version says that another one does its work; which, only the compiler knows.
_HANDS_ON = re.compile(r"\b(version_of|versions_of|find_version|plans_of)\b")


@dataclass(frozen=True)
class Version:
    layer: str
    name: str  # "conv3x3/fprop/v03_smem_tile"


def versions(root=None):
    root = root or paths.ROOT
    found = sorted(path.relative_to(root / "dev").with_suffix("") for path in root.glob("dev/*/*/v*.cu"))
    return [Version(path.parts[0], str(path)) for path in found]


def hands_on(file, root=None):
    """Whether the version in `file` has others do its work."""
    return any(_HANDS_ON.search(_text(path)) for path in with_includes({file}, root))


def of_source(file, others=(), root=None, code_only=False):
    """The digest of a source with all of the repository's headers that it includes, and of `others`: all that its compiler reads
    here, or, `code_only`, without comments and blanks."""
    root = root or paths.ROOT
    return _digest(with_includes({file}, root, _INCLUDE) | set(others), root, code_only)


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


@functools.cache
def _code_of(content):
    """The content without comments; a run of blanks is a newline if it has one, else a space."""

    def replaced(piece):
        return piece[0] if piece["blank"] is None else b"\n" if b"\n" in piece[0] else b" "

    return _PIECE.sub(replaced, content).strip()


def _digest(sources, root, code_only):
    digest = hashlib.sha256()
    for path in sorted(sources):
        if path.is_file():
            content = path.read_bytes()
            if code_only:
                content = _code_of(content)
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]
