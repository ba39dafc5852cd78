"""tools/images/nearest_images.py on images whose distances are known."""

import os
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from cli import setup, wheels  # noqa: E402

SIZE = 4
LEVELS = (0, 250, 100, 108, 3, 51)  # of the images, each of one gray; the last one is held out


class Nearest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.data = self.scratch / "gray.ldata"
        pixels = b"".join(bytes([level]) * (SIZE * SIZE * 3) for level in LEVELS)
        header = struct.pack("<8sIIIIQQ", b"LADDATA\n", 1, SIZE, 3, 0, len(LEVELS), 1)
        self.data.write_bytes(header + bytes(88) + pixels)
        self.python = wheels.python_having(wheels.PIXELS, setup.LOG)

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
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def test_the_nearest_of_the_training_images(self):
        self.numpy("""
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
            self.assertEqual(self.tool(name, self.data, "--out", "near.png", "--count", "2"), expected)
        seen = self.numpy("""
            from PIL import Image
            picture = np.asarray(Image.open("near.png"))
            print(picture.shape, picture[0, [0, 12, 18, 24], 0], picture[6, [0, 12, 18, 24], 2], picture[5, 0, 0],
                  picture[0, 4:12, 0])
            """)
        self.assertEqual(
            seen, "(10, 28, 3) [ 50   3   0 100] [255 250 108 100] 128 [128 128 128 128 128 128 128 128]\n"
        )

    def test_scaled(self):
        self.numpy('np.save("s.npy", np.zeros((1, 4, 4, 3), np.uint8))')
        self.tool("s.npy", self.data, "--out", "near.png", "--scale", "3", "--nearest", "1")
        size = self.numpy('from PIL import Image\nprint(Image.open("near.png").size)')
        self.assertEqual(size, "(32, 12)\n")

    def test_refusals(self):
        self.numpy("""
            np.save("small.npy", np.zeros((1, 2, 2, 3), np.uint8))
            np.save("float.npy", np.zeros((1, 4, 4, 3), np.float32))
            open("text.npz", "w").write("text")
            """)
        for says, status, *arguments in (
            ("there is no file 'none.npz'", 2, "none.npz", self.data),
            ("no data set of ./ladder prepare", 1, "small.npy", "small.npy"),
            ("images of 2 pixels a side, ", 2, "small.npy", self.data),
            ("float32 [1, 4, 4, 3]", 1, "float.npy", self.data),
            ("nothing that ./ladder sample wrote", 1, "text.npz", self.data),
            ("ends in .png", 2, "small.npy", self.data, "--out", "a.jpg"),
            ("--count is 1 or more", 2, "small.npy", self.data, "--count", "0"),
        ):
            with self.subTest(says=says):
                said = self.tool(*arguments, status=status)
                self.assertIn(says, said)
                self.assertEqual(len(said.splitlines()), 1, said)


if __name__ == "__main__":
    unittest.main()
