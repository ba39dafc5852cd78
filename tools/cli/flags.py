"""Flags of a C++ program as argparse options, read from the JSON that its --describe printed (io/flags.h). Help and
error messages therefore need no build, and no flag, default or help text is written twice."""

import argparse
import json
import re
from pathlib import Path

from .errors import UsageError

_ROOT = Path(__file__).resolve().parents[2]
_NUMBERS = {"INT": "-?[0-9]+", "UINT": "-?[0-9]+", "FLOAT": r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"}


class Flags:
    """Options passed on to a C++ program. They have no defaults here: the program has them.

    `notes`: {flag: help text in place of the program's default}. `without`: flags that the verb handles itself. `only`:
    flags that the verb accepts; empty for all.
    """

    def __init__(self, parser, file, notes=(), without=(), only=()):
        self._actions, self._excludes, self._needs = [], [], []
        groups, notes = {}, dict(notes)
        for flag in json.loads((_ROOT / file).read_text(encoding="utf-8"))["flags"]:
            if flag["name"] in without or (only and flag["name"] not in only):
                continue
            group = groups.get(flag["group"]) or parser.add_argument_group(flag["group"])
            groups[flag["group"]] = group
            note = notes.get(flag["name"], f"default: {flag['default']}" if "default" in flag else "")
            self._add(group, flag["name"], flag["help"] + (f" ({note})" if note else ""), **_taken(flag))
            if "opposite" in flag:
                self._add(group, flag["opposite"], f"the opposite of {flag['name']}", action="store_true")
                self._excludes.append((flag["name"], flag["opposite"]))
            self._excludes += [(flag["name"], other) for other in flag.get("excludes", ())]
            self._needs += [(flag["name"], other) for other in flag.get("needs", ())]

    def check(self, chosen):
        """Throws UsageError if flags of `chosen`, the parser's result, exclude each other or lack a needed one."""
        given = {action.option_strings[0] for action in self._actions if getattr(chosen, action.dest) is not None}
        for flag, other in self._excludes:
            if {flag, other} <= given:
                raise UsageError(f"{flag} and {other} exclude each other")
        for flag, other in self._needs:
            if flag in given and other not in given:
                raise UsageError(f"{flag} needs {other}")

    def words(self, chosen):
        """The program's command-line arguments for `chosen`, the parser's result."""
        words = []
        for action in self._actions:
            value = getattr(chosen, action.dest)
            if value is not None:
                words.append(action.option_strings[0] + ("" if value is True else f"={value}"))
        return words

    def _add(self, group, name, help_text, **more):
        self._actions.append(group.add_argument(name, default=None, help=help_text.replace("%", "%%"), **more))


def _taken(flag):
    """Keyword arguments of add_argument() for the values that a flag takes."""
    if flag["type"] == "SWITCH":
        return {"action": "store_true"}
    if "words" in flag:
        return {"choices": tuple(flag["words"].split(","))}
    return {"type": _type(flag), "metavar": {"INT": "N", "UINT": "N", "FLOAT": "X"}.get(flag["type"], flag["type"])}


def _type(flag):
    """argparse type that returns the text unchanged if the program accepts it, else raises ArgumentTypeError."""
    kind, pattern = flag["type"], flag.get("pattern", _NUMBERS.get(flag["type"], ".*"))
    number = float if kind == "FLOAT" else int
    limits = _Interval(flag["limits"], number) if "limits" in flag else None
    wanted = flag["help"]
    if kind in _NUMBERS:
        wanted = ("a number" if kind == "FLOAT" else "a whole number") + (limits.spoken if limits else "")

    def parse(text):
        if not text.strip():
            raise argparse.ArgumentTypeError("it is empty")
        if not re.fullmatch(pattern, text, re.DOTALL) or limits and not limits.has(number(text)):
            raise argparse.ArgumentTypeError(f"{wanted}, not '{text}'")
        return text

    return parse


class _Interval:
    """A numeric interval, parsed from "[1, 1000]", "[0, 1)" or "(0, )"."""

    def __init__(self, text, number):
        self._has_low, self._has_high = text[0] == "[", text[-1] == "]"
        low, _, high = text[1:-1].partition(", ")
        self._low, self._high = number(low), number(high) if high else None
        self.spoken = f" {'of at least' if self._has_low else 'above'} {low}"
        if high and self._has_low and self._has_high:
            self.spoken = f" from {low} to {high}"
        elif high:
            self.spoken += f" and {'up to' if self._has_high else 'below'} {high}"

    def has(self, value):
        if value < self._low or value == self._low and not self._has_low:
            return False
        return self._high is None or value < self._high or value == self._high and self._has_high
