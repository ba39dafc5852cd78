"""Memory of a candidate's processes together, which no limit of one process sees."""

import contextlib
import glob
import os
import signal
import threading

_SECONDS = 0.1  # between two looks
_COUNTED = ("RssAnon", "RssShmem", "VmSwap")  # fields of /proc/<pid>/status: all but pages of files


@contextlib.contextmanager
def limited(parent, most):
    """Ends the descendants of process `parent` once they have more than `most` bytes together. Yields an Event, which is
    set then."""
    exceeded, left = threading.Event(), threading.Event()

    def watch():
        while not left.wait(_SECONDS):
            processes = _descendants(parent)
            if sum(map(_bytes, processes)) > most:
                exceeded.set()
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield exceeded
    finally:
        left.set()
        thread.join()


def _descendants(process):
    """Processes that a process and its descendants have started; each thread has children of its own."""
    found = []
    for file in glob.glob(f"/proc/{process}/task/*/children"):
        with contextlib.suppress(OSError), open(file, encoding="ascii") as children:
            for child in map(int, children.read().split()):
                found += [child, *_descendants(child)]
    return found


def _bytes(process):
    with contextlib.suppress(OSError), open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as lines:
        fields = dict(line.split(":", 1) for line in lines)
        return sum(1024 * int(fields[name].split()[0]) for name in _COUNTED if name in fields)
    return 0
