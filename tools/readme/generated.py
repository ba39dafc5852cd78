"""What tools make of records: text between the markers of a README, and pictures that say which figures they show.

<!-- training:begin budget -->
<!-- training:end -->
"""

import hashlib
import io
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


def pyplot():
    """matplotlib, which only the private Python has, so that the same figures give the same file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "ladder", "svg.fonttype": "none"})
    import matplotlib.pyplot

    return matplotlib.pyplot


def svg(figure, title, data):
    """A picture of these figures as text."""
    figure.axes[0].set_title(title, fontsize=10)
    figure.axes[0].legend(frameon=False)
    figure.axes[0].yaxis.set_major_formatter("{x:g}")
    figure.tight_layout()
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Description": description(title, data)})
    pyplot().close(figure)
    return out.getvalue()
