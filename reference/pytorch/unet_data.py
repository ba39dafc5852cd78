"""Reads the data file that `./ladder prepare` writes (tools/images/ldata.py describes its bytes)."""

import struct
from pathlib import Path

import numpy

from worker import Refusal

_FIELDS = struct.Struct("<8sIIIIQQ")  # magic, version, size, channels, zero, images, held out
_HEADER_BYTES = 128
_MAGIC, _VERSION, _CHANNELS = b"LADDATA\n", 1, 3


def read_dataset(path):
    """(images to train on, held-out images), uint8 [n, h, w, 3] each, in the file's order. The digest is not checked."""
    raw = Path(path).read_bytes()
    if len(raw) < _HEADER_BYTES or not raw.startswith(_MAGIC):
        raise Refusal(f"'{path}' is no data set of ./ladder prepare")
    _, version, size, channels, zero, count, held_out = _FIELDS.unpack_from(raw)
    if version != _VERSION:
        raise Refusal(f"'{path}' has version {version} of the format, this reads {_VERSION}: make it anew")
    if not size or channels != _CHANNELS or zero or not held_out < count:
        raise Refusal(f"'{path}' has a corrupt header")
    whole = _HEADER_BYTES + count * size * size * channels
    if len(raw) != whole:
        raise Refusal(f"'{path}' has {len(raw)} bytes, its header says {whole}")
    images = numpy.frombuffer(bytearray(raw), numpy.uint8, offset=_HEADER_BYTES).reshape(count, size, size, channels)
    return images[: count - held_out], images[count - held_out :]
