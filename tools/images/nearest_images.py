"""Test for memorised training images: draws each sample next to its nearest training images.

    python3 tools/images/nearest_images.py samples.npz build/data/emoji-64.ldata --out nearest.png

A row shows a sample and, after a gap, its 3 nearest images of the training part of the file, nearest first, by
Euclidean distance of the pixels. Samples are the output of `./ladder sample --npz` or `--npy`. Prints the distances of
each row, as root-mean-square difference of the pixel values, 0 to 255.
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cli import files, options, paths, tools, wheels
from cli.errors import Failure, UsageError
from images import ldata

_BLOCK = 256  # training images per matrix product
_GAP, _WIDE_GAP = 2, 8  # pixels between images, and between the sample and its neighbours
_GRAY = 128


def main(arguments):
    chosen = _parse(arguments)
    header = ldata.read_header(chosen.data)
    python = wheels.python_having(wheels.PIXELS, paths.SETUP_LOG)
    if python != Path(sys.executable):
        return subprocess.run([python, str(Path(__file__).resolve()), *arguments], env=tools.environment()).returncode
    samples = read_samples(chosen.samples)[: chosen.count]
    if samples.shape[1] != header.size:
        raise UsageError(
            f"'{chosen.samples}' has images of {samples.shape[1]} pixels a side, '{chosen.data}' of {header.size}"
        )
    found = nearest(samples, chosen.data, header, chosen.nearest)
    for at, neighbours in enumerate(found):
        print(f"sample {at}: " + ", ".join(f"image {index} at {distance:.1f}" for index, distance, _ in neighbours))
    write_picture(chosen.out, samples, found, chosen.scale)
    print(f"wrote {chosen.out}")
    return 0


def _parse(arguments):
    parser = options.Parser("", description="Samples beside the training images nearest to them.")
    parser.prog = "tools/images/nearest_images.py"
    parser.add_argument("samples", type=Path, metavar="SAMPLES", help=".npz or .npy of ./ladder sample")
    parser.add_argument("data", type=Path, metavar="FILE.ldata", help="that the model was trained on")
    parser.add_argument("--out", type=Path, default=Path("nearest.png"), help="default: nearest.png")
    parser.add_argument("--count", type=int, default=16, help="samples, the first ones (default: 16)")
    parser.add_argument("--nearest", type=int, default=3, help="training images of each (default: 3)")
    parser.add_argument("--scale", type=int, default=1, help="pixels of the picture a pixel (default: 1)")
    chosen = parser.parse_args(arguments)
    for name in ("count", "nearest", "scale"):
        if getattr(chosen, name) < 1:
            parser.error(f"--{name} is 1 or more")
    if not chosen.samples.is_file():
        parser.error(f"there is no file '{chosen.samples}'")
    if chosen.out.suffix != ".png" or not chosen.out.resolve().parent.is_dir():
        parser.error(f"--out '{chosen.out}': a name that ends in .png, in a folder that is there")
    return chosen


def read_samples(path):
    """The samples, uint8 [n, size, size, 3]. Throws Failure."""
    import numpy

    try:
        loaded = numpy.load(path, allow_pickle=False)
        samples = loaded["arr_0"] if path.suffix == ".npz" else loaded
    except (OSError, ValueError, KeyError) as error:
        raise Failure(f"'{path}' is nothing that ./ladder sample wrote: {error}") from None
    if (
        samples.dtype != numpy.uint8
        or samples.ndim != 4
        or samples.shape[1] != samples.shape[2]
        or samples.shape[3] != 3
        or not len(samples)
    ):
        raise Failure(f"'{path}' has {samples.dtype} {list(samples.shape)}, not uint8 [n, size, size, 3]")
    return samples


def nearest(samples, path, header, count):
    """[[(index, distance, image)]]: per sample at most `count` training images, nearest first. The samples are uint8
    [n, size, size, 3]."""
    import numpy

    # Double precision makes the sums exact: equal images have distance 0, and ties go to the lower index.
    flat = samples.reshape(len(samples), -1).astype(numpy.float64)
    squares = (flat**2).sum(1)
    num_training = header.count - header.held_out
    distances = numpy.empty((len(samples), num_training))
    for first in range(0, num_training, _BLOCK):
        indices = range(first, min(first + _BLOCK, num_training))
        pixels = b"".join(ldata.read_images(path, header, indices))
        block = numpy.frombuffer(pixels, numpy.uint8).reshape(len(indices), -1).astype(numpy.float64)
        distances[:, first : indices.stop] = squares[:, None] + (block**2).sum(1)[None, :] - 2 * flat @ block.T
    found = []
    for row in distances:
        order = numpy.argsort(row, kind="stable")[:count]
        images = [
            numpy.frombuffer(pixels, numpy.uint8).reshape(header.size, header.size, 3)
            for pixels in ldata.read_images(path, header, order.tolist())
        ]
        found.append(
            [(int(index), float((row[index] / flat.shape[1]) ** 0.5), image) for index, image in zip(order, images)]
        )
    return found


def write_picture(path, samples, found, scale):
    import numpy
    from PIL import Image

    size = samples.shape[1] * scale
    step = size + _GAP
    columns = 1 + max(map(len, found))
    canvas = numpy.full((step * len(samples) - _GAP, step * columns - _GAP + _WIDE_GAP - _GAP, 3), _GRAY, numpy.uint8)
    for row, (sample, neighbours) in enumerate(zip(samples, found)):
        for column, image in enumerate([sample, *(image for _, _, image in neighbours)]):
            left = column * step + (_WIDE_GAP - _GAP if column else 0)
            canvas[row * step : row * step + size, left : left + size] = image.repeat(scale, 0).repeat(scale, 1)
    try:
        with files.whole(path) as file:
            Image.fromarray(canvas).save(file, format="PNG")
    except OSError as error:
        raise Failure(f"'{path}' cannot be written: {error}") from None


if __name__ == "__main__":
    sys.exit(options.run(main))
