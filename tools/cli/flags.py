"""Flags of a C++ program that a verb hands on: said here too, so that help and complaints need no build."""

import argparse
import math
import re


def whole(low, high=None):
    """The type of an option that takes a whole number from `low` on."""

    def parse(text):
        if not re.fullmatch(r"-?[0-9]+", text) or int(text) < low or high is not None and int(text) > high:
            wanted = f"from {low} to {high}" if high is not None else f"of at least {low}"
            raise argparse.ArgumentTypeError(f"a whole number {wanted}, not '{text}'")
        return text

    return parse


def real(low=None, below=None, above=None):
    """The type of an option that takes a number: from `low` on or above `above`, and below `below`."""
    limits = [
        f"{word} {limit:g}"
        for word, limit in (("of at least", low), ("above", above), ("below", below))
        if limit is not None
    ]

    def parse(text):
        is_number = re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text)
        value = float(text) if is_number else math.nan
        if not (
            math.isfinite(value)
            and (low is None or value >= low)
            and (below is None or value < below)
            and (above is None or value > above)
        ):
            raise argparse.ArgumentTypeError(f"a number {' and '.join(limits)}, not '{text}'")
        return text

    return parse


def whole_list(text):
    """The type of an option that takes 1,2,3."""
    if not re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*)*", text):
        raise argparse.ArgumentTypeError(f"numbers such as 1,2,3, not '{text}'")
    return text


class Flags:
    """Those options of a parser that the program knows too. None has a default here: the program has them."""

    def __init__(self, parser):
        self._parser = parser
        self._actions = []

    def group(self, title):
        group = self._parser.add_argument_group(title)

        def add(flag, help_text, **more):
            if not more:
                more = {"action": "store_true"}
            self._actions.append(group.add_argument(flag, help=help_text.replace("%", "%%"), default=None, **more))

        return add

    def names(self):
        return {name for action in self._actions for name in action.option_strings}

    def words(self, chosen):
        """The command line that says what `chosen`, the parser's result, does."""
        words = []
        for action in self._actions:
            value = getattr(chosen, action.dest)
            if value is None:
                continue
            flag = action.option_strings[0]
            words += [flag] if value is True else [f"{flag}={value}"]
        return words
