"""Commands: in our place, beside us, or with their output in a log whose end is shown when they fail."""

import os
import signal
import subprocess
import sys
import threading
import time

from . import say, tools
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


def handed_over(command):
    """Runs `command` in the place of this process: its signals, its output and its exit status are the caller's."""
    sys.stdout.flush()
    os.execve(str(command[0]), [str(word) for word in command], tools.environment())


def passed_on(command, hidden=None):
    """The exit status of `command`, which is sent every signal to end that we are sent, once each. The line `hidden`
    of its output is left out.

    It has a process group of its own: a terminal's Ctrl-C goes to a whole group, and a second one would end a training
    without its checkpoint.
    """
    process, early = None, []

    def pass_on(number, _):
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            env=tools.environment(),
            start_new_session=True,
            stdout=subprocess.PIPE if hidden else None,
            text=True,
            errors="replace",
        )
        for number in early:
            process.send_signal(number)
        if hidden:
            with process.stdout as lines:
                for line in lines:
                    if line.rstrip("\n") != hidden:
                        print(line, end="", flush=True)
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status


def _tail(log, begin):
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(begin)
        lines = [line.rstrip() for line in file if line.strip()]
    return "\n".join("    " + line for line in lines[-_LAST_LINES:])
