"""What each version changed, in the words of its file's header comment: Idea, Parent, Why it should help, Needs."""

import re
from pathlib import Path

_FILE = re.compile(r"v(\d\d+)_(\w+)\.cu$")
_FIELD = re.compile(r"// (Idea|Parent|Why|Needs|Spills):\s*(.*)")


def of_ladder(root, path):
    """{version: {"idea": ..., "parent": ..., ...}} of dev/<path>; a version whose file is gone has no entry."""
    found = {}
    for file in sorted((Path(root) / "dev" / path).glob("v*.cu")):
        name = _FILE.search(file.name)
        if name:
            found[int(name[1])] = header(file.read_text(encoding="utf-8"))
    return found


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
