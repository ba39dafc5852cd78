"""python tools images folder DIR OUT SIZE | emoji FONT OUT SIZE: writes OUT, a preview beside it, and says what was
taken.

To be started by cli/prepare.py, which has looked at the arguments.
"""

import hashlib
import math
import os
import signal
import sys
import time
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from PIL import Image

from cli import files, options, say
from cli.errors import Failure

from . import folder, ldata, square

_CHUNK = 16  # pictures that a process is given at a time
_PREVIEW_SIDE = 16  # most images in a row of the preview, and in a column
_GAP = 2  # pixels between them


def main(arguments):
    signal.signal(signal.SIGINT, _interrupt_once)
    kind, source, out, size = arguments
    out, size = Path(out), int(size)
    make = {"folder": _from_folder, "emoji": _from_emoji}[kind]
    try:
        make(Path(source), out, size)
    except OSError as error:
        raise Failure(f"'{out}' was not written: {error.strerror or error}") from None
    return 0


def _from_folder(source, out, size):
    found = folder.find(source)
    reasons = Counter()
    enlarged = 0

    def skip(name, why, kind):
        reasons[kind] += 1
        say.line(f"skipped {_printable(name)}: {_printable(why)}")

    def taken():
        nonlocal enlarged
        seen = {}  # digest -> name
        for (name, _), (pixels, more) in zip(found.pictures, _squares(found.pictures, size)):
            if pixels is None:
                skip(name, more, "not readable")
                continue
            digest = hashlib.sha256(pixels).digest()
            if digest in seen:  # it could be held out and trained on at once
                skip(name, f"the same pixels as {seen[digest]}", "twice there")
                continue
            seen[digest] = name
            enlarged += more
            yield pixels
        if not seen:
            raise Failure(f"'{source}' has no usable picture: {_sum_of(reasons)}")

    for name, why in found.unread:
        skip(name, why, "a folder not readable")
    header = _write(out, size, taken())
    others = f"; {_count(found.others, 'other file')} left alone" if found.others else ""
    say.line(f"{source}: {header.count} taken, {_sum_of(reasons)}{others}")
    if enlarged:
        say.line(f"{enlarged} of those taken were smaller than {size}x{size} and have been enlarged")
    _say_written(out, header)


def _from_emoji(source, out, size):
    from .emoji import Emoji

    emoji = Emoji(source)

    def taken():
        seen = set()
        for name, pixels in emoji.images(size):
            if pixels in seen:
                say.line(f"skipped {name}: it looks as another does")
                continue
            seen.add(pixels)
            say.progress(f"{len(seen)} of {len(emoji)} emoji")
            yield pixels

    header = _write(out, size, taken())
    say.line(f"{emoji.name}: {header.count} emoji of {len(emoji)} taken (SIL Open Font License 1.1)")
    _say_written(out, header)


def _write(out, size, images):
    header = ldata.write(out, size, images)
    say.close()
    _write_preview(out, header)
    return header


def _say_written(out, header):
    say.line(
        f"wrote {_shown(out)}: {header.count - header.held_out} images of {header.size}x{header.size} "
        f"to train on, {header.held_out} held out, digest {header.digest}"
    )
    say.line(f"wrote {_shown(_preview(out))}, a look at some of them")


def _squares(pictures, size):
    """Yields (pixels, enlarged) or (None, reason) for each, in their order; says how far it is. All cores work."""
    chunks = [pictures[i : i + _CHUNK] for i in range(0, len(pictures), _CHUNK)]
    workers = min(len(os.sched_getaffinity(0)), len(chunks))
    started, done = time.monotonic(), 0

    def results_of_all():
        if workers < 2:
            yield from (_squares_of(chunk, size) for chunk in chunks)
            return
        with ProcessPoolExecutor(workers, get_context("fork"), _leave_interrupts_to_the_parent) as pool:
            ahead = deque()  # bounded: results must not pile up where the disk is slow
            try:
                for chunk in chunks:
                    ahead.append(pool.submit(_squares_of, chunk, size))
                    if len(ahead) > 4 * workers:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            except BrokenProcessPool:
                raise Failure("a process that read pictures was ended by the system: is memory short?") from None
            finally:
                for future in ahead:
                    future.cancel()

    for results in results_of_all():
        yield from results
        done += len(results)
        left = (time.monotonic() - started) / done * (len(pictures) - done)
        say.progress(f"{done} of {len(pictures)} pictures, about {left:.0f} s left")


def _squares_of(chunk, size):
    results = []
    for _, path in chunk:
        try:
            results.append(square.from_file(path, size))
        except square.Unusable as error:
            results.append((None, str(error)))
    return results


def _interrupt_once(*_):
    """A terminal and ./ladder may both send it: what is tidied up after the first is not interrupted by the second."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _leave_interrupts_to_the_parent():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _write_preview(out, header):
    """A grid of at most 16 x 16 images, evenly spread over the file: the last ones are held out."""
    shown = min(header.count, _PREVIEW_SIDE**2)
    columns = min(_PREVIEW_SIDE, math.ceil(math.sqrt(shown)))
    rows = math.ceil(shown / columns)
    step = header.size + _GAP
    grid = Image.new("RGB", (columns * step - _GAP, rows * step - _GAP), "gray")
    last = header.count - 1
    indices = [i * last // max(1, shown - 1) for i in range(shown)]
    for place, pixels in enumerate(ldata.read_images(out, header, indices)):
        image = Image.frombytes("RGB", (header.size, header.size), pixels)
        grid.paste(image, (place % columns * step, place // columns * step))
    with files.whole(_preview(out)) as file:
        grid.save(file, "PNG")


def _preview(out):
    return out.with_suffix(".png")


def _sum_of(reasons):
    details = ", ".join(f"{count} {kind}" for kind, count in sorted(reasons.items()))
    return f"{sum(reasons.values())} skipped" + (f" ({details})" if details else "")


def _count(number, noun):
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _shown(path):
    return _printable(files.shown(path))


def _printable(text):
    """Replaces control characters, which a file's name may contain, so that messages stay on one line."""
    return "".join(each if each.isprintable() else "?" for each in str(text))


if __name__ == "__main__":
    sys.exit(options.run(main))
