"""`--watch`: a verb again at each save of a source, the last result on the screen, until Ctrl-C."""

import os
import signal
import sys
import time

from . import paths, run, say, tools

FLAG = "--watch"
_FOLDERS = (*paths.CPP_FOLDERS, "cmake", "tools")
_KINDS = (".cu", ".h", ".cpp", ".py", ".txt", ".cmake", ".json")
_SECONDS = 0.2
_TO_END = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)  # those that run.passed_on() passes on


def repeated(verb, arguments):
    """Runs the verb in a process of its own; returns its exit status when Ctrl-C, 130, or another signal to end has ended one."""
    command = [*tools.module(sys.executable, "cli"), verb, *(word for word in arguments if word != FLAG)]
    while True:
        before = _sources()
        if sys.stdout.isatty():
            print("\033[2J\033[3J\033[H", end="", flush=True)  # clears the screen, and what scrolled off it
        status = run.passed_on(command)
        if status - 128 in _TO_END:
            return status
        say.line(f"exit status {status} at {time.strftime('%H:%M:%S')}; again at the next save, Ctrl-C ends")
        while _sources() == before:
            time.sleep(_SECONDS)


def _sources():
    """{path: when it was saved} of what a build or a run is made of. An editor's own files are left out."""
    found = {}
    for folder in _FOLDERS:
        for where, folders, names in os.walk(paths.ROOT / folder):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                if name.endswith(_KINDS) and name[0] not in ".#":
                    path = os.path.join(where, name)
                    try:
                        found[path] = os.stat(path).st_mtime_ns
                    except FileNotFoundError:  # between an editor's removal and its rename
                        continue
    return found
