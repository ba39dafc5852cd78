"""Which pictures a folder has. Python alone, no Pillow."""

import os
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".png", ".jpg", ".jpeg")


@dataclass
class Found:
    pictures: list  # [(name, path)]: names relative to the folder, in their order, whatever the disk's is
    others: int  # files that are no PNG or JPEG by their names
    unread: list  # [(name, reason)]: folders inside that may not be read


def find(folder):
    """What `folder` and the folders inside have; links to folders are not followed."""
    pictures, unread = [], []
    others = 0

    def keep(error):
        unread.append((_name(error.filename, folder), error.strerror))

    for inside, _, names in os.walk(folder, onerror=keep):
        for name in names:
            path = Path(inside, name)
            # What is there and is no file may be read for ever; what is not there, a broken link, will be named.
            if name.lower().endswith(SUFFIXES) and (path.is_file() or not path.exists()):
                pictures.append((_name(path, folder), path))
            else:
                others += 1
    pictures.sort(key=lambda picture: os.fsencode(picture[0]))
    return Found(pictures, others, sorted(unread))


def _name(path, folder):
    return Path(path).relative_to(folder).as_posix()
