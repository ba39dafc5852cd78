"""plotly.js, the plotting library inside the page.

PyPI carries it in the package plotly, of which one file and its license are taken; its smaller bundles are not on PyPI.
Chart.js is a seventh of its size, but marks, error bars and log axes were then five times the JavaScript of our own. The
checksum decides what is bundled.
"""

import hashlib
import zipfile

from cli import lock, paths, say, wheels
from cli.errors import Failure

SHA256 = "3b6e15d45dbb7fca5bd2094291e961ddc5472cd887009e6009a56dab668d721f"
_VERSION = wheels.PLOTLY.partition("==")[2]
_INSIDE = {".js": "plotly/package_data/plotly.min.js", ".license": f"plotly-{_VERSION}.dist-info/licenses/LICENSE.txt"}
_FOLDER = paths.PRIVATE / "plot"
_LOG = paths.PRIVATE / "setup.log"


def source():
    """(the library's text, its license). Throws Failure."""
    files = [_FOLDER / f"plotly-{_VERSION}{ending}" for ending in _INSIDE]
    if not all(file.exists() for file in files) or not _is_pinned(files[0].read_bytes()):
        try:
            with lock.held(paths.PRIVATE / "setup.lock"):
                _fetch()
        except Failure as failure:
            raise Failure(f"the plotting library is not in {files[0]}, and could not be fetched: {failure}") from None
    return tuple(file.read_text(encoding="utf-8") for file in files)


def _fetch():
    wheel = wheels.download(wheels.PLOTLY, wheels.PLOTLY, _FOLDER, _LOG)
    with zipfile.ZipFile(wheel) as archive:
        found = {ending: archive.read(name) for ending, name in _INSIDE.items()}
    wheel.unlink()
    if not _is_pinned(found[".js"]):
        raise Failure(f"{wheels.PLOTLY} does not hold the plotly.min.js that is pinned")
    for ending, raw in found.items():
        (_FOLDER / f"plotly-{_VERSION}{ending}").write_bytes(raw)


def _is_pinned(raw):
    if hashlib.sha256(raw).hexdigest() == SHA256:
        return True
    say.line("a copy of the plotting library has another checksum than the pinned one; it is not used")
    return False
