"""Chart.js, the plotting library inside the page.

Chosen because it draws everything the page shows (bars, lines with bands, steps, scatter on two logarithmic axes, with
tooltips) in 200 kB without dependencies; is MIT; and has been kept for twelve years by many people. uPlot is a quarter
of that but leaves bars, scatter and tooltips to the page; Plotly and ECharts would take half of the page's 2 MB or all.

PyPI carries it inside a package that uses it. Whichever way it comes, the checksum decides: what is bundled is the file
named here or nothing.
"""

import hashlib
import zipfile

from cli import lock, paths, say, wheels
from cli.errors import Failure

VERSION = "4.4.0"
SHA256 = "db65ba70511147e08494c38a46030c89cb9e3153f455fec50440581fc67cb429"
LICENSE = f"""\
Chart.js {VERSION} (https://www.chartjs.org), The MIT License (MIT), Copyright (c) 2014-2024 Chart.js Contributors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

_PIN = "django-unfold==0.91.0"
_INSIDE = "unfold/static/unfold/js/chart/chart.js"
_KEPT = paths.PRIVATE / "plot" / f"chart-{VERSION}.js"
_LOG = paths.PRIVATE / "setup.log"


def source():
    """The library's text. Throws Failure."""
    if (text := _kept()) is not None:
        return text
    try:
        with lock.held(paths.PRIVATE / "setup.lock"):
            _fetch()
    except Failure as failure:
        raise Failure(f"the plotting library is not in {_KEPT}, and could not be fetched: {failure}") from None
    return _kept()


def _kept():
    return _checked(_KEPT.read_bytes()) if _KEPT.exists() else None


def _fetch():
    wheel = wheels.download(f"Chart.js {VERSION}", _PIN, _KEPT.parent, _LOG)
    with zipfile.ZipFile(wheel) as archive:
        text = _checked(archive.read(_INSIDE))
    wheel.unlink()
    if text is None:
        raise Failure(f"{_PIN} does not hold the Chart.js {VERSION} that is pinned")
    _KEPT.write_text(text, encoding="utf-8")


def _checked(raw):
    """The text, or None where it is not the pinned file."""
    if hashlib.sha256(raw).hexdigest() == SHA256:
        return raw.decode()
    say.line("a copy of the plotting library has another checksum than the pinned one; it is not used")
    return None
