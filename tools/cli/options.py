"""argparse with one-line errors and exit status 2, and the exit statuses of a program."""

import argparse
import math
import os
import re
import sys
from pathlib import Path

from registry import selection

from . import say, watch
from .errors import Failure, UsageError

INTERRUPTED = 130  # the exit status after Ctrl-C, as a shell has it: 128 + SIGINT


class Parser(argparse.ArgumentParser):
    def __init__(self, verb, **more):
        super().__init__(prog=f"./ladder {verb}", allow_abbrev=False, **more)

    def error(self, message):
        both = re.fullmatch(r"argument (\S+): not allowed with argument (\S+)", message)
        raise UsageError(f"{both[2]} and {both[1]} exclude each other" if both else f"{self.prog}: {message}")

    def add_device(self):
        self.add_argument("--device", choices=("gpu", "emulator"), help="default: the GPU where there is one")

    def add_gpus(self, what):
        self.add_argument(
            "--gpus",
            type=at_least(1),
            metavar="N",
            help=f"this host's first N GPUs, a process each with {what}; --device emulator: N processes (default: 1; with "
            "torchrun, srun or mpirun: as many as these start)",
        )

    def add_watch(self):
        self.add_argument(watch.FLAG, action="store_true", help="again at each save of a source; Ctrl-C ends")

    def add_selection(self, *names, **defaults):
        """Adds options of selection.HELP by name, with defaults. --problem and --set exclude each other."""
        problems = self.add_mutually_exclusive_group() if {"problem", "set"} <= set(names) else self
        for name in names:
            default = defaults.get(name)
            said = f" (default: {default})" if default else ""
            group = problems if name in ("problem", "set") else self
            group.add_argument(f"--{name}", type=filled(name), default=default, help=selection.HELP[name] + said)


def check_names(chosen, **suffixes):
    """Throws UsageError unless each output file (out=".npy") has its suffix and is in an existing folder."""
    for flag, suffix in suffixes.items():
        path = getattr(chosen, flag)
        if path and Path(path).suffix != suffix:
            raise UsageError(f"--{flag} '{path}': a name that ends in {suffix}")
        if path and not Path(path).resolve().parent.is_dir():
            raise UsageError(f"--{flag} '{path}': there is no folder '{Path(path).parent}'")


def filled(name):
    """argparse type of a non-empty text."""

    def word(text):
        if not text.strip():
            raise argparse.ArgumentTypeError("it is empty")
        return text

    word.__name__ = name
    return word


def at_least(least):
    """argparse type of an integer of at least `least`."""

    def number(word):
        if not re.fullmatch(r"[0-9]{1,18}", word) or int(word) < least:
            raise argparse.ArgumentTypeError(f"'{word}': a whole number of at least {least}")
        return int(word)

    return number


def between(low, high):
    """argparse type of a number in (`low`, `high`]."""

    def number(word):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not low < value <= high:
            raise argparse.ArgumentTypeError(f"'{word}': a number above {low:g} and up to {high:g}")
        return value

    return number


def folder(word):
    """argparse type of an existing folder."""
    if not Path(word).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder '{word}'")
    return Path(word)


def _open_standard_streams():
    """Opens /dev/null in place of each standard stream that the caller closed: else the next file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # open() takes the lowest free number: this one
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


def _full_stdout():
    """Returns "standard output" if flushing it fails, else ""."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
        return "standard output"
    return ""


def _drop_stdout():
    """Redirects standard output to /dev/null: Python flushes the unwritten rest once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(main):
    """Runs main. Returns its exit status, or prints its exception as one line and returns that exception's status."""
    _open_standard_streams()
    try:
        try:
            status = main(sys.argv[1:])
        except SystemExit as end:  # argparse has printed its help
            status = end.code
        sys.stdout.flush()
        return status
    except (UsageError, Failure) as error:
        say.line(error)
        return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:  # the reader has closed the pipe: `./ladder list | head`
        _drop_stdout()
        return 0
    except OSError as error:
        where = error.filename or _full_stdout()
        say.line(f"{where}: {error.strerror}" if where else error)
        return 1
    except KeyboardInterrupt:
        say.line("interrupted")
        return INTERRUPTED
