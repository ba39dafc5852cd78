"""Messages and progress of the CLI, all on stderr: stdout belongs to the programs that it starts."""

import re
import sys
import time

_QUIET_SECONDS = 15  # between progress lines where there is no terminal to overwrite
_LONGEST = 4000  # characters
# All control characters but tabs and line feeds; marks that change the direction of text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_shown_at = time.monotonic()
_open_line = False


def line(text):
    """Prints a message. `text` may contain untrusted text: replaces control characters and cuts long lines."""
    close()
    shown = _CONTROL.sub("?", str(text))
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    print(f"ladder: {shown}", file=sys.stderr, flush=True)


def harmless(text):
    """One line of `text`, which nobody vouches for: a space replaces characters that steer a terminal or do not show."""
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def progress(text):
    """Prints a line that the next one overwrites; without a terminal, a plain line every _QUIET_SECONDS at most."""
    global _shown_at, _open_line
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[Kladder: {text}"[:160])
        sys.stderr.flush()
        _open_line = True
    elif time.monotonic() - _shown_at > _QUIET_SECONDS:
        print(f"ladder: {text}", file=sys.stderr, flush=True)
        _shown_at = time.monotonic()


def bar(done, total):
    filled = 24 * done // max(total, 1)
    return f"[{'#' * filled}{'.' * (24 - filled)}]"


def close():
    """Erases the current progress line."""
    global _open_line
    if _open_line:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
        _open_line = False
