"""`./ladder tree`: shows the candidates of a search as a tree, and the path to the fastest."""

import math
import os
import shutil
import string
import sys
import textwrap
from dataclasses import dataclass, field

from cli import columns, json_file, paths, say
from cli.errors import Failure
from cli.options import Parser
from records import record_files
from registry import listing, selection

from . import log


@dataclass(eq=False)
class Node:
    """Node of the tree: a candidate, or a root without a record, which stands for a version or for no parent."""

    name: str
    record: "dict | None" = None
    parent: "Node | None" = None
    children: list = field(default_factory=list)
    best: bool = False  # the fastest of its group, or an ancestor of it
    here_us: float = math.nan  # newest recorded time of the repository's version of a published candidate

    @property
    def us(self):
        """Microseconds: cold, like the baseline's, else warm, else the published time; nan without any."""
        ours = _number(self.record["cold_us"]) or _number(self.record["us"])
        return ours or 1e3 * _number((self.record.get("published") or {}).get("ms")) or math.nan

    @property
    def to_baseline(self):
        return _number(self.record["ratio"]) or _number((self.record.get("published") or {}).get("share")) or math.nan

    @property
    def to_parent(self):
        """The parent's time over this node's; nan unless both are of the same group."""
        alike = self.parent.record and self.parent.group == self.group
        return self.parent.us / self.us if alike else math.nan

    @property
    def group(self):
        """(problem, dtype, device): times are comparable within a group."""
        return tuple(" ".join(str(self.record[name] or "").split()) for name in ("problem", "dtype", "device"))

    @property
    def words(self):
        """The idea, and the reason if it did not pass, without control characters."""
        here = self.record.get("version")
        said = f"{f'{here}: ' if here else ''}{self.record['idea'] or ''}"
        if self.record["verdict"] != "PASS" and self.record["reason"]:
            said += f": {self.record['reason']}"
        return say.harmless(said)


def grow(records):
    """Builds the tree from the log's records; marks each group's best path. Returns the nodes by number."""
    roots, nodes = {}, {}
    for record in sorted(records, key=lambda record: record["node"]):
        above = record["parent"]
        named = f"node {above}, which cannot be read" if isinstance(above, int) else above or "from nothing"
        parent = nodes.get(above) or roots.setdefault(above, Node(named))
        nodes[record["node"]] = node = Node(str(record["node"]), record, parent)
        parent.children.append(node)
    timed = [node for node in nodes.values() if node.record["verdict"] == "PASS" and node.us > 0]
    for node in {node.group: node for node in sorted(timed, key=lambda node: -node.us)}.values():
        while node:
            node.best, node = True, node.parent
    return list(nodes.values())


def main(arguments):
    parser = Parser("tree", description="The candidates of a search, and the way to the fastest.")
    parser.add_argument("target", help=selection.HELP["target"])
    parser.add_argument("--best", action="store_true", help="only the way to the fastest")
    parser.add_argument("--json", action="store_true", help="for programs: the log's fields and what is made of them")
    chosen = parser.parse_args(arguments)
    layer, _, pass_name = chosen.target.strip("/").partition("/")
    if not log.path(layer, pass_name).exists():  # a pass without versions may have a search
        layer, pass_name = selection.one_pass(listing.read(paths.ROOT), chosen.target).path.split("/")
    records, damaged = log.read(layer, pass_name)
    for line in damaged:
        say.line(line)
    if not records:
        begin = f"./ladder try {layer}/{pass_name} candidate.cu --idea '...' --parent v01"
        raise Failure(f"{layer}/{pass_name} has no search yet; begin one: {begin}")
    nodes = grow(records)
    _add_recorded(f"{layer}/{pass_name}", nodes)
    shown = [node for node in nodes if node.best] if chosen.best else nodes
    if chosen.json:
        print(json_file.line({"nodes": [_json(node) for node in shown], "damaged": damaged}))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        text = "\n".join(lines(shown, shutil.get_terminal_size((100, 40)).columns, colour))
        print(text.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))
    return 0


def lines(nodes, width, colour=False):
    """Lines of the tree. One child, on the best path if any, continues below its parent; the others branch off."""
    groups = list(dict.fromkeys(node.group for node in nodes if node.us > 0))
    letters = dict(zip(groups, string.ascii_lowercase)) if len(groups) > 1 else {}
    drawn = list(_drawn(nodes))
    rows = [[*"node verdict us here parent baseline".split(), "idea", ""]]
    for lead, node in drawn:
        if node.record:
            name = f"{lead}{'●' if node.best else '○'} {node.name}{letters.get(node.group, '')}"
            figures = [figure(node.us), figure(node.here_us)]
            figures += [figure(node.to_parent, "× "), figure(node.to_baseline, "× ")]
            style = "1;32" if node.best else "2" if node.record["verdict"] != "PASS" else ""
            rows.append([name, node.record["verdict"], *figures, node.words, style])
    kept = [at for at in range(6) if any(row[at] for row in rows[1:])]
    table = columns.aligned([[row[at] for at in kept] for row in rows], [kept.index(at) for at in kept if at > 1])
    indent = max(map(len, table)) + 2
    texts = [_cut(f"{text:<{indent}}{row[6]}".rstrip(), width) for text, row in zip(table, rows)]
    texts = iter([f"\033[{row[7]}m{text}\033[0m" if colour and row[7] else text for text, row in zip(texts, rows)])
    heads = [" ".join(filter(None, (letters.get(group), words_of(group)))) for group in groups]
    found = [line for head in heads for line in textwrap.wrap(head, width)] + [next(texts)]
    return found + [next(texts) if node.record else node.name for _, node in drawn]


def words_of(group):
    problem, dtype, device = group
    return ", ".join(filter(None, (problem, "" if dtype in problem.split() else dtype, device)))


def figure(value, sign=""):
    """Text of a value with three digits; "" for nan or 0."""
    return f"{sign}{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else ""


def _drawn(nodes):
    """Yields (line-drawing prefix, node), from top to bottom."""
    shown = set(nodes)
    stack = [("", "", root) for root in dict.fromkeys(node.parent for node in nodes if not node.parent.record)][::-1]
    while stack:
        lead, below, node = stack.pop()
        yield lead, node
        children = sorted((child for child in node.children if child in shown), key=lambda child: child.best)
        stack += [(below, below, child) for child in children[-1:]]
        stack += [(below + "├ ", below + "│ ", child) for child in reversed(children[:-1])]


def _add_recorded(path, nodes):
    """Sets here_us of nodes that name a version of the repository, from its newest record."""
    named = [node for node in nodes if node.record.get("version")]
    results = record_files.read(paths.ROOT / "results") if named else []
    for result in sorted(results, key=lambda result: result.record.created):
        for node in named:
            same = (result.path, f"v{result.version:02d}") == (path, node.record["version"])
            if same and result.problem == node.record["problem"] and result.status == "PASS" and result.times:
                node.here_us = 1e6 * result.cold


def _json(node):
    made = {"us_shown": node.us, "to_parent": node.to_parent, "to_baseline": node.to_baseline, "here_us": node.here_us}
    made = {name: value if value > 0 else None for name, value in made.items()}
    return {**node.record, **made, "best_path": node.best}


def _number(value):
    """`value` if it is a positive finite number, else 0."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf else 0


def _cut(text, width):
    return text if len(text) <= width else text[: width - 1] + "…"
