"""Conversion of a picture to a square of RGB pixels."""

import io
import struct
import warnings

from PIL import ExifTags, Image

# Pillow's warnings name its own source line and not the picture.
warnings.filterwarnings("ignore", module="PIL")

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_READ_CHUNKS = (b"tRNS", b"eXIf")  # ancillary chunks of a PNG that are used

# {EXIF orientation: transposition that undoes it}
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Unusable(Exception):
    """The reason that a picture is left out, in a few words."""


def from_file(path, size):
    """(pixels, enlarged) of a PNG or JPEG: `pixels` as bytes [size, size, 3]; `enlarged` is True if the picture was
    smaller.

    Throws Unusable.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(len(_PNG))
            if not head.startswith((_PNG, _JPEG)):
                raise Unusable("it is no PNG or JPEG")
            data = head + file.read()
        with Image.open(io.BytesIO(_without_metadata(data)), formats=("PNG", "JPEG")) as image:
            image.load()
            return _square(_rgb(_turned(image)), size)
    except Unusable:
        raise
    except MemoryError:
        raise Unusable("it needs more memory than there is") from None
    except Image.DecompressionBombError:
        raise Unusable(f"it has more than {2 * Image.MAX_IMAGE_PIXELS // 10**6} megapixels") from None
    except Image.UnidentifiedImageError:
        raise Unusable("its header is broken") from None
    except Exception as error:  # Pillow throws anything for broken pixels: OSError, SyntaxError, struct.error, ...
        if isinstance(error, OSError) and error.strerror:
            raise Unusable(error.strerror) from None
        raise Unusable(f"it is broken: {str(error) or type(error).__name__}") from None


def _without_metadata(data):
    """Drops a PNG's unused chunks: Pillow rejects it if one is broken or too large. Returns other data unchanged."""
    if not data.startswith(_PNG):
        return data
    kept, at = [_PNG], len(_PNG)
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if kind[:1].isupper() or kind in _READ_CHUNKS:  # names of critical chunks begin with a capital
            kept.append(data[at:end])
        at = end
    return b"".join(kept)


def _turned(image):
    """Rotates or flips an image by its EXIF orientation; returns it unchanged if that is missing or unreadable."""
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except Exception:  # Pillow throws anything for broken metadata
        return image
    return image if turn is None else image.transpose(turn)


def from_bitmap(file, size):
    """Pixels, bytes [size, size, 3], of a PNG with alpha, uncropped: on a white square of its longer side, resized."""
    with Image.open(file, formats=("PNG",)) as image:
        rgb = _rgb(image)
    side = max(rgb.size)
    square = Image.new("RGB", (side, side), "white")
    square.paste(rgb, ((side - rgb.width) // 2, (side - rgb.height) // 2))
    return _square(square, size)[0]


def _rgb(image):
    """Converts any mode to RGB, 8 bits per channel, transparent parts on white. Ignores colour profiles."""
    transparent = image.has_transparency_data
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    if transparent:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _eight_bits(image):
    """Scales 16-bit gray, which convert() would clip, to 8 bits; its transparent value becomes an alpha channel."""
    values = range(1 << 16)
    gray = image.convert("I")
    scaled = gray.point([(value + 128) // 257 for value in values], "L")
    transparent = image.info.get("transparency")
    if transparent is None:
        return scaled
    return Image.merge("LA", (scaled, gray.point([255 * (value != transparent) for value in values], "L")))


def _square(image, size):
    """(bytes [size, size, 3], enlarged) of the centre square, resized by Pillow's Lanczos filter. Its support grows
    with the reduction, so that it averages over all source pixels of an output pixel."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))  # resize(box=...) would read pixels outside the box
    return square.resize((size, size), Image.Resampling.LANCZOS).tobytes(), side < size
