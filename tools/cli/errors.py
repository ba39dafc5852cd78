"""The two ways to end badly, as in core/error.h: the caller's mistake (exit 2) and everything else (exit 1)."""


class UsageError(Exception):
    """One line: what was wrong, and what would be right."""


class Failure(Exception):
    """One line, or several where the last lines of a log say more."""
