"""Parser of untrusted JSON, plain or xz-compressed: rejects non-finite numbers and deep nesting, with a reason."""

import json
import math

_KINDS = (
    (b"version https://git-lfs", "a Git LFS pointer: fetch the file it stands for"),
    (b"<<<<<<<", "a file with a merge conflict"),
    (b"<", "a page of HTML or XML"),
    (b"\x00\x05\x16\x07", "a resource fork of macOS"),
    (b"\x1f\x8b", "a gzip archive: unpack it"),
    (b"PK\x03\x04", "a zip archive"),
)
_XZ = b"\xfd7zXZ\x00"
_LONGEST = 200  # characters of a reason


class NotJson(ValueError):
    """The reason, one line without the file's name."""


def read(path):
    """The JSON value of a file. Throws OSError and NotJson."""
    with open(path, "rb") as file:
        return parse(file.read())


def parse(text):
    """The JSON value of str or bytes, plain or xz-compressed. Throws NotJson."""
    try:
        text = unpacked(text) if isinstance(text, bytes) else text
        return json.loads(
            _decoded(text) if isinstance(text, bytes) else text, parse_constant=_refuse, parse_float=_finite
        )
    except NotJson:
        raise
    except (RecursionError, ValueError) as error:
        raise NotJson(_kind_of(text) or reason(error)) from None


def unpacked(raw):
    """Decompresses an xz archive; returns other bytes unchanged. Throws NotJson."""
    if not raw.startswith(_XZ):
        return raw
    import lzma  # imported on demand: some builds of Python lack it

    try:
        return lzma.decompress(raw)
    except lzma.LZMAError as error:
        raise NotJson(f"a damaged xz archive: {error}") from None


def packed(text):
    """`text` as the bytes of a .json.xz file, deterministically."""
    import lzma

    return lzma.compress(text.encode(), preset=9)


def line(value):
    """`value` as one line of JSON. Numbers that are not finite become null, since JSON cannot express them."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_with_null(value), allow_nan=False)


def reason(error):
    """An exception's reason why a file is not the expected JSON, as one line of bounded length."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, NotJson):
        words = str(error)
    elif isinstance(error, json.JSONDecodeError):
        words = f"no JSON at line {error.lineno}, column {error.colno}: {error.msg}"
    elif isinstance(error, KeyError):
        words = f"it has no {error}"
    elif isinstance(error, OSError):
        words = error.strerror or str(error)
    else:
        words = str(error)
    words = " ".join(words.split())
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."


def _decoded(raw):
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotJson(_kind_of(raw) or f"no UTF-8 at byte {error.start}") from None


def _refuse(word):
    raise NotJson(f"{word} is no number of JSON")


def _finite(word):
    value = float(word)
    if math.isinf(value):
        raise NotJson(f"{word[:20]} is more than a number holds")
    return value


def _with_null(value):
    if isinstance(value, dict):
        return {key: _with_null(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _kind_of(text):
    """The kind of a file that is not JSON, by its first bytes; "" if unknown."""
    start = (text[:64] if isinstance(text, bytes) else text[:64].encode(errors="replace")).lstrip()
    if not start:
        return "empty"
    return next((kind for magic, kind in _KINDS if start.startswith(magic)), "")
