"""Which version of a kernel runs: the promoted one, as in Ladder's trainer, or the one of use()."""

import contextlib
import os

from . import library

_used = {}  # pass: version


class use(contextlib.ContextDecorator):
    """use("groupnorm/forward", "v09"): that version for the whole pass from now on, or in a `with`; None takes it back. A
    problem that it cannot run goes to the promoted one. LADDER_TORCH_USE ("groupnorm/forward=v09,...") says what a process
    begins with. Throws ValueError naming what there is."""

    def __init__(self, path, version):
        self._before = dict(_used)
        after = {**_used, path: version}
        _set({name: value for name, value in after.items() if value is not None})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _set(self._before)


def _set(used):
    text = ",".join(f"{path}={version}" for path, version in used.items())
    halves = library.halves()
    if not halves:
        raise RuntimeError("ladder_torch was built without a compiled library")
    for half in halves:
        half.ask(use=text)
    _used.clear()
    _used.update(used)


def versions(path):
    """The versions of a pass: ["v01_naive", ...]. Throws ValueError naming the passes that there are."""
    half = library.halves()[0]
    found = half.ask(versions=path)
    if not found:
        raise ValueError(f"no pass {path!r}; there are {', '.join(half.ask()['passes'])}")
    return found


class Explanation(list):
    """What ran so far, a dict a problem; printed as a table."""

    _COLUMNS = ("device", "pass", "problem", "version", "calls", "reason")

    def __str__(self):
        rows = [self._COLUMNS, *([_cell(each[name]) for name in self._COLUMNS] for each in self)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._COLUMNS))]
        return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in rows)

    __repr__ = __str__


def _cell(value):
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def explain():
    """Which version ran for which problem, and why."""
    return Explanation(row for half in library.halves() for row in rows_of(half, half.ask(explain=True)))


def rows_of(half, told):
    """An Explanation of what a half has told."""
    on = "emulator" if half is library.EMULATOR else "cuda:{}"
    return Explanation({**row, "device": on.format(row["device"])} for row in told)


if os.environ.get("LADDER_TORCH_USE"):
    for word in os.environ["LADDER_TORCH_USE"].split(","):
        use(*word.partition("=")[::2])
