"""Source trees for comparison with this one, in .ladder/trees: a git worktree of a commit, or a copy of a folder.

The user's checkout, index and branches are untouched. A tree is kept so that the next comparison with it builds
quickly. Removing .ladder removes the trees; then `git worktree prune` makes git forget them.
"""

import filecmp
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cli import lock, tools
from cli.errors import Failure, UsageError

# Folders of .ladder that belong to this tree's runs; all others are downloads, which other trees share.
_NOT_SHARED = ("trees", "comparisons")

# Sources of a benchmark: the part of a folder that is copied.
_SOURCES = ("CMakeLists.txt", "CMakePresets.json", "bench", "cmake", "core", "dev", "reference", "tools")


@dataclass(frozen=True)
class Source:
    name: str  # for people
    ref: str  # argument of --live, valid while the source exists
    commit: str  # "unknown" without git
    dirty: bool
    folder: "Path | None" = None  # None for a commit of this checkout


def find(root, ref):
    """The Source of `ref`: a folder with sources of this project, or a commit. Throws UsageError."""
    folder = Path(ref).absolute()
    if (folder / "CMakePresets.json").is_file():
        commit, dirty = _state(folder)
        return Source(f"{ref} ({commit[:10]})", ref, commit, dirty, folder)
    if ref.startswith("-"):
        raise UsageError(f"--live {ref}: no commit of that name")
    if refusal := tools.git_refusal(root):
        raise UsageError(f"--live {ref}: no folder with sources, and git knows no commits here: {refusal}")
    sha = _git(
        root,
        "rev-parse",
        "--verify",
        "--quiet",
        f"{ref}^{{commit}}",
        wrong=UsageError(f"--live {ref}: no commit of that name, and no folder with sources"),
    )
    return Source(f"{ref} ({sha[:10]})", sha[:10], sha, False)


def checkout(root, private, source):
    """Makes or updates the folder with a Source's files. Returns its path."""
    name = source.commit[:12] if source.folder is None else f"copy-{_hash(str(source.folder).encode())[:12]}"
    tree = private / "trees" / name
    with lock.held(private / "trees.lock"):
        if source.folder is not None:
            _copy(source.folder, tree)
        elif not _is_fresh(tree, source.commit):
            _worktree(root, tree, source.commit)
        _share(private, tree / private.name)
    return tree


def fingerprint(tree):
    """Hash of all files that a benchmark is built of, less tools/ and *.md; equal for equal sources."""
    names = [name for name in _files(tree) if name.parts[0] != "tools" and name.suffix != ".md"]
    return _hash("".join(f"{name} {_hash((tree / name).read_bytes())}\n" for name in names).encode())


def _state(folder):
    """(commit, True if the sources differ from it); without git by LADDER_COMMIT and LADDER_DIRTY, like the build."""
    try:
        changes = _git(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".", ":!results")
        return _git(folder, "rev-parse", "HEAD"), bool(changes)
    except Failure:
        return os.environ.get("LADDER_COMMIT") or "unknown", os.environ.get("LADDER_DIRTY", "1") != "0"


def _worktree(root, tree, sha):
    _remove(root, tree)
    _git(root, "worktree", "prune")
    _git(root, "worktree", "add", "--detach", "--force", str(tree), sha)


def _is_fresh(tree, sha):
    """Returns True if `tree` is an unmodified worktree of commit `sha`."""
    if not (tree / ".git").exists():
        return False
    try:
        return _git(tree, "rev-parse", "HEAD") == sha and _git(tree, "status", "--porcelain") == ""
    except Failure:
        return False


def _remove(root, tree):
    if not tree.exists():
        return
    try:
        _git(root, "worktree", "remove", "--force", "--force", str(tree))
    except Failure:
        raise Failure(f"{tree} is in the way and git does not know it as a worktree: remove it") from None


def _copy(folder, tree):
    """Makes `tree` a copy of the sources in `folder`. Unchanged files keep their date, so rebuilds are short."""
    wanted = _files(folder)
    for name in set(_files(tree)) - set(wanted):
        (tree / name).unlink()
    for name in wanted:
        if not (tree / name).exists() or not filecmp.cmp(folder / name, tree / name, shallow=False):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / name, tree / name)


def _files(folder):
    """Relative paths of all files of _SOURCES, sorted."""
    found = []
    for name in _SOURCES:
        top = folder / name
        inside = [top] if top.is_file() else top.rglob("*")
        found += [path.relative_to(folder) for path in inside if path.is_file() and "__pycache__" not in path.parts]
    return sorted(found)


def _share(private, inside):
    """Links the downloads of .ladder into the folder `inside`. The links are in a real folder, because .gitignore's
    `/.ladder/` matches folders but not a link."""
    inside.mkdir(exist_ok=True)
    for entry in private.iterdir():
        link = inside / entry.name
        if entry.is_dir() and entry.name not in _NOT_SHARED and not link.is_symlink():
            link.symlink_to(entry.resolve())


def _hash(data):
    return hashlib.sha256(data).hexdigest()


def _git(root, *words, wrong=None):
    try:
        done = tools.captured("git", "-C", root, "-c", "core.hooksPath=/dev/null", *words)
    except OSError as error:
        raise wrong or Failure(f"git: {error.strerror}") from None
    if done.returncode != 0:
        raise wrong or Failure(f"git {' '.join(words[:2])}: {tools.last_line(done.stderr, otherwise='failed')}")
    return done.stdout.strip()
