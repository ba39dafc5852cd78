"""`./ladder dashboard`: writes results/index.html from the records."""

import shutil
import tempfile
from pathlib import Path

from cli import files, paths, run, say
from cli.errors import Failure, UsageError
from cli.options import Parser, folder

from . import library, model, page, sources

_PICTURE = "1400,1650"  # width and height: down to the end of what is promoted


def main(arguments):
    parser = Parser("dashboard", description="One page of every record, for a browser.")
    parser.add_argument("--out", type=Path, help="results/index.html by default")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a record cannot be shown")
    parser.add_argument("--picture", type=Path, help="also the top of the page as a PNG, by chromium")
    parser.add_argument("--root", type=folder, default=paths.ROOT, help="the tree whose results/ and dev/ are shown")
    options = parser.parse_args(arguments)
    out = options.out or options.root / "results" / "index.html"
    status = write(options.root, out, options.strict)
    if options.picture:
        picture(out, options.picture)
    return status


def write(root, out, strict=False):
    from compare.records import compare

    records, bad, profiles, live = sources.read(root)
    for entry in bad:
        say.line(f"not shown: {entry['file']}: {entry['reason']}")
    data = model.build(root, records, bad, profiles, live, compare)
    text = page.render(data, *library.source())
    try:
        files.replace(out, text)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from None
    say.line(
        f"{out}: {len(data['series'])} kernels in {len(records)} records, {len(text.encode()) / 1e3:.0f} kB"
        + (f"; {len(bad)} not shown" if bad else "")
    )
    return 1 if bad and strict else 0


def picture(out, png):
    chromium = shutil.which("chromium")
    if not chromium:
        raise Failure("--picture needs chromium: ./ladder setup --dev")
    with tempfile.TemporaryDirectory() as profile:
        flags = (
            f"--no-sandbox --disable-gpu --hide-scrollbars --window-size={_PICTURE} --virtual-time-budget=5000".split()
        )
        flags += ["--headless=new", f"--user-data-dir={profile}", f"--screenshot={png.resolve()}"]
        run.logged("drawing the page", [chromium, *flags, out.resolve().as_uri()], paths.PRIVATE / "setup.log")
