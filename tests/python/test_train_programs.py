"""`./ladder train` and `./ladder sample`: what they refuse and what they hand on; the programs know the same flags."""

import contextlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from cli import build, device, run, sample, setup, tensorboard, train, wheels  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402

BUILT = ROOT / "build" / "emulator" / "train"
DIGEST = "f13e3eda06540948f35234891644bcbd"  # XXH3 of write_ldata(size=8)'s first 40 bytes and pixels


def write_ldata(path, size, count=3, digest=""):
    path.write_bytes(
        struct.pack("<8sIIIIQQ", b"LADDATA\n", 1, size, 3, 0, count, 1)
        + bytes.fromhex(digest).ljust(88, b"\0")
        + bytes(count * size * size * 3)
    )
    return str(path)


def write_checkpoint(run_folder, image_size, number=3):
    """As much of one as the verb reads."""
    step = run_folder / "checkpoints" / f"step_{number:08}"
    step.mkdir(parents=True)
    (step.parent / "latest").write_text(step.name)
    for part in ("ema", "optimizer"):
        (step / f"{part}.safetensors").touch()
    header = json.dumps({"__metadata__": {"config": json.dumps({"model": {"image_size": image_size}})}}).encode()
    (step / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


class Programs(unittest.TestCase):
    """The built programs beside what the verbs say of them."""

    def program(self, name, *arguments):
        if not (BUILT / name).exists():
            self.skipTest(f"{name} is not built: ./ladder build --preset emulator {name}")
        return subprocess.run([BUILT / name, *arguments], capture_output=True, text=True)

    def test_the_descriptions_of_their_flags_are_fresh(self):
        for name in (train.PROGRAM, sample.PROGRAM):
            done = self.program(name, "--describe")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            file = ROOT / "train" / f"{name}.json"
            self.assertEqual(done.stdout, file.read_text(encoding="utf-8"), f"{name} --describe > {file}")

    def test_they_refuse_what_the_descriptions_do_not_allow(self):
        for says, name, *arguments in (
            ("--steps: a number in [1, ), not '0'", train.PROGRAM, "--out", "x", "--steps", "0"),
            ("--beta1: a number in [0, 1), not '1'", train.PROGRAM, "--out", "x", "--beta1", "1"),
            ("--lr: a number in (0, ), not '0'", train.PROGRAM, "--out", "x", "--lr", "0"),
            ("--channel-mult: ", train.PROGRAM, "--out", "x", "--channel-mult", "1,,2"),
            ("--dtype: one of bf16, tf32, fp32, not 'fp16'", train.PROGRAM, "--out", "x", "--dtype", "fp16"),
            ("--eta: a number in [0, 100], not '101'", sample.PROGRAM, "x", "--eta", "101"),
            ("--sampler: one of ddim, ddpm, not 'euler'", sample.PROGRAM, "x", "--sampler", "euler"),
        ):
            done = self.program(name, *arguments)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            self.assertIn(says, done.stderr)

    def test_the_image_sizes_of_the_configurations(self):
        with tempfile.TemporaryDirectory() as folder:
            data = write_ldata(Path(folder) / "small.ldata", size=4)
            for name, size in train.IMAGE_SIZES.items():
                done = self.program("train_unet", "--config", name, "--data", data, "--out", f"{folder}/out")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"has images of 4 pixels a side, the model takes {size}:", done.stderr)
        self.assertIn(
            f"--config: one of {', '.join(train.IMAGE_SIZES)}, not 'x'",
            self.program("train_unet", "--config", "x", "--data", "y", "--out", "z").stderr,
        )

    def test_tiny_learns_is_interrupted_goes_on_and_is_sampled(self):
        if not (BUILT / "train_unet").exists() or not (BUILT / "sample_unet").exists():
            self.skipTest("not built: ./ladder build --preset emulator train_unet sample_unet")
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        data, out = write_ldata(Path(scratch.name) / "a.ldata", 8, digest=DIGEST), Path(scratch.name) / "run"
        command = [BUILT / "train_unet", "--config", "tiny", "--data", data, "--out", out]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if line.startswith("step 2/30  loss"):  # and not at its checkpoint
                    process.send_signal(signal.SIGINT)
        self.assertEqual(process.returncode, 130)
        losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
        self.assertLess(losses[-1], losses[0])
        config = train.checkpoint_config(out)
        self.assertEqual(
            (config["name"], config["model"]["image_size"], config["overfit_batch"], config["batch"]),
            ("tiny", 8, True, 2),
        )
        done = self.program("train_unet", "--resume", "--steps", str(len(losses) + 1), "--out", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len((out / "log.jsonl").read_text().splitlines()), len(losses) + 1)
        npz = Path(scratch.name) / "samples.npz"
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
                Path(scratch.name) / "samples.png",
                "--npz",
                npz,
            ],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(".npy", done.stdout)
        with zipfile.ZipFile(npz) as archive:
            array = archive.read("arr_0.npy")
        self.assertIn(b"'shape': (2, 8, 8, 3", array[:128])
        self.assertEqual((array[:6], len(array)), (b"\x93NUMPY", 128 + 2 * 8 * 8 * 3))


