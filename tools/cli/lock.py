"""Lock that lets one CLI at a time write files: an flock, which the kernel drops even if its holder is killed."""

import contextlib
import errno
import fcntl

from . import say
from .errors import Failure


@contextlib.contextmanager
def held(path):
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say.line(f"waiting for another ./ladder ({path.name})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _opened(path):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise Failure(
            f"{path.parent} may not be written ({error.strerror}), and ./ladder builds there: copy the tree to a folder of "
            "yours, or start programs that are built, such as build/emulator/bench_silu, without ./ladder"
        ) from None
