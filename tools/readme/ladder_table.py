"""The ladder tables and pictures of the READMEs, and of the times.md beside them, from the newest records of results/.

    tools/readme/ladder_table.py            rewrites what stands between the markers, and the pictures
    tools/readme/ladder_table.py --check    changes nothing; exits 1 if a README or picture is not that of the newest records

A marker names a pass and what to show of it:

    <!-- ladder:begin conv3x3/fprop summary -->     a line a version and dtype, over the U-Net's shapes
    <!-- ladder:begin conv3x3/fprop shapes -->      a line a shape, a column a version, for each dtype
    <!-- ladder:begin conv3x3/fprop picture -->     results/<device>/ladder_<layer>_<pass>.svg
    <!-- ladder:end -->

What else README.md shows is made by front_page.py; what train/README.md shows by train_budget.py and loss_curves.py. This
runs them all.

A record that cannot be read is one line naming the file, exit 1, and nothing is rewritten.
"""

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cli import files, options
from readme import front_page, ladder_columns, ladder_groups, ladder_picture, loss_curves, train_budget
from readme.generated import is_shown
from records.record_files import BadRecord, read

_BLOCK = re.compile(r"(<!-- ladder:begin (\S+)/(\S+) (\S+) -->\n)(.*?)(<!-- ladder:end -->)", re.DOTALL)
_PAGES = ("README.md", "times.md")
_NOTHING = "*No record yet: `./ladder record {layer}/{pass_name}` on a GPU makes one.*\n"


def main(arguments):
    chosen = parse(arguments)
    try:
        rows = read(chosen.root / "results")
        texts, pictures = render(chosen.root, rows)
    except BadRecord as error:
        print(f"ladder table: {error}", file=sys.stderr)
        return 1
    status = check(chosen.root, texts, pictures) if chosen.check else write(texts, pictures)
    of_training = ["--root", str(chosen.root), *(["--check"] if chosen.check else [])]
    return max(status, train_budget.main(of_training), loss_curves.main(of_training))


def parse(arguments):
    parser = options.Parser("table", description="The tables and pictures of the READMEs, from the newest records.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if one is not that of the newest records"
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the tree to work on")
    return parser.parse_args(arguments)


def render(root, rows):
    """({page: its new text}, {picture: the series it shows})."""
    texts, pictures = {}, {}
    pages = sorted(page for name in _PAGES for page in root.glob(f"dev/**/{name}"))
    for page in filter(Path.exists, [root / "README.md", *pages]):

        def fill(match, page=page):
            begin, layer, pass_name, kind, _, end = match.groups()
            if kind not in _KINDS:
                raise BadRecord(f"{page}: marker '{kind}': one of {', '.join(_KINDS)}")
            body = ""
            of_pass = [row for row in rows if row.path == f"{layer}/{pass_name}"]
            for device in sorted({row.device for row in of_pass}):
                groups = ladder_groups.groups(root, layer, [row for row in of_pass if row.device == device])
                shown = [row for group in groups for row in group.rows]
                if not shown:
                    continue
                picture = root / "results" / device / f"ladder_{layer}_{pass_name}.svg"
                pictures[picture] = (f"{layer}/{pass_name} on {shown[0].device_name}", ladder_picture.series(groups))
                body += _KINDS[kind](groups, shown, os.path.relpath(picture, page.parent))
            return begin + (body or _NOTHING.format(layer=layer, pass_name=pass_name)) + end

        texts[page] = _BLOCK.sub(fill, page.read_text(encoding="utf-8"))
    if (root / "README.md") in texts:
        names = {row.device: row.device_name for row in rows}
        texts[root / "README.md"] = front_page.filled(root, texts[root / "README.md"], names)
    return texts, pictures


def _summary(groups, rows, _):
    return ladder_columns.summary(groups, rows)


def _shape_table(groups, rows, _):
    return ladder_columns.shape_table(groups, rows)


def _picture_link(groups, rows, path):
    if not ladder_picture.series(groups):
        return "*No baseline was measured, so there is no picture.*\n\n"
    return f"![{rows[0].path} on {rows[0].device_name}: time of each version against the baseline]({path})\n\n"


_KINDS = {"summary": _summary, "shapes": _shape_table, "picture": _picture_link}


def write(texts, pictures):
    for path, (title, data) in pictures.items():
        if data and not is_shown(path, title, data):
            files.replace(path, ladder_picture.draw(title, data))
    for path, text in texts.items():
        if text != _text(path):
            files.replace(path, text)
    return 0


def check(root, texts, pictures):
    stale = [path for path, text in texts.items() if text != _text(path)]
    stale += [path for path, (title, data) in pictures.items() if data and not is_shown(path, title, data)]
    for path in stale:
        print(
            f"ladder table: {path.relative_to(root)} is not that of the newest records; run ./ladder table",
            file=sys.stderr,
        )
    return 1 if stale else 0


def _text(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(options.run(main))
