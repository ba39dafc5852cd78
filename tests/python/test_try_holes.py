"""`./ladder try` on the emulator: holes by which a candidate could pass, take the machine's memory or write to a terminal."""

import test_try
from test_try import source, tried

place, log = test_try.place, test_try.log  # fixtures

ESCAPES = "\033[2J\033]0;owned\a\u202e\u009b1m"


def printed(text):
    return f'#error "{text}"\n'


def test_a_compile_error_does_not_steer_a_terminal(place):
    reason = tried(place, printed(ESCAPES))["reason"]
    assert "owned" in reason
    assert reason.isprintable()


def test_words_of_a_kernel_do_not_steer_a_terminal(place):
    thrown = source({"honest": f'throw std::runtime_error("thrown {ESCAPES}");'})
    reason = tried(place, thrown)["reason"]
    assert "thrown" in reason
    assert reason.isprintable()
