"""argparse with the project's manners: one line, exit 2."""

import argparse

from .errors import UsageError


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{self.prog}: {message}")
