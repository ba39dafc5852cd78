"""What tools make of records: text between the markers of a README, and pictures that say which figures they show.

<!-- training:begin budget -->
<!-- training:end -->
"""

import hashlib
import re

_BLOCK = re.compile(r"(<!-- training:begin (\S+) -->\n)(.*?)(<!-- training:end -->)", re.DOTALL)


def filled(text, name, body):
    """`text` with `body` between every pair of markers with that name."""
    return _BLOCK.sub(lambda match: match[1] + body + match[4] if match[2] == name else match[0], text)


def digest(title, data):
    """Tells whether a picture shows these figures."""
    return hashlib.sha256(repr((title, sorted(data.items()))).encode()).hexdigest()[:16]


def description(title, data):
    """What a picture of these figures has in its metadata."""
    return f"figures {digest(title, data)}"


def is_shown(path, title, data):
    """Whether the picture `path` is there and of these figures."""
    return path.exists() and description(title, data) in path.read_text(encoding="utf-8")
