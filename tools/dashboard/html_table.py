"""Tables and figures as HTML. Every word of a record goes through escape()."""

import html
import math
import re
from urllib.parse import urlencode


class Html(str):
    """Text that is markup already."""


def escape(value):
    return value if isinstance(value, Html) else html.escape(str(value), quote=True)


def table(heads, rows, attributes=""):
    """A heading that begins with # is of figures, to the right. A row is its cells, or (cells, attributes)."""
    figures = [head.startswith("#") for head in heads]
    columns = "".join(
        f'<th scope="col"{" class=n" * right}>{escape(head.lstrip("#"))}</th>' for head, right in zip(heads, figures)
    )
    lines = []
    for row in rows:
        cells, more = row if isinstance(row, tuple) else (row, "")
        first, *others = (escape("" if cell is None else cell) for cell in cells)
        tds = "".join(f"<td{' class=n' * right}>{cell}</td>" for cell, right in zip(others, figures[1:]))
        lines.append(f"<tr{more}><th scope=row>{first}</th>{tds}</tr>")
    return f"<table {attributes}><thead><tr>{columns}</tr></thead><tbody>\n" + "\n".join(lines) + "\n</tbody></table>"


def figure(value):
    """Two or three digits that say something, nothing where there is nothing."""
    if value is None:
        return ""
    if 0 < value < 0.1:
        return f"{value:.2g}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def micros(seconds):
    return figure(seconds and seconds * 1e6)


def size(count):
    return (
        f"{count} B" if count < 1024 else f"{figure(count / 1024)} KiB" if count < 1e6 else f"{figure(count / 1e6)} MB"
    )


def geomean(values):
    logs = [math.log(value) for value in values if value and value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def filtered(entry):
    """Attributes that the page's filters look at."""
    return "".join(f' data-{key}="{escape(entry[key])}"' for key in ("device", "path", "dtype"))


def path_of(path):
    """A line may end after a slash and an underscore."""
    return Html(re.sub("([/_])", r"\1<wbr>", escape(path)))


def name_of(entry):
    return f"{entry['path']} v{entry['version']:02d}"


def kernel_link(entry):
    kernel = f"{entry['path']}|{entry['version']}|{entry['problem']}"
    return "#" + urlencode({"kernel": kernel, "device": entry["device"], "at": "kernel"})
