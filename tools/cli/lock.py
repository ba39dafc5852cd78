"""One CLI at a time where files are written: an flock that the kernel drops even if its holder is killed."""

import contextlib
import fcntl

from . import say


@contextlib.contextmanager
def held(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say.line(f"waiting for another ./ladder ({path.name})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
