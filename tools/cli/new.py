"""`./ladder new <layer>/<pass> <idea> --from N`: the next version's file, made from its parent."""

import re

from . import files, paths, say
from .errors import UsageError

USAGE = "./ladder new <layer>/<pass> <idea> --from N, for instance ./ladder new conv3x3/fprop split_k --from 8"

_FILE = re.compile(r"v(\d\d)_([a-z0-9_]+)\.cu$")
_IDEA = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*$")

# An idea says what changed; these say only that something did.
_EMPTY_WORDS = {"fast", "faster", "fastest", "new", "newer", "final", "best", "better", "improved", "optimized",
                "optimised", "latest", "test", "tmp", "version"}


def main(arguments):
    directory, idea, parent_number = _parse(arguments)
    folder = paths.DEV / directory
    if directory.count("/") != 1 or not folder.is_dir():
        raise UsageError(f"no pass '{directory}'; there are: {', '.join(passes()) or 'none'}")
    versions = _versions(folder)
    if parent_number not in versions:
        have = ", ".join(str(number) for number in sorted(versions)) or "none"
        raise UsageError(f"{directory} has no version {parent_number}; there are: {have}")
    taken = [number for number, path in versions.items() if _FILE.match(path.name)[2] == idea]
    if taken:
        raise UsageError(f"{directory} has '{idea}' already: v{taken[0]:02d}_{idea}.cu")

    number = max(versions) + 1
    if number > 99:
        raise UsageError(f"{directory} has 99 versions; a file name holds two digits")
    parent = versions[parent_number]
    child = folder / f"v{number:02d}_{idea}.cu"
    _write_new(child, renumber(parent.read_text(encoding="utf-8"), parent_number, number, idea))
    say.line(f"wrote {child.relative_to(paths.ROOT)} from {parent.name}; fill in its header comment, then")
    say.line(f"    ./ladder bench {directory.split('/')[0]} --pass {directory.split('/')[1]} --version {number}")
    return 0


def passes():
    """Passes that have versions, as <layer>/<pass>."""
    return sorted({str(path.parent.relative_to(paths.DEV)) for path in paths.DEV.glob("*/*/v*.cu")})


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
    words, parent = [], None
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word in ("-h", "--help"):
            raise UsageError(USAGE)
        if word == "--from" or word.startswith("--from="):
            value = word[len("--from=") :] if "=" in word else (arguments[at + 1] if at + 1 < len(arguments) else "")
            at += 1 if "=" in word else 2
            if not re.fullmatch(r"[vV]?\d{1,2}", value):
                raise UsageError(f"--from '{value}': a version's number, as in --from 8")
            parent = int(value.lstrip("vV"))
            continue
        words.append(word)
        at += 1
    if len(words) != 2 or parent is None:
        raise UsageError(USAGE)
    directory, idea = words
    if not _IDEA.match(idea):
        raise UsageError(f"idea '{idea}': snake_case, as in split_k")
    empty = _EMPTY_WORDS.intersection(idea.split("_"))
    if empty:
        raise UsageError(f"idea '{idea}': '{empty.pop()}' says nothing of the change; name it, as in split_k")
    return directory.strip("/"), idea, parent


def _versions(folder):
    found = {}
    for path in folder.glob("v*.cu"):
        match = _FILE.match(path.name)
        if match:
            found[int(match[1])] = path
    return found


def _write_new(path, text):
    """Whole or not at all, and never over another file."""
    try:
        files.create(path, text)
    except FileExistsError:
        raise UsageError(f"{path} exists") from None
