"""Files that are whole or not there: written beside their name, which they get when they are complete.

A symbolic link stays, and the file that it names is written. A character device, a FIFO and standard output have no name to
give: they are written through. A folder, a block device or a socket is refused.
"""

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from . import json_file


def replace(path, text):
    """`text` or bytes instead of what bears the name `path`, if anything does; text is packed for a name that ends in .json.xz.
    Throws OSError, and leaves that as it was."""
    with whole(path) as file:
        file.write(_bytes(path, text))


def create(path, text):
    """As replace(), but never over another file: throws FileExistsError for a name that is taken, or another OSError."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _named(aside, path):
            aside.write_bytes(_bytes(path, text))
        os.link(aside, path)  # a link, unlike a rename, never replaces
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def whole(path):
    """A binary file to write to, which takes the name `path` when all of it is on the disk. Throws OSError, and leaves
    what bears that name as it was."""
    out = _written_through(path)
    if out is not None:
        with open(out, "wb") as through, tempfile.NamedTemporaryFile() as file:
            yield file
            file.seek(0)
            shutil.copyfileobj(file, through)
        return
    path = Path(os.path.realpath(path))
    aside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with _named(aside, path):
            file = open(aside, "wb")
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(aside, path):
    """Has an OSError name the file that was asked for, not the one beside it."""
    try:
        yield
    except OSError as error:
        if error.filename == str(aside):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def shown(path):
    """How to name `path` to somebody who stands in the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _bytes(path, text):
    """The bytes of the file `path`."""
    if not isinstance(text, str):
        return text
    return json_file.packed(text) if str(path).endswith(".json.xz") else text.encode()


def _written_through(path):
    """A descriptor to write to where `path` is no name to replace, else None. Throws OSError for what is never written."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    with contextlib.suppress(OSError):  # it may be closed
        if os.path.samestat(found, os.fstat(1)):
            sys.stdout.flush()
            return os.dup(1)
    if stat.S_ISREG(found.st_mode):
        return None
    if stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode):
        return os.open(path, os.O_WRONLY)
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a block device or a socket"
    raise OSError(errno.EISDIR, f"it is {kind}: name a file to be written", str(path))
