"""`train_unet` and `sample_unet` as they are built, beside what `./ladder train` and `./ladder sample` say of them."""

import json
import signal
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from cli import sample, train
from made_runs import write_ldata

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "emulator" / "train"
DIGEST = "f13e3eda06540948f35234891644bcbd"  # XXH3 of write_ldata(size=8)'s first 40 bytes and pixels


def program(name, *arguments):
    if not (BUILT / name).exists():
        pytest.skip(f"{name} is not built: ./ladder build --preset emulator {name}")
    return subprocess.run([BUILT / name, *arguments], capture_output=True, text=True)


def test_the_descriptions_of_their_flags_are_fresh():
    for name in (train.PROGRAM, sample.PROGRAM):
        done = program(name, "--describe")
        assert (done.returncode, done.stderr) == (0, "")
        file = ROOT / "train" / f"{name}.json"
        assert done.stdout == file.read_text(encoding="utf-8"), f"{name} --describe > {file}"


def test_they_refuse_what_the_descriptions_do_not_allow():
    for says, name, *arguments in (
        ("--steps: a number in [1, ), not '0'", train.PROGRAM, "--out", "x", "--steps", "0"),
        ("--beta1: a number in [0, 1), not '1'", train.PROGRAM, "--out", "x", "--beta1", "1"),
        ("--lr: a number in (0, ), not '0'", train.PROGRAM, "--out", "x", "--lr", "0"),
        ("--channel-mult: ", train.PROGRAM, "--out", "x", "--channel-mult", "1,,2"),
        ("--dtype: one of bf16, tf32, fp32, not 'fp16'", train.PROGRAM, "--out", "x", "--dtype", "fp16"),
        ("--eta: a number in [0, 100], not '101'", sample.PROGRAM, "x", "--eta", "101"),
        ("--sampler: one of ddim, ddpm, not 'euler'", sample.PROGRAM, "x", "--sampler", "euler"),
    ):
        done = program(name, *arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert says in done.stderr


def test_the_image_sizes_of_the_configurations(tmp_path):
    data = write_ldata(tmp_path / "small.ldata", size=4)
    for name, size in train.IMAGE_SIZES.items():
        done = program("train_unet", "--config", name, "--data", data, "--out", f"{tmp_path}/out")
        assert done.returncode == 2, done.stderr
        assert f"has images of 4 pixels a side, the model takes {size}:" in done.stderr
    assert (
        f"--config: one of {', '.join(train.IMAGE_SIZES)}, not 'x'"
        in program("train_unet", "--config", "x", "--data", "y", "--out", "z").stderr
    )


def test_tiny_learns_is_interrupted_goes_on_and_is_sampled(tmp_path):
    if not (BUILT / "train_unet").exists() or not (BUILT / "sample_unet").exists():
        pytest.skip("not built: ./ladder build --preset emulator train_unet sample_unet")
    data, out = write_ldata(tmp_path / "a.ldata", 8, digest=DIGEST), tmp_path / "run"
    command = [BUILT / "train_unet", "--config", "tiny", "--data", data, "--out", out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("step 2/30  loss"):  # and not at its checkpoint
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    config = train.checkpoint_config(out)
    assert (config["name"], config["model"]["image_size"], config["overfit_batch"], config["batch"]) == (
        "tiny",
        8,
        True,
        2,
    )
    done = program("train_unet", "--resume", "--steps", str(len(losses) + 1), "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((out / "log.jsonl").read_text().splitlines()) == len(losses) + 1
    npz = tmp_path / "samples.npz"
    done = subprocess.run(
        [
            ROOT / "ladder",
            "sample",
            out,
            "--device",
            "emulator",
            "--steps",
            "1",
            "--count",
            "2",
            "--out",
            tmp_path / "samples.png",
            "--npz",
            npz,
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert ".npy" not in done.stdout
    with zipfile.ZipFile(npz) as archive:
        array = archive.read("arr_0.npy")
    assert b"'shape': (2, 8, 8, 3" in array[:128]
    assert (array[:6], len(array)) == (b"\x93NUMPY", 128 + 2 * 8 * 8 * 3)


def overflowing(source, path):
    """Weights that are finite, and whose prediction is not: all of the first convolution 3e38."""
    data = bytearray(source.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8 : 8 + length])["input_blocks.0.0.weight"]["data_offsets"]
    values = struct.pack("<f", 3e38) * ((end - begin) // 4)
    data[8 + length + begin : 8 + length + end] = values
    path.write_bytes(data)
    return path


def test_a_prediction_that_is_not_finite_makes_no_picture(tmp_path):
    data = write_ldata(tmp_path / "a.ldata", 8, digest=DIGEST)
    training = ("train_unet", "--config", "tiny", "--data", data, "--batch", "1", "--steps", "1")
    assert program(*training, "--out", tmp_path / "good").returncode == 0
    weights = overflowing(tmp_path / "good/checkpoints/step_00000001/model.safetensors", tmp_path / "w.safetensors")
    run = tmp_path / "run"
    assert program(*training, "--out", run, "--init-weights", weights).returncode == 0
    files = [tmp_path / name for name in ("a.png", "a.npy")]
    done = program(
        "sample_unet", run, "--steps", "1", "--count", "2", "--batch", "1", "--out", files[0], "--npy", files[1]
    )
    says = "sample_unet: image 0 has a number that is not finite: the network's prediction is not finite\n"
    assert (done.returncode, done.stderr) == (1, says)
    assert not any(file.exists() for file in files)
