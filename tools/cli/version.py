"""`./ladder --version`: the project's version, from CMakeLists.txt, and the commit where git knows it."""

import re

from . import paths
from .tools import git


def text():
    return f"ladder {_project()}{_commit()}"


def _project():
    found = re.search(
        r"^project\(ladder VERSION ([0-9.]+)", (paths.ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    return found[1] if found else "of no version"


def _commit():
    top, commit = git(paths.ROOT, "rev-parse", "--show-toplevel"), git(paths.ROOT, "rev-parse", "--short", "HEAD")
    if not commit or not top or not paths.ROOT.samefile(top):  # an archive unpacked inside another project
        return ""
    changed = ", with uncommitted changes" if git(paths.ROOT, "status", "--porcelain", "--untracked-files=no") else ""
    return f" (commit {commit}{changed})"
