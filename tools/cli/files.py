"""Atomic file writes: a file is written under a temporary name in the same folder and renamed when complete.

A symbolic link is kept, and its target is replaced. A character device, a FIFO or standard output cannot be renamed to:
it is written directly. A folder, a block device or a socket is refused.
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
    """Replaces or creates the file `path` with `text` (str or bytes); str is xz-compressed for a name that ends in
    .json.xz. Throws OSError and then leaves an existing file unchanged."""
    with whole(path) as file:
        file.write(_bytes(path, text))


def create(path, text):
    """Creates the file `path` like replace(), but throws FileExistsError if the name is taken. Throws OSError."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _named(aside, path):
            aside.write_bytes(_bytes(path, text))
        os.link(aside, path)  # unlike rename, link never replaces a file
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def whole(path):
    """Context manager of a binary file that is renamed to `path` when all of it is on disk. Throws OSError and then
    leaves an existing file unchanged."""
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
    """Makes an OSError name the requested file `path`, not the temporary file `aside`."""
    try:
        yield
    except OSError as error:
        if error.filename == str(aside):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def shown(path):
    """Returns `path` for messages: relative if it is below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _bytes(path, text):
    """The bytes to write to `path`: bytes unchanged, str encoded, and compressed for .json.xz."""
    if not isinstance(text, str):
        return text
    return json_file.packed(text) if str(path).endswith(".json.xz") else text.encode()


def _written_through(path):
    """Returns a file descriptor for a path that is written directly (device, FIFO, standard output), else None. Throws
    OSError for a folder, a block device or a socket."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    with contextlib.suppress(OSError):  # standard output may be closed
        if os.path.samestat(found, os.fstat(1)):
            sys.stdout.flush()
            return os.dup(1)
    if stat.S_ISREG(found.st_mode):
        return None
    if stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode):
        return os.open(path, os.O_WRONLY)
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a block device or a socket"
    raise OSError(errno.EISDIR, f"it is {kind}: name a file to be written", str(path))
