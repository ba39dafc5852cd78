"""The trainer's safetensors reader and writer against the format's own library, both ways."""

import json
import random
import site
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from cli import tools  # noqa: E402

for folder in tools.VENV.glob("lib/python3*/site-packages"):
    site.addsitedir(str(folder))
try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError:
    safetensors = None

PROGRAM = ROOT / "build" / "emulator" / "tests" / "io_safetensors_tool"
LACKS = ("" if PROGRAM.exists() else f"{PROGRAM.relative_to(ROOT)} is not built") or (
    "" if safetensors else "needs the Python package safetensors: ./ladder setup --dev"
)

# What the trainer refuses and the library does not: it reads these dtypes only, and takes no name twice.
STRICTER = ("which is not read here", "twice")


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)


def raw(dtype, shape, data):
    return {"dtype": dtype, "shape": list(shape), "data": data}


def read_raw(path):
    return {
        name: (view["dtype"], list(view["shape"]), bytes(view["data"]))
        for name, view in safetensors.deserialize(path.read_bytes())
    }


def metadata(path):
    with safetensors.safe_open(path, framework="numpy") as file:
        return file.metadata()


@unittest.skipIf(LACKS, LACKS)
class Safetensors(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        self.theirs, self.ours = self.folder / "theirs", self.folder / "ours"

    def done(self, *words):
        result = run(*words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def copied(self):
        self.done("--copy", self.theirs, self.ours)
        self.assertEqual(struct.unpack("<Q", self.ours.read_bytes()[:8])[0] % 8, 0)

    def test_arrays_come_back_as_they_went(self):
        random_numbers = numpy.random.default_rng(7)
        arrays = {
            "input_blocks.0.0.weight": random_numbers.standard_normal((64, 3, 3, 3), dtype=numpy.float32),
            "half": random_numbers.standard_normal((5, 7)).astype(numpy.float16),
            "scalar": numpy.array(-0.0, dtype=numpy.float32),
            "special": numpy.array([numpy.nan, numpy.inf, -numpy.inf, 1e-45], dtype=numpy.float32),
            "empty": numpy.zeros((3, 0, 2), dtype=numpy.float32),
            "steps": numpy.array([-(2**63), 2**63 - 1], dtype=numpy.int64),
            "few": numpy.array([[-1, 2]], dtype=numpy.int32),
            "pixels": numpy.arange(11, dtype=numpy.uint8),
            'name with "quotes" and é': numpy.ones(1, dtype=numpy.float32),
        }
        words = {"format": "pt", "config": json.dumps({"channels": 64}), "lines": "one\ntwo\t\\ €", "": ""}
        safetensors.numpy.save_file(arrays, self.theirs, metadata=words)
        self.copied()
        back = safetensors.numpy.load_file(self.ours)
        self.assertEqual(set(back), set(arrays))
        for name, array in arrays.items():
            self.assertEqual((back[name].dtype, back[name].shape), (array.dtype, array.shape), name)
            self.assertEqual(back[name].tobytes(), array.tobytes(), name)
        self.assertEqual(metadata(self.ours), words)

    def test_files_without_metadata_or_tensors(self):
        for arrays in ({}, {"a": numpy.zeros(3, dtype=numpy.float32)}):
            safetensors.numpy.save_file(arrays, self.theirs)
            self.copied()
            self.assertEqual(read_raw(self.ours), read_raw(self.theirs))
            self.assertFalse(metadata(self.ours))

    def test_bfloat16_keeps_its_bits_and_becomes_the_same_numbers(self):
        halves = numpy.random.default_rng(3).integers(0, 2**16, 4096, dtype=numpy.uint16)
        wide = (halves.astype(numpy.uint32) << 16).view(numpy.float32)
        float16 = halves.view(numpy.float16)
        self.theirs.write_bytes(
            safetensors.serialize(
                {
                    "b": raw("bfloat16", (64, 64), halves.tobytes()),
                    "h": raw("float16", (4096,), halves.tobytes()),
                    "f": raw("float32", (2, 2048), wide.tobytes()),
                }
            )
        )
        self.copied()
        self.assertEqual(read_raw(self.ours), read_raw(self.theirs))

        self.done("--floats", self.theirs, self.ours)
        back = safetensors.numpy.load_file(self.ours)
        self.assertEqual(back["b"].tobytes(), wide.tobytes())
        self.assertEqual(back["f"].tobytes(), wide.tobytes())
        self.assertEqual((back["b"].shape, back["f"].shape), ((64, 64), (2, 2048)))
        numpy.testing.assert_array_equal(back["h"], float16.astype(numpy.float32))
        self.assertEqual(back["h"].dtype, numpy.float32)

    def test_what_is_damaged_is_refused_where_the_library_refuses_it(self):
        arrays = {"a": numpy.ones((2, 3), dtype=numpy.float32), "b": numpy.ones(5, dtype=numpy.uint8)}
        safetensors.numpy.save_file(arrays, self.theirs, metadata={"k": "v"})
        whole = self.theirs.read_bytes()
        seed = random.randrange(2**32)
        chance = random.Random(seed)
        texts = [whole, b"", whole[:-1], whole + b"x"]
        header_bytes = 8 + struct.unpack("<Q", whole[:8])[0]
        while len(texts) < 400:
            text = bytearray(whole)
            for _ in range(chance.randint(1, 2)):
                at = chance.randrange(header_bytes)
                what = chance.random()
                if what < 0.4:
                    text[at] = chance.choice(b'0123456789[]{},:"IFU \n\0\xff')
                elif what < 0.6:
                    text[at] ^= 1 << chance.randrange(8)
                elif what < 0.8:
                    text = text[:at] + text[at + 1 :] + b" "
                else:
                    text = text[: chance.randrange(len(text))] or text
                header_bytes = min(header_bytes, len(text))
            header_bytes = 8 + struct.unpack("<Q", whole[:8])[0]
            texts.append(bytes(text))
        paths = []
        for i, text in enumerate(texts):
            paths.append(self.folder / f"{i}.safetensors")
            paths[-1].write_bytes(text)
        verdicts = self.done("--check", *paths).splitlines()
        self.assertEqual(len(verdicts), len(texts), "an error is one line")
        self.assertEqual(verdicts[0], "ok")
        num_refused = 0
        for text, path, verdict in zip(texts, paths, verdicts):
            try:
                safetensors.deserialize(text)
                theirs = "ok"
            except safetensors.SafetensorError as error:
                theirs = str(error)
            num_refused += verdict != "ok"
            if verdict != "ok":
                self.assertIn(str(path), verdict)
            if not any(reason in verdict for reason in STRICTER):
                self.assertEqual(
                    verdict == "ok", theirs == "ok", f"seed {seed}: {text!r}\nhere: {verdict}\nthere: {theirs}"
                )
        self.assertGreater(num_refused, len(texts) // 4)

    def test_a_file_that_is_not_there_is_named(self):
        result = run("--copy", self.folder / "none", self.ours)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        self.assertIn("none", result.stderr)
        self.assertFalse(self.ours.exists())


if __name__ == "__main__":
    sys.exit(unittest.main())
