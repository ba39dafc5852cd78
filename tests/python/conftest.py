import signal

import pytest

import browser

# A shell's background jobs ignore interrupts, and so would every program that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def driver():
    """The browser of all tests that need one."""
    if browser.LACKS:
        pytest.skip(browser.LACKS)
    started = browser.start()
    yield started
    started.quit()
