"""Data sets in one file, .ldata: what train/dataset.h reads. All numbers are little-endian.

    offset  bytes
         0      8  magic: "LADDATA\\n"
         8      4  version of the format: 1
        12      4  size: height and width of every image, pixels
        16      4  channels: 3, red, green, blue
        20      4  zero
        24      8  number of images
        32      8  how many of them are held out: the last ones
        40     16  digest: XXH3 (128 bits, seed 0, in its canonical byte order) of bytes 0 to 39 and of all pixels
        56     72  zero
       128         pixels: [image, row, column, channel] uint8, nothing between images and nothing after the last

One image in twenty is held out, rounded, but at least one of two or more: those with the least SHA-256 of their pixels.
So the choice depends on no name and no order, and an image that is added changes it by one image at most. Both parts
keep the order in which the images were given.
"""

import hashlib
import os
import random
import struct
import tempfile
from dataclasses import dataclass

from cli import files
from cli.errors import Failure

MAGIC = b"LADDATA\n"
VERSION = 1
CHANNELS = 3
HEADER_BYTES = 128

_FIELDS = struct.Struct("<8sIIIIQQ")
_DIGEST_BYTES = 16
_HELD_OUT_SHARE = 20  # one image of this many


@dataclass(frozen=True)
class Header:
    size: int
    count: int
    held_out: int
    digest: str = ""  # 32 hexadecimal digits

    @property
    def image_bytes(self):
        return self.size * self.size * CHANNELS

    def packed(self):
        """Everything in front of the digest."""
        return _FIELDS.pack(MAGIC, VERSION, self.size, CHANNELS, 0, self.count, self.held_out)


def read_header(path):
    """Throws Failure where `path` is no whole file of this format. The pixels are not looked at."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
            file_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise Failure(f"'{path}' cannot be read: {error.strerror}") from None
    if len(head) < HEADER_BYTES or head[: len(MAGIC)] != MAGIC:
        raise Failure(f"'{path}' is no data set of ./ladder prepare")
    _, version, size, channels, zero, count, held_out = _FIELDS.unpack_from(head)
    if version != VERSION:
        raise Failure(f"'{path}' has version {version} of the format, this reads {VERSION}: make it anew")
    header = Header(size, count, held_out, head[_FIELDS.size : _FIELDS.size + _DIGEST_BYTES].hex())
    if (
        size == 0
        or channels != CHANNELS
        or zero
        or count == 0
        or held_out >= count
        or any(head[_FIELDS.size + _DIGEST_BYTES :])
    ):
        raise Failure(f"'{path}' has a corrupt header")
    whole = HEADER_BYTES + count * header.image_bytes
    if file_bytes != whole:
        raise Failure(f"'{path}' has {file_bytes} bytes, its header says {whole}")
    return header


def held_out(digests):
    """The indices of the images to hold out, by their digests, in rising order."""
    count = len(digests)
    wanted = max(1, round(count / _HELD_OUT_SHARE)) if count > 1 else 0
    return sorted(sorted(range(count), key=lambda i: digests[i])[:wanted])


def write(path, size, images):
    """Writes `images`, each [row, column, channel] uint8 as bytes, no two alike, and returns the Header.

    Throws OSError, and Failure where there is no image; what was there under that name stays then. While it writes, the
    disk holds the pixels twice: which images go last is known only after the last one.
    """
    import xxhash  # of the private Python

    image_bytes = size * size * CHANNELS
    digests = []
    with tempfile.TemporaryFile(dir=path.parent) as given:
        for pixels in images:
            assert len(pixels) == image_bytes
            digests.append(hashlib.sha256(pixels).digest())
            given.write(pixels)
        if not digests:
            raise Failure(f"'{path}' was not written: there is no image for it")
        last = held_out(digests)
        is_last = set(last)
        order = [i for i in range(len(digests)) if i not in is_last] + last
        header = Header(size, len(digests), len(last))
        digest = xxhash.xxh3_128(header.packed())
        with files.whole(path) as file:
            file.write(bytes(HEADER_BYTES))
            for i in order:
                given.seek(i * image_bytes)
                pixels = given.read(image_bytes)
                digest.update(pixels)
                file.write(pixels)
            file.seek(0)
            file.write(header.packed() + digest.digest())
    return Header(size, len(digests), len(last), digest.hexdigest())


def write_random(path, size, count):
    """Writes `count` images of random pixels, none held out, for steps that are timed and teach nothing. Throws OSError.

    The digest is zero: a training, which checks it, refuses the file.
    """
    header, pixels = Header(size, count, 0), random.Random(size)
    with files.whole(path) as file:
        file.write(header.packed().ljust(HEADER_BYTES, b"\0"))
        for _ in range(count):
            file.write(pixels.randbytes(header.image_bytes))


def read_images(path, header, indices):
    """Yields the pixels of these images."""
    with open(path, "rb") as file:
        for i in indices:
            file.seek(HEADER_BYTES + i * header.image_bytes)
            yield file.read(header.image_bytes)
