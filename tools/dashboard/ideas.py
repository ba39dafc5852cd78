"""What each version changed, in the words of its file's header comment: Idea, Parent, Why it should help, Needs; and
the names that shapes.txt gives the problems."""

import re
from pathlib import Path

import ladder_records

_PATH = re.compile(r"\w+/\w+")  # a record's word for a folder is not taken on trust
_FILE = re.compile(r"v(\d\d+)_(\w+)\.cu$")
_FIELD = re.compile(r"// (Idea|Parent|Why|Needs|Spills):\s*(.*)")


def of_ladder(root, path):
    """{version: {"idea": ..., "parent": ..., ...}} of dev/<path>; a version whose file is gone has no entry."""
    found = {}
    if not _PATH.fullmatch(path):
        return found
    for file in sorted((Path(root) / "dev" / path).glob("v*.cu")):
        name = _FILE.search(file.name)
        if name:
            found[int(name[1])] = header(file.read_text(encoding="utf-8"))
    return found


def shapes(root, layer):
    """{set: {problem without its dtype: name}} of the layer's shapes.txt."""
    file = Path(root) / "dev" / layer / "shapes.txt"
    if not re.fullmatch(r"\w+", layer) or not file.exists():
        return {}
    lines = (line.split("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    sets = [line.strip("[]") for line in lines if line.startswith("[")]
    return {name: ladder_records.problems_of_set(root, layer, name) for name in sets}


def header(text):
    """The fields of the comment that a version's file begins with; continued lines are joined."""
    fields, current = {}, None
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        begins = _FIELD.match(line)
        if begins:
            current = begins[1].lower()
            fields[current] = begins[2].strip()
        elif current:
            fields[current] += " " + line[2:].strip()
    if "parent" in fields:
        number = re.search(r"v(\d+)", fields["parent"])
        fields["parent"] = int(number[1]) if number else None
    return fields
