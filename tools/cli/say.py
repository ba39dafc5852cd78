"""What the CLI prints, all of it on stderr: stdout belongs to the programs it starts."""

import re
import sys
import time

_QUIET_SECONDS = 15  # between progress lines where there is no terminal to overwrite
_LONGEST = 4000  # characters
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and line feeds

_shown_at = time.monotonic()
_open_line = False


def line(text):
    """Somebody's words may be part of `text`: no control character of them reaches the terminal, and no endless line."""
    close()
    shown = _CONTROL.sub("?", str(text))
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    print(f"ladder: {shown}", file=sys.stderr, flush=True)


def progress(text):
    """A line that the next one replaces; without a terminal only now and then."""
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
    """Removes a progress line that stands."""
    global _open_line
    if _open_line:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
        _open_line = False
