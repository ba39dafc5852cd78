"""The trainer's safetensors reader and writer against the format's own library, both ways."""

import json
import random
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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

pytestmark = pytest.mark.skipif(bool(LACKS), reason=LACKS)

# Reasons for which only the trainer refuses a file: a dtype that it does not read, a name that occurs twice.
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


class Safetensors:
    def __init__(self, tmp_path):
        self.folder = tmp_path
        self.theirs, self.ours = self.folder / "theirs", self.folder / "ours"

    def done(self, *words):
        result = run(*words)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def copied(self):
        self.done("--copy", self.theirs, self.ours)
        assert struct.unpack("<Q", self.ours.read_bytes()[:8])[0] % 8 == 0


@pytest.fixture
def files(tmp_path):
    return Safetensors(tmp_path)


def test_arrays_come_back_as_they_went(files):
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
    safetensors.numpy.save_file(arrays, files.theirs, metadata=words)
    files.copied()
    back = safetensors.numpy.load_file(files.ours)
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape), name
        assert back[name].tobytes() == array.tobytes(), name
    assert metadata(files.ours) == words


@pytest.mark.parametrize("arrays", [{}, {"a": numpy.zeros(3, dtype=numpy.float32)}])
def test_files_without_metadata_or_tensors(files, arrays):
    safetensors.numpy.save_file(arrays, files.theirs)
    files.copied()
    assert read_raw(files.ours) == read_raw(files.theirs)
    assert not metadata(files.ours)


def test_bfloat16_keeps_its_bits_and_becomes_the_same_numbers(files):
    halves = numpy.random.default_rng(3).integers(0, 2**16, 4096, dtype=numpy.uint16)
    wide = (halves.astype(numpy.uint32) << 16).view(numpy.float32)
    float16 = halves.view(numpy.float16)
    files.theirs.write_bytes(
        safetensors.serialize(
            {
                "b": raw("bfloat16", (64, 64), halves.tobytes()),
                "h": raw("float16", (4096,), halves.tobytes()),
                "f": raw("float32", (2, 2048), wide.tobytes()),
            }
        )
    )
    files.copied()
    assert read_raw(files.ours) == read_raw(files.theirs)

    files.done("--floats", files.theirs, files.ours)
    back = safetensors.numpy.load_file(files.ours)
    assert back["b"].tobytes() == wide.tobytes()
    assert back["f"].tobytes() == wide.tobytes()
    assert (back["b"].shape, back["f"].shape) == ((64, 64), (2, 2048))
    numpy.testing.assert_array_equal(back["h"], float16.astype(numpy.float32))
    assert back["h"].dtype == numpy.float32


def test_what_is_damaged_is_refused_where_the_library_refuses_it(files):
    arrays = {"a": numpy.ones((2, 3), dtype=numpy.float32), "b": numpy.ones(5, dtype=numpy.uint8)}
    safetensors.numpy.save_file(arrays, files.theirs, metadata={"k": "v"})
    whole = files.theirs.read_bytes()
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
        paths.append(files.folder / f"{i}.safetensors")
        paths[-1].write_bytes(text)
    verdicts = files.done("--check", *paths).splitlines()
    assert len(verdicts) == len(texts), "an error is one line"
    assert verdicts[0] == "ok"
    num_refused = 0
    for text, path, verdict in zip(texts, paths, verdicts):
        try:
            safetensors.deserialize(text)
            theirs = "ok"
        except safetensors.SafetensorError as error:
            theirs = str(error)
        num_refused += verdict != "ok"
        if verdict != "ok":
            assert str(path) in verdict
        if not any(reason in verdict for reason in STRICTER):
            assert (verdict == "ok") == (theirs == "ok"), f"seed {seed}: {text!r}\nhere: {verdict}\nthere: {theirs}"
    assert num_refused > len(texts) // 4


def test_a_file_that_is_not_there_is_named(files):
    result = run("--copy", files.folder / "none", files.ours)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
    assert "none" in result.stderr
    assert not files.ours.exists()
