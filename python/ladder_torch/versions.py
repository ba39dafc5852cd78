"""Choice of kernel versions: the promoted one, as in Ladder's trainer, or the one of use()."""

import contextlib
import os

from . import library

_used = {}  # pass: version


class use(contextlib.ContextDecorator):
    """Selects a version for a whole pass, from now on or in a `with`: use("groupnorm/forward", "v09"). None undoes it.

    A problem that the version cannot run goes to the promoted version. The environment variable LADDER_TORCH_USE
    ("groupnorm/forward=v09,...") sets the initial choice. Throws ValueError that lists the passes or versions."""

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
    """Returns the versions of a pass: ["v01_naive", ...]. Throws ValueError that lists the passes."""
    half = library.halves()[0]
    found = half.ask(versions=path)
    if not found:
        raise ValueError(f"no pass {path!r}; there are {', '.join(half.ask()['passes'])}")
    return found


class Explanation(list):
    """Problems computed so far with their versions, a dict for each; printed as a table."""

    _COLUMNS = ("device", "pass", "problem", "version", "calls", "reason")

    def __str__(self):
        rows = [self._COLUMNS, *([_cell(each[name]) for name in self._COLUMNS] for each in self)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._COLUMNS))]
        return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in rows)

    __repr__ = __str__


def _cell(value):
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def explain():
    """Returns the version that ran for each problem so far, with the reason, as an Explanation."""
    return Explanation(row for half in library.halves() for row in rows_of(half, half.ask(explain=True)))


def rows_of(half, told):
    """Returns the rows that a compiled library reported as an Explanation."""
    on = "emulator" if half is library.EMULATOR else "cuda:{}"
    return Explanation({**row, "device": on.format(row["device"])} for row in told)


if os.environ.get("LADDER_TORCH_USE"):
    for word in os.environ["LADDER_TORCH_USE"].split(","):
        use(*word.partition("=")[::2])
