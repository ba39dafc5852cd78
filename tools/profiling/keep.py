"""Files beside the results, never over another file."""

import itertools
from pathlib import Path

from cli import files


def publish(folder, stem, parts):
    """Writes `parts` ({suffix: text, or Path of a file to copy}) as <folder>/<stem><suffix>; returns the paths.

    Where one of the names is taken, all get the next free stem: <stem>_2, <stem>_3, ...
    """
    folder.mkdir(parents=True, exist_ok=True)
    for count in itertools.count(1):
        names = {suffix: folder / f"{stem}{f'_{count}' if count > 1 else ''}{suffix}" for suffix in parts}
        if not any(name.exists() for name in names.values()):
            break
    for suffix, part in parts.items():
        files.create(names[suffix], part.read_bytes() if isinstance(part, Path) else part)
    return names
