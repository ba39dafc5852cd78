"""Another commit's sources beside this tree: a git worktree in .ladder/trees, which shares what .ladder holds.

The user's checkout, its index and its branches stay as they are. A tree is kept, as the next comparison with that
commit then builds in a moment; removing .ladder removes it, and `git worktree prune` makes git forget it.
"""

import subprocess

from door import lock, paths
from door.errors import Failure, UsageError

from . import handicap

# What .ladder holds of its own at run time; all the rest is downloads.
_NOT_SHARED = ("trees", "comparisons")


def commit_of(root, ref):
    """The full name of the commit that `ref` names. Throws UsageError."""
    if ref.startswith("-"):
        raise UsageError(f"--live {ref}: no commit of that name")
    _git(root, "rev-parse", "--git-dir", wrong=UsageError("--live needs a git checkout, and this is none"))
    return _git(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}",
                wrong=UsageError(f"--live {ref}: no commit of that name"))


def head(root):
    """(full name of the commit checked out in `root`, whether its sources differ from that commit)."""
    return (_git(root, "rev-parse", "HEAD"),
            bool(_git(root, "status", "--porcelain", "--untracked-files=normal", "--", ".", ":!results")))


def checkout(root, private, sha, percent=None):
    """The folder with the sources of commit `sha`, slowed by `percent` if that is given."""
    name = sha[:12] if percent is None else f"{sha[:12]}-{percent:g}-percent-slower"
    tree = private / "trees" / name
    with lock.held(private / "trees.lock"):
        if not _is_fresh(tree, sha, percent):
            _remove(root, tree)
            _git(root, "worktree", "prune")
            _git(root, "worktree", "add", "--detach", "--force", str(tree), sha)
            if percent is not None:
                handicap.apply(tree / paths.DEV.name, percent)
                _mark(tree).parent.mkdir()
                _mark(tree).write_text(_changes(tree), encoding="utf-8")
        _share(private, tree / private.name)
    return tree


def _is_fresh(tree, sha, percent):
    """Whether `tree` is what an earlier run left, untouched since."""
    if not (tree / ".git").exists():
        return False
    try:
        if _git(tree, "rev-parse", "HEAD") != sha:
            return False
        if percent is None:
            return _git(tree, "status", "--porcelain") == ""
        return _mark(tree).exists() and _mark(tree).read_text(encoding="utf-8") == _changes(tree)
    except Failure:
        return False


def _mark(tree):
    """Holds what the handicap changed, written when it was complete."""
    return tree / ".ladder" / "handicap.diff"


def _changes(tree):
    return _git(tree, "diff", "HEAD")


def _remove(root, tree):
    if not tree.exists():
        return
    try:
        _git(root, "worktree", "remove", "--force", "--force", str(tree))
    except Failure:
        raise Failure(f"{tree} is in the way and git does not know it as a worktree: remove it") from None


def _share(private, inside):
    """Links to all that was fetched. A folder of links, because .gitignore's `/.ladder/` is a folder and not a link."""
    inside.mkdir(exist_ok=True)
    for entry in private.iterdir():
        link = inside / entry.name
        if entry.is_dir() and entry.name not in _NOT_SHARED and not link.is_symlink():
            link.symlink_to(entry.resolve())


def _git(root, *words, wrong=None):
    try:
        done = subprocess.run(["git", "-C", str(root), "-c", "core.hooksPath=/dev/null", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Failure(f"git: {error.strerror}") from None
    if done.returncode != 0:
        raise wrong or Failure(f"git {' '.join(words[:2])}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return done.stdout.strip()