class Verb(unittest.TestCase):
    """What the verbs do around the programs, which are a script here."""

    SCRIPT = '#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/../../words"\n'

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.built = []
        self.program(self.SCRIPT)
        for patch in (
            mock.patch.object(build, "folder", lambda preset: self.scratch / preset),
            mock.patch.object(build, "build", lambda preset, targets: self.built.extend(targets)),
            mock.patch.object(device, "choose", lambda wanted: device.Choice("emulator", "for a test")),
            mock.patch.object(train.prepare, "sample_set", self.sample_set),
            mock.patch.object(train, "RUNS", self.scratch / "runs"),
            mock.patch.object(run.os, "execve", self.execve),
        ):
            patch.start()
            self.addCleanup(patch.stop)

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
        """The program's words."""
        self.status, self.said = None, io.StringIO()
        with contextlib.redirect_stderr(self.said), contextlib.redirect_stdout(io.StringIO()):
            status = module.main(list(arguments))
        self.status = self.status if status is None else status
        words = self.scratch / "words"
        return words.read_text().splitlines() if words.exists() else None

    def refuses(self, says, module, *arguments):
        with self.assertRaisesRegex(UsageError, says), contextlib.redirect_stderr(io.StringIO()):
            module.main(list(arguments))
        self.assertEqual(self.built, [], "it was built before the mistake was seen")

    def test_what_train_hands_on(self):
        self.assertEqual(self.verb(train), [f"--data={self.sample_set(64)}", f"--out={self.scratch}/runs/unet64-1"])
        self.assertEqual(self.built, ["train_unet"])
        words = self.verb(train, "--config", "tiny", "--lr", "3e-4", "--flip", "--device", "emulator", "--steps=7")
        self.assertEqual(
            words,
            [
                "--config=tiny",
                "--steps=7",
                "--lr=3e-4",
                "--flip",
                f"--data={self.sample_set(8)}",
                f"--out={self.scratch}/runs/tiny-1",
            ],
        )
        data = write_ldata(self.scratch / "mine.ldata", 16)
        self.assertEqual(
            self.verb(train, "--image-size", "16", "--data", data, "--out", "a b"),
            ["--image-size=16", f"--data={data}", "--out=a b"],
        )

    def test_the_next_free_folder(self):
        for name in ("unet64-2", "unet64-9", "unet64-x", "tiny-11"):
            (self.scratch / "runs" / name).mkdir(parents=True)
        self.assertIn(f"--out={self.scratch}/runs/unet64-10", self.verb(train))
        self.assertIn(f"--out={self.scratch}/runs/unet64-11", self.verb(train))
        self.assertIn(f"--out={self.scratch}/runs/unet64-12", self.verb(train, "--explain"))
        self.assertFalse((self.scratch / "runs" / "unet64-12").exists())

    def test_resume_takes_the_newest_run_and_its_image_size(self):
        runs = self.scratch / "runs"
        for at, (name, size) in enumerate((("tiny-1", 8), ("unet64-4", 64), ("tiny-3", 16))):
            write_checkpoint(runs / name, size)
            os.utime(runs / name / "checkpoints" / "step_00000003", (at + 1, at + 1))
        (runs / "tiny-7").mkdir()
        self.assertEqual(
            self.verb(train, "--resume"), [f"--data={self.sample_set(16)}", f"--out={runs}/tiny-3", "--resume"]
        )
        self.assertIn("going on with ", self.said.getvalue())
        self.assertIn(f"--out={runs}/unet64-4", self.verb(train, "--resume", "--config", "unet64"))
        self.assertIn(f"--data={self.sample_set(8)}", self.verb(train, "--resume", "--out", str(runs / "tiny-1")))
        (runs / "tiny-3" / "options.json").write_text("{}")  # which says where the run's data are
        self.assertEqual(self.verb(train, "--resume"), [f"--out={runs}/tiny-3", "--resume"])
        (runs / "tiny-3" / "checkpoints" / "step_00000003" / "model.safetensors").write_bytes(b"broken")
        with self.assertRaisesRegex(Failure, "newest checkpoint in '.*tiny-3' cannot be read"):
            self.verb(train, "--resume")

    def test_resume_passes_over_what_is_damaged_or_half_there(self):
        out = self.scratch / "run"
        checkpoints = out / "checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "step_00000001.partial").mkdir()  # a training killed in its first checkpoint begins anew
        self.assertIn(f"--out={out}", self.verb(train, "--out", str(out)))
        self.built.clear()
        self.refuses("holds no checkpoint", train, "--resume", "--out", str(out))
        write_checkpoint(out, 8, number=2)
        write_checkpoint(out, 16, number=4)
        for latest, size in (("step_00000002", 8), ("step_00000004\n", 16), ("", 16), ("../../etc", 16), (None, 16)):
            (checkpoints / "latest").unlink(missing_ok=True)
            if latest is not None:
                (checkpoints / "latest").write_text(latest)
            self.assertIn(f"--data={self.sample_set(size)}", self.verb(train, "--resume", "--out", str(out)), latest)
        (checkpoints / "step_00000004" / "model.safetensors").write_bytes(b"broken")
        self.assertIn(f"--data={self.sample_set(8)}", self.verb(train, "--resume", "--out", str(out)))
        self.built.clear()
        self.refuses("holds a training already", train, "--out", str(out))

    def test_what_the_system_refuses_is_one_line(self):
        done = subprocess.run([ROOT / "ladder", "train", "--data", "a" * 300], text=True, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, f"ladder: {'a' * 300}: File name too long\n")

    def test_what_train_refuses_before_a_build(self):
        small = write_ldata(self.scratch / "small.ldata", 4)
        write_checkpoint(self.scratch / "taken", 8)
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
            ("holds no checkpoint", "--resume", "--out", str(self.scratch)),
            ("holds a training already", "--out", str(self.scratch / "taken")),
            ("no sample set of 2 pixels a side", "--image-size", "2"),
            ("needs a GPU", "--budget", "x.json"),
            ("no folder 'no/where'", "--budget", "no/where/x.json"),
            ("leave no log", "--tensorboard", "--explain"),
            ("--out: it is empty", "--out", ""),
        ):
            with self.subTest(arguments=arguments):
                self.refuses(says, train, *arguments)

    def test_what_sample_hands_on(self):
        words = self.verb(sample, str(self.scratch), "--count", "4", "--no-ema", "--eta=50", "--device", "emulator")
        self.assertEqual(words, [str(self.scratch), "--eta=50", "--count=4", "--no-ema"])
        self.assertEqual(self.built, ["sample_unet"])

    def test_what_sample_refuses_before_a_build(self):
        there = str(self.scratch)
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
            with self.subTest(arguments=arguments):
                self.refuses(says, sample, *arguments)

    def test_npz_is_what_numpy_writes(self):
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 1, 3), }".ljust(117) + b"\n"
        array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(range(6))
        (self.scratch / "array").write_bytes(array)
        copy = 'for word; do case $word in --npy=*) cp "$(dirname "$0")/../../array" "${word#--npy=}";; esac; done\n'
        self.program(self.SCRIPT + copy)
        npz = self.scratch / "samples.npz"
        self.assertNotIn("--npz", " ".join(self.verb(sample, str(self.scratch), "--npz", str(npz))))
        self.assertEqual(self.status, 0)
        with zipfile.ZipFile(npz) as archive:
            self.assertEqual(
                [(entry.filename, entry.compress_type) for entry in archive.infolist()],
                [("arr_0.npy", zipfile.ZIP_STORED)],
            )
            self.assertEqual(archive.read("arr_0.npy"), array)
        npz.unlink()
        npy = self.scratch / "mine.npy"
        self.verb(sample, str(self.scratch), "--npz", str(npz), "--npy", str(npy))
        self.assertEqual((npy.read_bytes(), npz.exists()), (array, True))
        npz.unlink()
        self.program("#!/bin/sh\nexit 1\n")
        self.verb(sample, str(self.scratch), "--npz", str(npz))
        self.assertEqual((self.status, npz.exists()), (1, False))
        self.assertEqual([path.name for path in self.scratch.glob(".sample.*")], [])

    def test_the_programs_status_is_the_verbs(self):
        self.program("#!/bin/sh\nexit 130\n")
        self.verb(train)
        self.assertEqual(self.status, 130)


