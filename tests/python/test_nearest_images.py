"""tools/images/nearest_images.py on images whose distances are known."""

import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cli import paths, wheels

ROOT = Path(__file__).resolve().parents[2]

SIZE = 4
LEVELS = (0, 250, 100, 108, 3, 51)  # of the images, each of one gray; the last one is held out


class Nearest:
    def __init__(self, tmp_path):
        self.scratch = tmp_path
        self.data = self.scratch / "gray.ldata"
        pixels = b"".join(bytes([level]) * (SIZE * SIZE * 3) for level in LEVELS)
        header = struct.pack("<8sIIIIQQ", b"LADDATA\n", 1, SIZE, 3, 0, len(LEVELS), 1)
        self.data.write_bytes(header + bytes(88) + pixels)
        self.python = wheels.python_having(wheels.PIXELS, paths.SETUP_LOG)

    def numpy(self, script):
        return subprocess.check_output(
            [self.python, "-c", "import numpy as np\n" + textwrap.dedent(script)], text=True, cwd=self.scratch
        )

    def tool(self, *arguments, status=0):
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "images" / "nearest_images.py", *arguments],
            cwd=self.scratch,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr


@pytest.fixture
def nearest(tmp_path):
    return Nearest(tmp_path)


def test_the_nearest_of_the_training_images(nearest):
    nearest.numpy("""
            samples = np.full((3, 4, 4, 3), 50, np.uint8)
            samples[1] = 255
            np.savez("s.npz", samples)
            np.save("s.npy", samples)
            """)
    expected = (
        "sample 0: image 4 at 47.0, image 0 at 50.0, image 2 at 50.0\n"
        "sample 1: image 1 at 5.0, image 3 at 147.0, image 2 at 155.0\nwrote near.png\n"
    )
    for name in ("s.npz", "s.npy"):
        assert nearest.tool(name, nearest.data, "--out", "near.png", "--count", "2") == expected
    seen = nearest.numpy("""
            from PIL import Image
            picture = np.asarray(Image.open("near.png"))
            print(picture.shape, picture[0, [0, 12, 18, 24], 0], picture[6, [0, 12, 18, 24], 2], picture[5, 0, 0],
                  picture[0, 4:12, 0])
            """)
    assert seen == "(10, 28, 3) [ 50   3   0 100] [255 250 108 100] 128 [128 128 128 128 128 128 128 128]\n"


def test_scaled(nearest):
    nearest.numpy('np.save("s.npy", np.zeros((1, 4, 4, 3), np.uint8))')
    nearest.tool("s.npy", nearest.data, "--out", "near.png", "--scale", "3", "--nearest", "1")
    size = nearest.numpy('from PIL import Image\nprint(Image.open("near.png").size)')
    assert size == "(32, 12)\n"


@pytest.mark.parametrize(
    ("says", "status", "arguments"),
    [
        ("there is no file 'none.npz'", 2, "none.npz gray.ldata"),
        ("no data set of ./ladder prepare", 1, "small.npy small.npy"),
        ("images of 2 pixels a side, ", 2, "small.npy gray.ldata"),
        ("float32 [1, 4, 4, 3]", 1, "float.npy gray.ldata"),
        ("nothing that ./ladder sample wrote", 1, "text.npz gray.ldata"),
        ("ends in .png", 2, "small.npy gray.ldata --out a.jpg"),
        ("--count is 1 or more", 2, "small.npy gray.ldata --count 0"),
    ],
)
def test_refusals(nearest, says, status, arguments):
    nearest.numpy("""
        np.save("small.npy", np.zeros((1, 2, 2, 3), np.uint8))
        np.save("float.npy", np.zeros((1, 4, 4, 3), np.float32))
        open("text.npz", "w").write("text")
        """)
    said = nearest.tool(*arguments.split(), status=status)
    assert says in said
    assert len(said.splitlines()) == 1, said
