"""The versions in the tree, the headers that a source includes, and digests of a source with its headers.

Digests hash file contents, not commits: CI's clone may have no history.
"""

import functools
import hashlib
import re
from dataclasses import dataclass

from . import paths

_DEV_INCLUDE = re.compile(r'^\s*#\s*include "(dev/[^"]+)"', re.MULTILINE)
_INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
# Pieces that C++ is cut into, to take comments out: literals, numbers and names stay whole.
_PIECE = re.compile(
    rb"""(?P<blank>(?:\s|//[^\n]*|/\*.*?\*/)+)"""
    rb"""|R"(?P<end>[^()\s\\]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\.?\d(?:[eEpP][+-]|[\w.'])*|\w+|'(?:\\.|[^'\\\n])+'|.""",
    re.DOTALL,
)
# Calls by which a version delegates to other versions. The text does not tell to which; only the compiler knows.
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
    """Returns True if the version in `file`, or a dev/ header that it includes, delegates to other versions."""
    return any(_HANDS_ON.search(_text(path)) for path in with_includes({file}, root))


def of_source(file, others=(), root=None, code_only=False):
    """Digest of a source, of every repository header that it includes, and of `others`: all repository files that the
    compiler reads for it; with `code_only` without their comments and blanks."""
    root = root or paths.ROOT
    return _digest(with_includes({file}, root, _INCLUDE) | set(others), root, code_only)


def with_includes(sources, root=None, include=_DEV_INCLUDE):
    """Set of `sources` and the headers that they include, directly or not, if in dev/ or matched by `include`."""
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
