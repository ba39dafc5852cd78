"""Files beside the results: whole or not at all, and never over another file."""

import os
import shutil
from pathlib import Path


def publish(folder, stem, parts):
    """Writes `parts` ({suffix: text, or Path of a file to copy}) as <folder>/<stem><suffix>; returns the paths.

    Where one of the names is taken, all get the next free stem: <stem>_2, <stem>_3, ...
    """
    folder.mkdir(parents=True, exist_ok=True)
    aside = {suffix: folder / f".{stem}{suffix}.{os.getpid()}" for suffix in parts}
    try:
        for suffix, part in parts.items():
            if isinstance(part, Path):
                shutil.copyfile(part, aside[suffix])
            else:
                aside[suffix].write_text(part, encoding="utf-8")
        count = 1
        while True:
            names = {suffix: folder / f"{stem}{'' if count == 1 else f'_{count}'}{suffix}" for suffix in parts}
            if _link(aside, names):
                return names
            count += 1
    finally:
        for path in aside.values():
            path.unlink(missing_ok=True)


def _link(aside, names):
    """True if every name was free. A link, unlike a rename, never replaces."""
    linked = []
    for suffix, name in names.items():
        try:
            os.link(aside[suffix], name)
            linked.append(name)
        except FileExistsError:
            for name in linked:
                name.unlink()
            return False
    return True
