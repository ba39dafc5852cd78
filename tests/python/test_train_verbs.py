"""`./ladder train` and `./ladder sample`: their errors, the command lines that they hand on, and interrupts."""

import contextlib
import io
import os
import re
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cli import build, device, paths, run, sample, train
from cli.errors import Failure, UsageError
from images import ldata
from made_runs import write_checkpoint, write_ldata

ROOT = Path(__file__).resolve().parents[2]


class Verbs:
    """The verbs around their programs, which a script replaces."""

    SCRIPT = '#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/../../words"\n'

    def __init__(self, scratch, monkeypatch):
        self.scratch = scratch
        self.built = []
        self.program(self.SCRIPT)
        monkeypatch.setattr(build, "folder", lambda preset: self.scratch / preset)
        monkeypatch.setattr(build, "build", lambda preset, targets: self.built.extend(targets))
        monkeypatch.setattr(device, "choose", lambda wanted: device.Choice("emulator", "for a test"))
        monkeypatch.setattr(train.prepare, "sample_set", self.sample_set)
        monkeypatch.setattr(train.prepare, "DATA", self.scratch)
        monkeypatch.setattr(paths, "PRIVATE", self.scratch)
        monkeypatch.setattr(train, "RUNS", self.scratch / "runs")
        monkeypatch.setattr(run.os, "execve", self.execve)

    def program(self, script):
        folder = self.scratch / "emulator" / "train"
        folder.mkdir(parents=True, exist_ok=True)
        for name in (train.PROGRAM, sample.PROGRAM):
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)

    def sample_set(self, size):
        return self.scratch / f"emoji-{size}.ldata"

    def execve(self, program, command, environment):
        self.status = subprocess.run(command, env=environment).returncode

    def verb(self, module, *arguments):
        """Run a verb; returns the program's command line."""
        self.status, self.said = None, io.StringIO()
        with contextlib.redirect_stderr(self.said), contextlib.redirect_stdout(io.StringIO()):
            status = module.main(list(arguments))
        self.status = self.status if status is None else status
        words = self.scratch / "words"
        return words.read_text().splitlines() if words.exists() else None

    def refuses(self, says, module, *arguments):
        with pytest.raises(UsageError, match=says), contextlib.redirect_stderr(io.StringIO()):
            module.main(list(arguments))
        assert self.built == [], "it was built before the mistake was seen"


@pytest.fixture
def verbs(tmp_path, monkeypatch):
    return Verbs(tmp_path, monkeypatch)


def test_what_train_hands_on(verbs):
    assert verbs.verb(train) == [f"--data={verbs.sample_set(64)}", f"--out={verbs.scratch}/runs/unet64-1"]
    assert verbs.built == ["train_unet"]
    words = verbs.verb(train, "--config", "tiny", "--lr", "3e-4", "--flip", "--device", "emulator", "--steps=7")
    assert words == [
        "--config=tiny",
        "--steps=7",
        "--lr=3e-4",
        "--flip",
        f"--data={verbs.sample_set(8)}",
        f"--out={verbs.scratch}/runs/tiny-1",
    ]
    data = write_ldata(verbs.scratch / "mine.ldata", 16)
    assert verbs.verb(train, "--image-size", "16", "--data", data, "--out", "a b") == [
        "--image-size=16",
        f"--data={data}",
        "--out=a b",
    ]


def test_the_next_free_folder(verbs):
    for name in ("unet64-2", "unet64-9", "unet64-x", "tiny-11"):
        (verbs.scratch / "runs" / name).mkdir(parents=True)
    assert f"--out={verbs.scratch}/runs/unet64-10" in verbs.verb(train)
    assert f"--out={verbs.scratch}/runs/unet64-11" in verbs.verb(train)
    assert f"--out={verbs.scratch}/runs/unet64-12" in verbs.verb(train, "--explain")
    assert not (verbs.scratch / "runs" / "unet64-12").exists()


def test_what_learns_nothing_takes_random_images(verbs, monkeypatch):
    """Random images need no sample set, no font and no private Python."""
    monkeypatch.setattr(train.prepare, "sample_set", lambda size: pytest.fail("a sample set of nothing learned"))
    monkeypatch.setattr(device, "choose", lambda wanted: device.Choice("cuda", "for a test"))
    (verbs.scratch / "emulator").rename(verbs.scratch / "cuda")
    for size, *arguments in ((64, "--explain"), (64, "--budget", "x.json"), (8, "--config", "tiny", "--explain")):
        file = verbs.scratch / f"random-{size}.ldata"
        assert f"--data={file}" in verbs.verb(train, *arguments)
        header = ldata.read_header(file)
        assert (header.size, header.held_out, int(header.digest, 16)) == (size, 0, 0)
        images = list(ldata.read_images(file, header, range(header.count)))
        assert header.count == len(set(images)) == 64 and all(len(set(image)) > 100 for image in images)
        written = file.stat().st_mtime_ns
        verbs.verb(train, *arguments)
        assert file.stat().st_mtime_ns == written
    data = write_ldata(verbs.scratch / "mine.ldata", 64)
    assert f"--data={data}" in verbs.verb(train, "--explain", "--data", data)


