"""Tables of README.md from records: the promoted versions against the library, and a training step against PyTorch's.

Both are part of `./ladder table`, between the markers `training:begin promoted` and `training:begin step`.
"""

from dashboard import standing
from readme import generated, train_budget
from records import current, promotion

_DTYPE = "bf16"
_NOTHING = "*Nothing is promoted yet: `./ladder record` on a GPU, then `./ladder promote`.*\n"


def filled(root, text, rows):
    """README.md's `text` with both tables filled in. `rows` are the newest Results."""
    device_names = {row.record.device: row.record.device_name for row in rows}
    dated = {
        (row.record.device, row.path, row.problem, f"v{row.version:02d}_{row.idea}") for row in rows if row.is_dated
    }
    tables = [
        _table(root, device_names.get(device, device), standing.promoted(root, device, dated))
        for device in promotion.devices(root)
    ]
    text = generated.filled(text, "promoted", "\n".join(filter(None, tables)) or _NOTHING)
    return generated.filled(text, "step", train_budget.step_lines(root))


def _table(root, device_name, promoted):
    """Table with a line per pass that has a library's time; passes without are named below it."""
    rows = {path: row for (path, dtype), row in sorted(promoted.items()) if dtype == _DTYPE and row["ofUnet"]}
    if not any(row["timed"] for row in rows.values()):
        return ""
    alone = [_linked(root, path) for path, row in rows.items() if not row["timed"]]
    return (
        "\n".join(
            [
                f"**{device_name}**, {_DTYPE}:",
                "",
                "| pass | x library | worst to best | problems | library | promoted versions |",
                "| --- | ---: | ---: | ---: | --- | --- |",
                *(_line(root, path, row) for path, row in rows.items() if row["timed"]),
                *(["", f"No library was timed beside {', '.join(alone)}."] if alone else []),
                *(["", current.LEGEND] if any(row["timed"] and row["dated"] for row in rows.values()) else []),
            ]
        )
        + "\n"
    )


def _line(root, path, row):
    ratio, span = (f"{row['ratio']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}") if row["ratio"] else ("-", "-")
    problems = f"{row['timed']}" if row["timed"] == row["problems"] else f"{row['timed']} of {row['problems']}"
    problems += ", without bias" if row["withoutBias"] else ""
    versions = [f"[{label}](dev/{path}/{label}.cu) ({count})" for label, count in row["versions"]]
    sign = f" {current.SIGN}" if row["dated"] else ""
    return (
        f"| {_linked(root, path)}{sign} | {ratio} | {span} | {problems} | {' or '.join(row['libraries'])} "
        f"| {', '.join(versions)} |"
    )


def _linked(root, path):
    """Markdown link from a pass to its README, or to its layer's."""
    layer, _ = path.split("/")
    folder = path if (root / "dev" / path / "README.md").exists() else layer
    return f"[{path}](dev/{folder}/README.md)"
