"""`./ladder promote-candidate`: a candidate of a search as the next version's file."""

import re

from cli import new, paths, plain_python, say
from cli.errors import Failure, UsageError
from cli.options import Parser
from registry import listing, selection

from . import log

_PLACEHOLDER = 99  # the number that candidates give to their kernels


def main(arguments):
    parser = Parser("promote-candidate", description="A candidate of a search as the next version's file.")
    parser.add_argument("target", help=selection.HELP["target"])
    parser.add_argument("node", type=int, help="its number, as in ./ladder tree")
    parser.add_argument(
        "--name", help="the version's idea in snake_case; by default the first words of the candidate's"
    )
    chosen = parser.parse_args(arguments)
    a_pass = selection.one_pass(listing.read(paths.ROOT), chosen.target)
    records = {record["node"]: record for record in log.read(a_pass.layer, a_pass.name)[0]}
    record = records.get(chosen.node)
    if record is None:
        raise UsageError(
            f"the search of {a_pass.path} has no node {chosen.node}; ./ladder tree {a_pass.path} shows them"
        )
    if record["verdict"] != "PASS":
        raise Failure(f"node {chosen.node} is no version: {record['verdict']} {record['reason'] or ''}".rstrip())
    idea = new.idea_name(chosen.name or _name(record))
    number = new.next_number(a_pass, idea)
    text = log.source_of(a_pass.layer, a_pass.name, chosen.node)
    if plain_python.is_candidate(text):
        raise Failure(f"node {chosen.node} is no version: it calls a Python function")
    file = paths.ROOT / "dev" / a_pass.path / f"v{number:02d}_{idea}.cu"
    text, asks = _as_version(text, number, record, _root(record, records), a_pass)
    new.write_new(file, text)
    say.line(f"wrote {file.relative_to(paths.ROOT)} from node {chosen.node}" + "".join(f"; {ask}" for ask in asks))
    for verb in ("check", "test", "record"):
        say.line(f"    ./ladder {verb} {a_pass.path} --version {number}")
    return 0


def _name(record):
    words = re.findall(r"[a-z0-9]+", str(record["idea"]).lower())[:4]
    if not words or not words[0][0].isalpha():
        raise UsageError(f"node {record['node']} needs a name: --name split_k")
    return "_".join(words)


def _root(record, records):
    """The number of the version that the search began with, or None."""
    while isinstance(record["parent"], int) and record["parent"] in records:
        record = records[record["parent"]]
    return int(record["parent"][1:]) if isinstance(record["parent"], str) else None


def _completed(text, idea, origin):
    """The text with an Idea where it has none and the search's Parent; the rest of the author's comment stays."""
    parent = f"// Parent: {origin}.\n"
    comment = re.match(r"(?://[^\n]*\n)*", text)[0]
    rest = text[len(comment) :]
    if "idea" not in listing.header(comment):
        comment = new.idea_lines(idea) + comment
    for field, made in (("Parent", parent), ("Idea", r"\g<0>" + parent)):
        lines = rf"^// *{field}:[^\n]*\n(?://  +[^\n]*\n)*"
        comment, found = re.subn(lines, made, comment, count=1, flags=re.MULTILINE | re.IGNORECASE)
        if found:
            break
    return comment + rest


def _as_version(text, number, record, root, a_pass):
    """The source with its number in every symbol and a header comment, and what its author has yet to do."""
    for old in filter(None, (_PLACEHOLDER, root)):
        text = new.with_number(text, old, number)
    header, parent = listing.header(text), a_pass.version(root) if root else None
    copied = parent and header.get("idea") == parent.header.get("idea")
    asks = []
    origin = f"v{root:02d}" if root else "none"
    if copied or not text.startswith("//"):
        text = new.with_header(text, str(record["idea"]), origin)
    elif not header.get("idea") or "parent" not in header or header["parent"] != root:
        text = _completed(text, str(record["idea"]), origin)
    if copied or not header.get("why"):
        asks.append("fill in its header comment (Why)")
    if f"_v{number:02d}" not in text:
        asks.append(f"name its kernel {a_pass.layer}_{a_pass.name}_v{number:02d}_kernel")
    return text, asks
