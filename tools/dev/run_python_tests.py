"""Runs tests/test_*.py; the last line printed is the count of cases as JSON."""

import json
import signal
import sys
import unittest
from pathlib import Path


def main():
    # A shell's background jobs ignore interrupts, and so would every program that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    root = Path(__file__).resolve().parents[2]
    suite = unittest.defaultTestLoader.discover(str(root / "tests"), pattern="test_*.py")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    counts = {"passed": result.testsRun - failed - skipped, "failed": failed, "skipped": skipped}
    print(json.dumps(counts))
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