def test_without_a_sample_set_a_line_says_which_file_to_bring(verbs, monkeypatch):
    def without_network(size):
        raise Failure("installing fonts failed; the end of setup.log:\nE: Unable to locate package")

    monkeypatch.setattr(train.prepare, "sample_set", without_network)
    with pytest.raises(Failure) as failed:
        verbs.verb(train, "--image-size", "32")
    file = verbs.sample_set(32)
    assert str(failed.value) == (
        f"no sample set (installing fonts failed; the end of setup.log): bring {file} from a machine with a network, "
        f"where ./ladder prepare --emoji --size 32 makes it, and give --data {file}"
    )


def test_resume_takes_the_newest_run_and_its_image_size(verbs):
    runs = verbs.scratch / "runs"
    for at, (name, size) in enumerate((("tiny-1", 8), ("unet64-4", 64), ("tiny-3", 16))):
        write_checkpoint(runs / name, size)
        os.utime(runs / name / "checkpoints" / "step_00000003", (at + 1, at + 1))
    (runs / "tiny-7").mkdir()
    assert verbs.verb(train, "--resume") == [f"--data={verbs.sample_set(16)}", f"--out={runs}/tiny-3", "--resume"]
    assert "going on with " in verbs.said.getvalue()
    assert f"--out={runs}/unet64-4" in verbs.verb(train, "--resume", "--config", "unet64")
    assert f"--data={verbs.sample_set(8)}" in verbs.verb(train, "--resume", "--out", str(runs / "tiny-1"))
    (runs / "tiny-3" / "options.json").write_text("{}")  # options.json names the run's data file
    assert verbs.verb(train, "--resume") == [f"--out={runs}/tiny-3", "--resume"]
    (runs / "tiny-3" / "checkpoints" / "step_00000003" / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(Failure, match="newest checkpoint in '.*tiny-3' cannot be read"):
        verbs.verb(train, "--resume")


def test_resume_passes_over_what_is_damaged_or_half_there(verbs):
    out = verbs.scratch / "run"
    checkpoints = out / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "step_00000001.partial").mkdir()  # a training killed in its first checkpoint begins anew
    assert f"--out={out}" in verbs.verb(train, "--out", str(out))
    verbs.built.clear()
    verbs.refuses("holds no checkpoint", train, "--resume", "--out", str(out))
    write_checkpoint(out, 8, number=2)
    write_checkpoint(out, 16, number=4)
    for latest, size in (("step_00000002", 8), ("step_00000004\n", 16), ("", 16), ("../../etc", 16), (None, 16)):
        (checkpoints / "latest").unlink(missing_ok=True)
        if latest is not None:
            (checkpoints / "latest").write_text(latest)
        assert f"--data={verbs.sample_set(size)}" in verbs.verb(train, "--resume", "--out", str(out)), latest
    (checkpoints / "step_00000004" / "model.safetensors").write_bytes(b"broken")
    assert f"--data={verbs.sample_set(8)}" in verbs.verb(train, "--resume", "--out", str(out))
    verbs.built.clear()
    verbs.refuses("holds a training already", train, "--out", str(out))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("5", "no configuration: it is no object of JSON"),
        ("[" * 100_000, "no configuration: nested too deeply"),
        ('{"steps": NaN}', "no configuration: NaN is no number of JSON"),
        ('{"model": null}', "no model.image_size, a whole number of at least 1"),
        ('{"model": []}', "no model.image_size"),
        ('{"model": {}}', "no model.image_size"),
        ('{"model": {"image_size": 8.5}}', "no model.image_size"),
    ],
)
def test_a_checkpoint_without_a_whole_configuration_is_named(verbs, config, says):
    write_checkpoint(verbs.scratch / "runs" / "tiny-1", 8, config=config)
    with pytest.raises(Failure, match=re.escape(says)) as raised:
        verbs.verb(train, "--resume")
    assert "tiny-1" in str(raised.value) and len(str(raised.value).splitlines()) == 1