class PassedOn(unittest.TestCase):
    def interrupted(self, program):
        """(status, output) of a ladder whose whole group is sent SIGINT, as a terminal does, while `program` runs."""
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
        self.assertEqual(process.stdout.readline(), "begun\n")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(err, "")
        return process.returncode, out

    def test_an_interrupt_arrives_once_and_the_program_ends_by_itself(self):
        status, out = self.interrupted(
            "n=0; trap 'n=$((n+1))' INT; echo begun; i=0; while [ $i -lt 20 ]; do "
            "i=$((i+1)); sleep 0.05; done; echo saved $n; exit 130"
        )
        self.assertEqual((status, out), (130, "saved 1\n"))

    def test_a_program_that_a_signal_ends(self):
        self.assertEqual(self.interrupted("echo begun; exec sleep 60"), (130, ""))


class TensorBoard(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.log = Path(scratch.name) / "log.jsonl"
        self.events = Path(scratch.name) / "tensorboard"

    def test_a_line_of_the_log(self):
        line = '{"step": 3, "loss": 0.5, "images": 96, "loss_by_quartile_of_t": [1, null, 2, 3]}'
        self.assertEqual(
            tensorboard.scalars(line),
            [
                ("loss/training", 0.5, 3),
                ("loss by time step/0 to 249", 1, 3),
                ("loss by time step/500 to 749", 2, 3),
                ("loss by time step/750 to 999", 3, 3),
            ],
        )
        self.assertEqual(tensorboard.scalars('{"step": 4, "held_out_loss": 0.25}'), [("loss/held out", 0.25, 4)])

    def test_a_line_is_read_when_it_is_whole(self):
        reader = tensorboard.Reader(self.log)
        self.assertEqual(reader.lines(), [])
        self.log.write_text("a\nb")
        self.assertEqual(reader.lines(), ["a"])
        self.log.write_text("a\nbc\nd\n")
        self.assertEqual(reader.lines(), ["bc", "d"])
        self.log.write_text("e\n")
        self.assertEqual(reader.lines(), ["e"])

    def test_events_of_a_log(self):
        python = wheels.python_with(wheels.TENSORBOARD, setup.LOG)
        lines = [{"step": 1, "loss": 1.5}, {"step": 2, "loss": 1.25, "ms_a_step": 8}]
        self.log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.events.mkdir()
        (self.events / "old").write_text("of another training")
        env = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [python, "-m", "cli.tensorboard", self.log, self.events],
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        script = textwrap.dedent("""\
            import struct, sys
            from tensorboardX.proto.event_pb2 import Event
            data, at = open(sys.argv[1], "rb").read(), 0
            while at < len(data):
                (length,) = struct.unpack_from("<Q", data, at)
                event = Event.FromString(data[at + 12 : at + 12 + length])
                at += 12 + length + 4
                for value in event.summary.value:
                    print(event.step, value.tag, value.simple_value)
            """)
        (file,) = self.events.iterdir()
        self.assertEqual(
            subprocess.check_output([python, "-c", script, file], text=True),
            "1 loss/training 1.5\n2 loss/training 1.25\n2 speed/ms_a_step 8.0\n",
        )


if __name__ == "__main__":
    unittest.main()
