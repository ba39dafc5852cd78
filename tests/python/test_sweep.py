"""Expansion of braces in --problem."""

import pytest

from cli.errors import UsageError
from registry import sweep


@pytest.mark.parametrize(
    "text, lines",
    [
        ("res64", ["res64"]),
        ("m{1,7} n2", ["m1 n2", "m7 n2"]),
        ("n{128..1024*2}", ["n128", "n256", "n512", "n1024"]),
        ("n{100..250+64}", ["n100", "n164", "n228"]),
        ("n{1..3}", ["n1", "n2", "n3"]),
        ("n{3,1..4*2}", ["n3", "n1", "n2", "n4"]),
        ("n{0..2+1}", ["n0", "n1", "n2"]),
        ("m{1,2} {fp32, bf16}", ["m1 fp32", "m1 bf16", "m2 fp32", "m2 bf16"]),
        ("n{5,5..6}", ["n5", "n6"]),
    ],
)
def test_braces(text, lines):
    assert sweep.expand(text) == lines


@pytest.mark.parametrize(
    "text, says",
    [
        ("n{1,2", "a brace without its other one"),
        ("n1}", "a brace without its other one"),
        ("n{1,{2}}", "a brace without its other one"),
        ("n{}", r"in braces \{1,2,3\}"),
        ("n{1,,2}", "in braces"),
        ("n{1..x}", "in braces"),
        ("n{8..4}", r"\{8..4\+1\} goes nowhere"),
        ("n{1..8*1}", "goes nowhere"),
        ("n{0..8*2}", "goes nowhere"),
        ("n{0..8+0}", "goes nowhere"),
        ("m{1..100} n{1..100}", "is more than 1000 problems"),
        ("m{1..1000000000}", "is more than 1000 problems"),
    ],
)
def test_wrong_braces(text, says):
    with pytest.raises(UsageError, match=says):
        sweep.expand(text)
