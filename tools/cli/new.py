"""`./ladder new <layer>/<pass> <idea> --from N`: the next version's file, made from its parent."""

import re

from registry import listing

from . import files, paths, say
from .errors import UsageError
from .options import Parser

USAGE = "./ladder new <layer>/<pass> <idea> --from N, for instance ./ladder new conv3x3/fprop split_k --from 8"

_IDEA = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*$")

# An idea says what changed; these say only that something did.
_EMPTY_WORDS = set(
    "fast faster fastest new newer final best better improved optimized optimised latest test tmp version".split()
)


def main(arguments):
    directory, idea, parent_number = _parse(arguments)
    a_pass = listing.read(paths.ROOT).find(directory)
    if a_pass is None:
        there = ", ".join(each.path for each in listing.read(paths.ROOT).passes)
        raise UsageError(f"no pass '{directory}'; there are: {there or 'none'}")
    parent = a_pass.version(parent_number)
    if parent is None:
        raise UsageError(
            f"{directory} has no version {parent_number}; there are: {', '.join(map(str, a_pass.numbers)) or 'none'}"
        )
    taken = [version.label for version in a_pass.versions if version.idea == idea]
    if taken:
        raise UsageError(f"{directory} has '{idea}' already: {taken[0]}.cu")

    number = max(a_pass.numbers) + 1
    if number > 99:
        raise UsageError(f"{directory} has 99 versions; a file name holds two digits")
    child = parent.file.with_name(f"v{number:02d}_{idea}.cu")
    _write_new(child, renumber(parent.file.read_text(encoding="utf-8"), parent_number, number, idea))
    say.line(f"wrote {child.relative_to(paths.ROOT)} from {parent.file.name}; fill in its header comment, then")
    say.line(f"    ./ladder bench {directory} --version {number}")
    return 0


def renumber(text, parent_number, number, idea):
    """The parent's source as a new version: own number in every symbol, header comment to be filled in."""
    text = re.sub(rf"_v{parent_number:02d}(?![0-9A-Za-z])", f"_v{number:02d}", text)

    header = (
        f"// Idea:   {idea.replace('_', ' ')}.\n"
        f"// Parent: v{parent_number:02d}.\n"
        "// Why:    name what limits the parent, and how this lifts it.\n"
    )
    comment = re.match(r"(?://[^\n]*\n)+", text)
    needs = re.search(r"^// Needs:[^\n]*\n(?:^//   [^\n]*\n)*", comment[0], re.MULTILINE) if comment else None
    body = text[comment.end() :] if comment else "\n" + text
    return header + (needs[0] if needs else "// Needs:  nothing.\n") + body


def _parse(arguments):
    parser = Parser("new", description="The next version's file, made from its parent's: " + USAGE)
    parser.add_argument(
        "words", nargs="*", metavar="<layer>/<pass> <idea>", help="an idea in snake_case, as in split_k"
    )
    parser.add_argument("--from", dest="parent", metavar="N", help="the parent's number")
    chosen = parser.parse_args(arguments)
    if len(chosen.words) != 2 or chosen.parent is None:
        raise UsageError(USAGE)
    if not re.fullmatch(r"[vV]?\d{1,2}", chosen.parent):
        raise UsageError(f"--from '{chosen.parent}': a version's number, as in --from 8")
    directory, idea = chosen.words
    if not _IDEA.match(idea):
        raise UsageError(f"idea '{idea}': snake_case, as in split_k")
    empty = _EMPTY_WORDS.intersection(idea.split("_"))
    if empty:
        raise UsageError(f"idea '{idea}': '{empty.pop()}' says nothing of the change; name it, as in split_k")
    return directory.strip("/"), idea, int(chosen.parent.lstrip("vV"))


def _write_new(path, text):
    """Whole or not at all, and never over another file."""
    try:
        files.create(path, text)
    except FileExistsError:
        raise UsageError(f"{path} exists") from None
