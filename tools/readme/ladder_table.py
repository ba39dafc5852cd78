"""The ladder tables and pictures of the READMEs, and of the times.md beside them, from the newest records of results/.

    tools/readme/ladder_table.py            rewrites what stands between the markers, and the pictures
    tools/readme/ladder_table.py --check    changes nothing; exits 1 if a README or picture is not that of the newest records

A marker names a pass, or * for all of a layer, and what to show of it:

    <!-- ladder:begin conv3x3/fprop summary -->     a line a version and dtype, over the U-Net's shapes
    <!-- ladder:begin gemm/* summary -->            the same of every pass, in one table
    <!-- ladder:begin conv3x3/fprop shapes -->      a line a shape, a column a version, for each dtype
    <!-- ladder:begin conv3x3/fprop picture -->     results/<device>/ladder_<layer>_<pass>.svg
    <!-- ladder:end -->

What else README.md shows is made by front_page.py, what train/README.md shows by train_budget.py and loss_curves.py,
what python/README.md shows by torch_tables.py.

A record that cannot be read is one line naming the file, exit 1, and nothing is rewritten.
"""

import os
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cli import digests, files, options
from readme import (
    front_page,
    ladder_columns,
    ladder_groups,
    ladder_picture,
    loss_curves,
    rank_table,
    torch_tables,
    train_budget,
)
from readme.generated import is_shown
from records.record_files import BadRecord, read

_BLOCK = re.compile(r"(<!-- ladder:begin (\S+)/(\S+) (\S+) -->\n)(.*?)(<!-- ladder:end -->)", re.DOTALL)
_PAGES = ("README.md", "times.md")
_NOTHING = "*No record yet: `./ladder record {path}` on a GPU makes one.*\n"


def main(arguments):
    chosen = parse(arguments)
    try:
        texts, pictures = _of_training(chosen.root)
        for made, more in zip((texts, pictures), render(chosen.root, read(chosen.root / "results"))):
            made.update(more)
    except BadRecord as error:
        print(f"ladder table: {error}", file=sys.stderr)
        return 1
    return check(chosen.root, texts, pictures) if chosen.check else write(texts, pictures)


def parse(arguments):
    parser = options.Parser("table", description="The tables and pictures of the READMEs, from the newest records.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if one is not that of the newest records"
    )
    parser.add_argument(
        "--root", type=options.folder, default=Path(__file__).resolve().parents[2], help="the tree to work on"
    )
    return parser.parse_args(arguments)


def render(root, rows):
    """({page: its new text}, {picture: the series it shows})."""
    texts, pictures = {}, {}
    there = _not_retired(root, rows)
    pages = sorted(page for name in _PAGES for page in root.glob(f"dev/**/{name}"))
    for page in filter(Path.exists, [root / "README.md", *pages]):

        def fill(match, page=page):
            begin, layer, pass_name, kind, _, end = match.groups()
            if kind not in _KINDS:
                raise BadRecord(f"{page}: marker '{kind}': one of {', '.join(_KINDS)}")
            body = ""
            of_marker = [row for row in there if fnmatchcase(row.path, f"{layer}/{pass_name}")]
            if pass_name == "*":  # passes that the tree has no longer still have records
                of_marker = [row for row in of_marker if (root / "dev" / row.path).is_dir()]
            for device in sorted({row.record.device for row in of_marker}):
                groups = ladder_groups.groups(root, layer, [row for row in of_marker if row.record.device == device])
                if groups:
                    folder = root / "results" / device
                    shown = ladder_picture.pictures(groups)
                    pictures.update({folder / name: picture for name, picture in shown.items()})
                    body += _KINDS[kind](groups, os.path.relpath(folder, page.parent))
            if kind == "picture" and of_marker and not body:
                body = "*No baseline was measured, so there is no picture.*\n\n"
            return begin + (body or _NOTHING.format(path=f"{layer}/{pass_name}".removesuffix("/*"))) + end

        texts[page] = _BLOCK.sub(fill, page.read_text(encoding="utf-8"))
    if (root / "README.md") in texts:
        text = front_page.filled(root, texts[root / "README.md"], rows)
        texts[root / "README.md"] = torch_tables.filled(root, text)
    page = root / "python" / "README.md"
    if page.exists():
        texts[page] = torch_tables.filled(root, page.read_text(encoding="utf-8"))
    return texts, pictures


def _not_retired(root, rows):
    """The rows without those of versions that the tree has no longer, though it has others of their pass."""
    versions = {}
    for version in digests.versions(root):
        path, file = version.name.rsplit("/", 1)
        versions.setdefault(path, set()).add(int(file[1:3]))
    return [row for row in rows if row.version in versions.get(row.path, {row.version})]


def _of_training(root):
    """The same of train/README.md and docs/several_gpus.md."""
    texts, pictures = {}, {}
    page = root / "train" / "README.md"
    if page.exists():
        texts[page], pictures = loss_curves.filled(root, train_budget.filled(root, page.read_text(encoding="utf-8")))
    page = root / rank_table.PAGE
    if page.exists():
        texts[page] = rank_table.filled(root, page.read_text(encoding="utf-8"))
    return texts, pictures


def _picture_links(groups, folder):
    return "".join(
        f"![{title}: time of each version against the baseline]({folder}/{name})\n\n"
        for name, (title, data) in ladder_picture.pictures(groups).items()
        if data
    )


_KINDS = {
    "summary": lambda groups, _: ladder_columns.summary(groups),
    "shapes": lambda groups, _: ladder_columns.shape_table(groups),
    "picture": _picture_links,
}


def write(texts, pictures):
    for path, (title, data) in pictures.items():
        if data and not is_shown(path, title, data):
            draw = loss_curves.draw if path.name == loss_curves.PICTURE.name else ladder_picture.draw
            files.replace(path, draw(title, data))
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
