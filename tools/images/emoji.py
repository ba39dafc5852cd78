"""The sample set: the colour emoji of Noto Color Emoji (Google, SIL Open Font License 1.1)."""

import io

import regex
from fontTools.ttLib import TTFont, TTLibError

from cli.errors import Failure

from . import square

# Pictures by default, as Unicode has it; without what is only a part of one: skin tones, hair, the letters of flags.
_WANTED = regex.compile(r"[\p{Emoji_Presentation}--\p{Emoji_Component}]", regex.VERSION1)


class Emoji:
    """The emoji of a font, those of one code point, in the order of these."""

    def __init__(self, font_file):
        try:
            font = TTFont(font_file, lazy=True)
            glyphs = font.getBestCmap()
            # The PNGs that the font holds, largest first: no rasteriser has a say in the pixels.
            strikes = [
                strike
                for _, strike in sorted(
                    zip(font["CBLC"].strikes, font["CBDT"].strikeData), key=lambda pair: -pair[0].bitmapSizeTable.ppemY
                )
            ]
        except (OSError, TTLibError, KeyError) as error:
            raise Failure(f"'{font_file}' is no font with bitmaps of emoji (CBDT): {error}") from None
        self.name = f"{font['name'].getDebugName(4)} {font['head'].fontRevision:.3f}"
        self._bitmaps = {
            point: strikes[0][glyph]
            for point, glyph in sorted(glyphs.items())
            if glyph in strikes[0] and _WANTED.fullmatch(chr(point))
        }
        if not self._bitmaps:
            raise Failure(f"'{font_file}' has no emoji of one code point")

    def __len__(self):
        return len(self._bitmaps)

    def images(self, size):
        """Yields (name, pixels): "U+1F600", and bytes [size, size, 3]."""
        for point, bitmap in self._bitmaps.items():
            yield f"U+{point:04X}", square.from_bitmap(io.BytesIO(bitmap.imageData), size)