def test_what_the_system_refuses_is_one_line():
    done = subprocess.run([ROOT / "ladder", "train", "--data", "a" * 300], text=True, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == f"ladder: {'a' * 300}: File name too long\n"


def test_what_train_refuses_before_a_build(verbs):
    small = write_ldata(verbs.scratch / "small.ldata", 4)
    write_checkpoint(verbs.scratch / "taken", 8)
    for says, *arguments in (
        ("--lr: a number above 0, not '0'", "--lr", "0"),
        ("--lr: .*'1_0'", "--lr", "1_0"),
        ("--lr: .*'nan'", "--lr", "nan"),
        ("--lr: .*'1.2.3'", "--lr", "1.2.3"),
        ("--beta1: .*below 1", "--beta1", "1"),
        ("--steps: a whole number of at least 1, not '0'", "--steps", "0"),
        ("--batch: .*'2.5'", "--batch", "2.5"),
        ("--seed: .* from 0 to", "--seed", str(2**63)),
        ("--channel-mult: .*: 1,2,3,4, not '1,,2'", "--channel-mult", "1,,2"),
        ("invalid choice: 'unet65'", "--config", "unet65"),
        ("invalid choice: 'fp16'", "--dtype", "fp16"),
        ("unrecognized arguments: --learning-rate", "--learning-rate", "1"),
        ("no multiple", "--batch=3", "--micro-batches=2"),
        ("no file 'nowhere'", "--data", "nowhere"),
        ("no file 'nowhere'", "--init-weights", "nowhere"),
        ("images of 4 pixels a side, the model takes 64: ./ladder prepare --size 64", "--data", small),
        ("the model takes 8", "--config", "tiny", "--data", small),
        ("exclude", "--overfit-batch", "--no-overfit-batch"),
        ("no run with a checkpoint", "--resume"),
        ("no run of tiny", "--resume", "--config", "tiny"),
        ("holds no checkpoint", "--resume", "--out", str(verbs.scratch)),
        ("holds a training already", "--out", str(verbs.scratch / "taken")),
        ("no sample set of 2 pixels a side", "--image-size", "2"),
        ("needs a GPU", "--budget", "x.json"),
        ("no folder 'no/where'", "--budget", "no/where/x.json"),
        ("leave no log", "--tensorboard", "--explain"),
        ("--out: it is empty", "--out", ""),
    ):
        verbs.refuses(says, train, *arguments)


def test_what_sample_hands_on(verbs):
    words = verbs.verb(sample, str(verbs.scratch), "--count", "4", "--no-ema", "--eta=50", "--device", "emulator")
    assert words == [str(verbs.scratch), "--eta=50", "--count=4", "--no-ema", f"--out={verbs.scratch}/samples.png"]
    assert verbs.built == ["sample_unet"]
    checkpoint = verbs.scratch / "checkpoints" / "step_00000001"
    checkpoint.mkdir(parents=True)
    assert verbs.verb(sample, str(checkpoint))[-1] == f"--out={verbs.scratch}/samples.png"
    mine = verbs.scratch / "mine.png"
    assert verbs.verb(sample, str(checkpoint), "--out", str(mine)) == [str(checkpoint), f"--out={mine}"]


def test_what_sample_refuses_before_a_build(verbs):
    there = str(verbs.scratch)
    for says, *arguments in (
        ("sample needs a run's folder",),
        ("no folder 'nowhere'", "nowhere"),
        ("from 1 to 1000", there, "--steps", "1001"),
        ("from 0 to 100", there, "--eta", "-1"),
        ("invalid choice: 'euler'", there, "--sampler", "euler"),
        ("exclude", there, "--ema", "--no-ema"),
        ("ends in .npz", there, "--npz", "a.zip"),
        ("no folder 'no/where'", there, "--out", "no/where/a.png"),
        ("unrecognized", there, there),
    ):
        verbs.refuses(says, sample, *arguments)


def test_npz_is_what_numpy_writes(verbs):
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 1, 3), }".ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(range(6))
    (verbs.scratch / "array").write_bytes(array)
    copy = 'for word; do case $word in --npy=*) cp "$(dirname "$0")/../../array" "${word#--npy=}";; esac; done\n'
    verbs.program(verbs.SCRIPT + copy)
    npz = verbs.scratch / "samples.npz"
    assert "--npz" not in " ".join(verbs.verb(sample, str(verbs.scratch), "--npz", str(npz)))
    assert verbs.status == 0
    with zipfile.ZipFile(npz) as archive:
        assert [(entry.filename, entry.compress_type) for entry in archive.infolist()] == [
            ("arr_0.npy", zipfile.ZIP_STORED)
        ]
        assert archive.read("arr_0.npy") == array
    npz.unlink()
    npy = verbs.scratch / "mine.npy"
    verbs.verb(sample, str(verbs.scratch), "--npz", str(npz), "--npy", str(npy))
    assert (npy.read_bytes(), npz.exists()) == (array, True)
    npz.unlink()
    verbs.program("#!/bin/sh\nexit 1\n")
    verbs.verb(sample, str(verbs.scratch), "--npz", str(npz))
    assert (verbs.status, npz.exists()) == (1, False)
    assert [path.name for path in verbs.scratch.glob(".sample.*")] == []


def test_the_programs_status_is_the_verbs(verbs):
    verbs.program("#!/bin/sh\nexit 130\n")
    verbs.verb(train)
    assert verbs.status == 130


def interrupted(program):
    """Returns (status, output) of ./ladder whose process group gets SIGINT, as from a terminal, during `program`."""
    script = (
        "import sys\nfrom cli import options, run\n"
        "sys.exit(options.run(lambda words: run.passed_on(['/bin/sh', '-c', words[0]])))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, program],
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
    )
    assert process.stdout.readline() == "begun\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert err == ""
    return process.returncode, out


def test_an_interrupt_arrives_once_and_the_program_ends_by_itself():
    status, out = interrupted(
        "n=0; trap 'n=$((n+1))' INT; echo begun; i=0; while [ $i -lt 20 ]; do "
        "i=$((i+1)); sleep 0.05; done; echo saved $n; exit 130"
    )
    assert (status, out) == (130, "saved 1\n")


def test_a_program_that_a_signal_ends():
    assert interrupted("echo begun; exec sleep 60") == (130, "")
