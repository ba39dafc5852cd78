"""Generated text between markers of a README, and generated pictures whose metadata has a digest of their figures.

<!-- training:begin budget -->
<!-- training:end -->
"""

import hashlib
import io
import re

_BLOCK = re.compile(r"(<!-- training:begin (\S+) -->\n)(.*?)(<!-- training:end -->)", re.DOTALL)


def filled(text, name, body):
    """`text` with `body` between every pair of markers of that name."""
    return _BLOCK.sub(lambda match: match[1] + body + match[4] if match[2] == name else match[0], text)


def digest(title, data):
    """Digest of a picture's title and figures, to see if a picture is up to date."""
    return hashlib.sha256(repr((title, sorted(data.items()))).encode()).hexdigest()[:16]


def description(title, data):
    """Description in the metadata of a picture of these figures."""
    return f"figures {digest(title, data)}"


def is_shown(path, title, data):
    """Returns True if the picture `path` exists and shows these figures."""
    return path.exists() and description(title, data) in path.read_text(encoding="utf-8")


def pyplot():
    """matplotlib.pyplot with reproducible SVG. Only the private Python has it: equal figures give equal files."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "ladder", "svg.fonttype": "none"})
    import matplotlib.pyplot

    return matplotlib.pyplot


def svg(figure, title, data):
    """SVG text of a matplotlib figure, with title, legend and the digest of its figures."""
    figure.axes[0].set_title(title, fontsize=10)
    figure.axes[0].legend(frameon=False)
    figure.axes[0].yaxis.set_major_formatter("{x:g}")
    figure.tight_layout()
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Description": description(title, data)})
    pyplot().close(figure)
    return out.getvalue()
