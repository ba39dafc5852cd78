"""Ranks of one training: `--gpus N` starts a process for each GPU of this host, hands signals on, and ends with all.

The programs find each other by the variables that torchrun sets (train/world.h). Each holds the read end of a pipe
whose write end this process alone has: it closes when ./ladder ends, also by SIGKILL, and the ranks end with it.
"""

import collections
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import launcher, run, say, tools
from .options import INTERRUPTED

GRACE_S = 10.0  # from a rank's death, or a second signal, until the other ranks are killed

# {signal to hand on: times}. A program leaves at once at a second signal, which Ctrl-C alone means: a terminal that
# closes can send SIGHUP twice.
_HANDED_ON = {signal.SIGINT: 2, signal.SIGTERM: 1, signal.SIGHUP: 1}
_IN_ORDER = (0, INTERRUPTED)  # exit statuses of a rank that has ended in order: the others may take their time


def start(command, gpus, numbers, beside=False, hidden=None):
    """The exit status of `command`: of `gpus` ranks, else of one program, `beside` this process or in its place. The line
    `hidden` of its output is left out, which needs `beside`."""
    if gpus and gpus > 1:
        return run_ranks(command, launcher.environments(gpus), hidden)
    if beside and numbers.is_one_of_several:
        return run_ranks(command, [tools.environment()], hidden)
    return run.passed_on(command, hidden) if beside else run.handed_over(command)


def run_ranks(command, environments, hidden=None):
    """Runs `command` once in each of `environments`, rank 0 first. Returns the status of all; of different ones the first
    that is not 0. No process is left when it returns."""
    sys.stdout.flush()
    parent_pipe, held_open = os.pipe()
    try:
        with _wake_ups() as arrivals:
            ranks = []
            try:
                for environment in environments:
                    ranks.append(_started(command, environment, parent_pipe, len(ranks), hidden))
                copier = hidden and _copier(ranks[0].stdout, hidden)
                ends = _Ends(ranks)
                ends.wait(arrivals)
                if copier:
                    copier.join()
            finally:
                _kill(rank for rank in ranks if rank.poll() is None)
    finally:
        os.close(parent_pipe)
        os.close(held_open)
    ends.report(Path(str(command[0])).name)
    status = next(filter(None, ends.statuses.values()), 0)
    return 128 - status if status < 0 else status


class _Ends:
    """The ends of processes, in their order."""

    def __init__(self, ranks):
        self._ranks = ranks
        self.statuses = {}  # {rank: its returncode}, the first that ended first
        self._killed = []  # ranks that did not end by themselves
        self._sent = collections.Counter()  # signals handed on

    def wait(self, arrivals):
        """Hands signals on until all ranks have ended. Kills those that are left GRACE_S after a rank's death."""
        deadline = None
        while True:
            self._take_ended()
            if len(self.statuses) == len(self._ranks):
                return
            if deadline is None and (self._first_dead() is not None or sum(self._sent.values()) > 1):
                deadline = time.monotonic() + GRACE_S
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                self._killed = [rank for rank in range(len(self._ranks)) if rank not in self.statuses]
                _kill(self._ranks[rank] for rank in self._killed)
                continue
            select.select([arrivals], [], [], left)
            with contextlib.suppress(BlockingIOError):
                for number in os.read(arrivals, 1024):
                    self._hand_on(number)

    def report(self, program):
        """Prints which signals ended ranks, if no rank is left that could, and which ranks were killed here."""
        by_signal = {
            rank: _name(-status)
            for rank, status in self.statuses.items()
            if status < 0 and rank not in self._killed and -status not in self._sent and -status != signal.SIGPIPE
        }
        # A rank with another status printed why it ended, or left that to the lowest rank alive.
        if by_signal and all(status < 0 or status in _IN_ORDER for status in self.statuses.values()):
            ended = (f"rank {rank} of {len(self._ranks)} ended by {name}" for rank, name in by_signal.items())
            say.line(f"{program}: {'; '.join(ended)}")
        if self._killed:
            first = self._first_dead()
            since = "the second signal" if first in (None, *self._killed) else f"the end of rank {first}"
            names = ", ".join(map(str, self._killed))
            say.line(f"{program}: killed, still there {GRACE_S:g} s after {since}: rank {names}")

    def _take_ended(self):
        ended = [
            (rank, process.returncode)
            for rank, process in enumerate(self._ranks)
            if rank not in self.statuses and process.poll() is not None
        ]
        # A signal comes first: it is the cause, and other ranks' failures are its result.
        self.statuses.update(sorted(ended, key=lambda end: (end[1] >= 0, end[0])))

    def _first_dead(self):
        return next((rank for rank, status in self.statuses.items() if status not in _IN_ORDER), None)

    def _hand_on(self, number):
        if self._sent[number] < _HANDED_ON.get(number, 0):
            self._sent[number] += 1
            for process in self._ranks:
                process.send_signal(number)


def _started(command, environment, parent_pipe, rank, hidden):
    """A rank in a session of its own, which a terminal's Ctrl-C does not reach."""
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL if rank else None,
        stdout=subprocess.PIPE if hidden and not rank else None,
        env={**environment, "LADDER_PARENT_PIPE": str(parent_pipe)},
        pass_fds=[parent_pipe],
        start_new_session=True,
    )


def _copier(output, hidden):
    """A started thread that prints the lines of `output` except `hidden`."""

    def copy():
        with output, contextlib.suppress(BrokenPipeError):  # a reader that has enough
            for line in output:
                if line.rstrip(b"\n") != hidden.encode():
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _name(number):
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _kill(processes):
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _wake_ups():
    """A descriptor with a byte for each signal that arrives, in their order; a child's end is SIGCHLD. A signal that this
    process was started to ignore, such as SIGHUP under nohup, stays ignored."""
    arrivals, written = os.pipe()
    os.set_blocking(arrivals, False)
    os.set_blocking(written, False)
    before_fd = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in (signal.SIGCHLD, *_HANDED_ON)
        if number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield arrivals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(arrivals)
        os.close(written)
