"""Braces in the text of --problem: 'm256 n{128..8192*2} {fp32,bf16}' is fourteen problems.

{1,2,3}         these
{128..8192*2}   128, 256, 512, ... up to 8192
{64..512+64}    64, 128, 192, ... up to 512; {1..4} counts by ones
"""

import itertools
import math
import re

from cli.errors import UsageError

_MOST = 1000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:([*+])(\d+))?")


def expand(text):
    """The texts that `text` stands for, the last braces changing fastest; itself alone where it has none."""
    parts = _BRACES.split(text)
    if any(set("{}") & set(part) for part in parts[::2]):
        raise UsageError(f"--problem '{text}': a brace without its other one")
    choices = [_values(inside, text) for inside in parts[1::2]]
    count = math.prod(map(len, choices))
    if count > _MOST:
        raise UsageError(f"--problem '{text}' is more than {_MOST} problems")
    return [
        parts[0] + "".join(value + after for value, after in zip(chosen, parts[2::2]))
        for chosen in itertools.product(*choices)
    ]


def _values(inside, text):
    found = []
    for word in inside.split(","):
        limits = _RANGE.fullmatch(word.strip())
        if limits:
            found += _range(int(limits[1]), int(limits[2]), limits[3] or "+", int(limits[4] or 1), text)
        elif ".." in word or not word.strip():
            raise UsageError(f"--problem '{text}': in braces {{1,2,3}}, {{128..8192*2}} or {{64..512+64}}")
        else:
            found.append(word.strip())
    return list(dict.fromkeys(found))


def _range(low, high, sign, step, text):
    if low > high or (low == 0 or step < 2 if sign == "*" else step < 1):
        raise UsageError(f"--problem '{text}': {{{low}..{high}{sign}{step}}} goes nowhere")
    found = [low]
    while len(found) <= _MOST:
        following = found[-1] * step if sign == "*" else found[-1] + step
        if following > high:
            break
        found.append(following)
    return [str(value) for value in found]
