"""Files that are whole or not there: written beside their name, which they get when they are complete."""

import contextlib
import os
from pathlib import Path


def replace(path, text):
    """`text` or bytes instead of what bears the name `path`, if anything does. Throws OSError, and leaves that as it was."""
    with _aside(path, text) as aside:
        aside.replace(path)


def create(path, text):
    """Never over another file: throws FileExistsError for a name that is taken, or another OSError."""
    with _aside(path, text) as aside:
        os.link(aside, path)  # a link, unlike a rename, never replaces


@contextlib.contextmanager
def whole(path):
    """A binary file to write to, which takes the name `path` when all of it is on the disk. Throws OSError, and leaves
    what bears that name as it was."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with open(aside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def shown(path):
    """How to name `path` to somebody who stands in the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


@contextlib.contextmanager
def _aside(path, text):
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(text.encode() if isinstance(text, str) else text)
        yield aside
    finally:
        aside.unlink(missing_ok=True)
