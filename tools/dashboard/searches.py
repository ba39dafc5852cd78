"""Searches as pictures: rounds to the right, time upwards, a line from each candidate to those made from it."""

import html
import math
from pathlib import Path

from search import log, tree

_HEIGHT, _STRIP = 320, 28  # pixels; the strip below holds candidates without a time
_FIGURES = ("µs", "× parent", "× baseline")


def read(root):
    """([(path, nodes)], bad), bad as of sources.py."""
    found, bad = [], []
    for file in sorted((Path(root) / "results" / "search").glob("*-*.jsonl")):
        layer, _, pass_name = file.stem.partition("-")
        records, damaged = log.read(layer, pass_name, root)
        found.append((f"{layer}/{pass_name}", tree.grow(records)))
        for line in damaged:
            name, _, reason = line.partition(": ")
            bad.append({"file": f"search/{name}", "reason": reason})
    return [one for one in found if one[1]], bad


def shown(searches):
    """HTML of all; none for none."""
    return "\n".join(_search(path, nodes) for path, nodes in searches)


def _search(path, nodes):
    """A picture for each group of comparable times, and a table of all candidates."""
    groups = dict.fromkeys(node.group for node in nodes if node.us > 0)
    pictures = [_escape(tree.words_of(group)) + _picture(group, nodes) for group in groups]
    heads = "".join(f"<th scope=col>{name}</th>" for name in ("node", "from", "verdict", *_FIGURES, "idea"))
    return (
        f'<div class="search" data-path="{_escape(path)}"><h3>{_escape(path)}</h3>{"".join(pictures)}'
        f"<details><summary>its {len(nodes)} candidates</summary><div class=scroll><table>"
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(map(_row, nodes))}</tbody></table></div></details></div>"
    )


def _picture(group, nodes):
    """Its nodes, and below them, in a strip, their children without a time."""
    timed = [node for node in nodes if node.us > 0 and node.group == group]
    drawn = timed + [node for node in nodes if not node.us > 0 and node.parent in timed]
    rounds = max(1, *(node.record["round"] for node in drawn))
    baseline = [node.us * node.to_baseline for node in timed if node.to_baseline > 0][-1:]
    low, high = (math.log(extreme([node.us for node in timed] + baseline)) for extreme in (min, max))

    def down(us):
        return 20 + (_HEIGHT - _STRIP - 20) * (high - math.log(us)) / max(high - low, 1e-9) if us > 0 else _HEIGHT - 8

    def at(node, number=""):
        return f'x{number}="{100 * node.record["round"] / rounds:.2f}%" y{number}="{down(node.us):.1f}"'

    def circle(node):
        said = (
            f"{node.name} {node.record['verdict']} {tree.figure(node.us)}{' µs' if node.us > 0 else ''}: {node.words}"
        )
        name = f"<text {at(node)} dy=-9>{node.name}</text>" if node.best or len(timed) <= 20 and node.us > 0 else ""
        place = at(node).replace("x=", "cx=").replace("y=", "cy=")
        return f'<circle class="{_class(node)}" {place} r=5><title>{_escape(said)}</title></circle>{name}'

    def level(us, words, kind):
        y = f"{down(us):.1f}"
        line = f'<line class="{kind}" x1="0%" x2="100%" y1="{y}" y2="{y}"/>'
        return f'{line}<text class="scale" x="-12" y="{y}" dy=4>{words}</text>'

    ticks = [step * 10.0**power for power in range(-3, 9) for step in (1, 2, 5)]
    parts = [level(us, f"{us:g} µs", "grid") for us in ticks if low <= math.log(us) <= high]
    parts += [level(us, "baseline", "base") for us in baseline]
    for node in sorted(drawn, key=lambda node: node.best):
        if node.parent in timed:
            parts.append(f'<line class="{_class(node)}" {at(node.parent, 1)} {at(node, 2)}/>')
    fastest = min((node.us for node in timed if node.best), default=math.nan)
    label = f"{len(drawn)} candidates" + (f", the fastest {tree.figure(fastest)} µs" if fastest > 0 else "")
    parts += map(circle, drawn)
    return f'<svg class="tree" height="{_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _class(node):
    return "best" if node.best else "passed" if node.record["verdict"] == "PASS" else "failed"


def _row(node):
    parent = f"node {node.parent.name}" if node.parent.record else node.parent.name
    figures = [tree.figure(value) for value in (node.us, node.to_parent, node.to_baseline)]
    cells = [parent, node.record["verdict"], *figures, node.words]
    name = f"<b>{node.name}</b>" if node.best else node.name
    return f"<tr><th scope=row>{name}</th>{''.join(f'<td>{_escape(cell)}</td>' for cell in cells)}</tr>"


def _escape(value):
    return html.escape(str(value), quote=True)
