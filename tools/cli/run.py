"""Commands whose output goes to a log, with progress on the screen and the log's end shown when they fail."""

import subprocess
import threading
import time

from . import say
from .errors import Failure

_LAST_LINES = 12


def logged(what, command, log, env=None):
    """Runs `command`; throws Failure with the last lines of its output."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    done = threading.Event()

    def tick():
        while not done.wait(0.5):
            say.progress(f"{what} ... {time.monotonic() - started:.0f} s")

    ticker = threading.Thread(target=tick, daemon=True)
    try:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"\n$ {' '.join(map(str, command))}\n")
            file.flush()
            begin = file.tell()
            ticker.start()
            try:
                status = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env
                ).returncode
            except OSError as error:
                raise Failure(f"{what}: {error}") from None
            finally:
                done.set()
                ticker.join()
    finally:
        say.close()
    if status != 0:
        raise Failure(f"{what} failed; the end of {log}:\n{_tail(log, begin)}")


def _tail(log, begin):
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(begin)
        lines = [line.rstrip() for line in file if line.strip()]
    return "\n".join("    " + line for line in lines[-_LAST_LINES:])
