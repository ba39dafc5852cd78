"""Search for the pictures in a folder, with Python alone, no Pillow."""

import os
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".png", ".jpg", ".jpeg")


@dataclass
class Found:
    pictures: list  # [(name relative to the folder, path)], sorted by name, independent of the disk's order
    others: int  # files without a PNG or JPEG suffix
    unread: list  # [(name, reason)] of subfolders that cannot be read


def find(folder):
    """The Found of `folder` and its subfolders. Does not follow links to folders."""
    pictures, unread = [], []
    others = 0

    def keep(error):
        unread.append((_name(error.filename, folder), error.strerror))

    for inside, _, names in os.walk(folder, onerror=keep):
        for name in names:
            path = Path(inside, name)
            # Skip devices and FIFOs: reading one may never end. Keep a broken link: reading it reports an error.
            if name.lower().endswith(SUFFIXES) and (path.is_file() or not path.exists()):
                pictures.append((_name(path, folder), path))
            else:
                others += 1
    pictures.sort(key=lambda picture: os.fsencode(picture[0]))
    return Found(pictures, others, sorted(unread))


def _name(path, folder):
    return Path(path).relative_to(folder).as_posix()
