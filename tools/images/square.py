"""One picture as a square of RGB pixels."""

import warnings

from PIL import Image, ImageOps

# Pillow warns of pictures above 89 megapixels, and refuses those above 179: that is enough.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)


class Unusable(Exception):
    """Why a picture is left out, in a few words."""


def from_file(path, size):
    """(pixels, enlarged) of a PNG or JPEG: `pixels` as bytes [size, size, 3], and whether it was smaller than that.

    Throws Unusable.
    """
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            image.load()
            return _square(_rgb(ImageOps.exif_transpose(image)), size)
    except Image.UnidentifiedImageError:
        raise Unusable("it is no PNG or JPEG") from None
    except MemoryError:
        raise Unusable("it needs more memory than there is") from None
    except Unusable:
        raise
    except OSError as error:
        raise Unusable(error.strerror or str(error) or "it is broken") from None
    except Exception as error:  # broken files make Pillow throw what it likes: SyntaxError, struct.error, ...
        raise Unusable(str(error) or type(error).__name__) from None


def from_bitmap(file, size):
    """The same of a PNG with alpha that is to be seen whole: on a white square of its longer side."""
    with Image.open(file, formats=("PNG",)) as image:
        rgb = _rgb(image)
    side = max(rgb.size)
    square = Image.new("RGB", (side, side), "white")
    square.paste(rgb, ((side - rgb.width) // 2, (side - rgb.height) // 2))
    return _square(square, size)[0]


def _rgb(image):
    """8 bits a channel, transparent parts on white. CMYK and palettes become RGB; colour profiles are not looked at."""
    transparent = image.has_transparency_data
    if image.mode.startswith("I"):  # 16 bits of gray, which convert() would clip
        if transparent:
            raise Unusable("16 bits of gray with a transparent value are not read")
        image = image.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
    if transparent:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _square(image, size):
    """The square in the middle, resized by Pillow's Lanczos filter, whose support grows with the reduction: it averages
    over all of the pixels that become one."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))  # resize(box=...) would look at pixels outside of it
    return square.resize((size, size), Image.Resampling.LANCZOS).tobytes(), side < size
