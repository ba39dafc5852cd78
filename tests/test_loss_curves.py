"""A recorded training beside PyTorch's: the record made of two logs, and the table and picture made of the record."""

import contextlib
import io
import json
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from cli import setup, wheels  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402
from readme import generated, ladder_table, loss_curves  # noqa: E402

README = "before\n<!-- training:begin run -->\nold\n<!-- training:end -->\nafter\n"
CONFIG = {"name": "unet64", "dtype": "bf16", "batch": 32, "steps": 30}


def side(**more):
    return {
        "steps": 30,
        "wall_seconds": 3725.0,
        "ms_a_step": 8.25,
        "final_loss": 0.03125,
        "step": [10, 20, 30],
        "loss": [1.0, 0.5, 0.25],
        "loss_ema": [1.0, 0.75, 0.5],
        "held_out": {"step": [0, 30], "loss": [1.0, 0.0625]},
        **more,
    }


def record(**more):
    return {
        "schema": "ladder.training-run/1",
        "created": "2026-01-02T00:00:00Z",
        "device": "NVIDIA H200",
        "commit": "abc1234def56",
        "command": "./ladder train --steps 30",
        "config": CONFIG,
        "ladder": side(),
        "pytorch": side(
            how="PyTorch 2.9.0, bf16, compile, graph",
            wall_seconds=65.0,
            held_out={"step": [30], "loss": [0.07], "loss_of_average": [0.05]},
        ),
        **more,
    }


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "train").mkdir()
        self.readme = self.root / "train" / "README.md"
        self.readme.write_text(README)
        self.picture = self.root / "results" / "training_curves.svg"
        (self.root / "results" / "h200").mkdir(parents=True)

    def record(self, raw, name="2026-01-02_abc1234_training-run.json"):
        (self.root / "results" / "h200" / name).write_text(json.dumps(raw))

    def drawn(self, raw):
        """The picture as far as checks look at it; drawing takes matplotlib."""
        title = f"unet64, batch 32, on {raw['device']}"
        curves = {
            name: [
                raw[name]["step"],
                raw[name]["loss"],
                raw[name]["loss_ema"],
                raw[name]["held_out"]["step"],
                raw[name]["held_out"]["loss"],
            ]
            for name in ("ladder", "pytorch")
            if raw[name]
        }
        self.picture.write_text(f"<svg>{generated.description(title, curves)}</svg>")

    def run_tool(self, *arguments, tool=loss_curves):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = tool.main(["--root", str(self.root), *arguments])
        return status, errors.getvalue()


class Table(Made):
    def test_without_a_record_it_says_so(self):
        self.assertEqual(self.run_tool(), (0, ""))
        self.assertIn("*No record yet: `tools/readme/loss_curves.py --make`", self.readme.read_text())
        self.assertFalse(self.picture.exists())
        self.assertEqual(self.run_tool("--check"), (0, ""))

    def test_the_table(self):
        self.record(record())
        self.record(record(created="2026-01-01T00:00:00Z", device="of yesterday"), "2026-01-03_f_training-run.json")
        self.drawn(record())
        self.assertEqual(self.run_tool(), (0, ""))
        self.assertEqual(
            self.readme.read_text().splitlines()[2:7],
            [
                "**NVIDIA H200**, unet64, bf16, batch 32, commit abc1234def: `./ladder train --steps 30`",
                "",
                "| | steps | ms a step | wall time | final training loss | held-out loss | held out, averaged weights |",
                "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
                "| Ladder | 30 | 8.25 | 1 h 02 min | 0.0312 | 0.0625 | - |",
            ],
        )
        self.assertIn(
            "| PyTorch 2.9.0, bf16, compile, graph | 30 | 8.25 | 1 min 05 s | 0.0312 | 0.0700 | 0.0500 |",
            self.readme.read_text(),
        )

    def test_a_run_without_pytorch(self):
        self.record(record(pytorch=None))
        self.drawn(record(pytorch=None))
        self.assertEqual(self.run_tool(), (0, ""))
        self.assertNotIn("| PyTorch", self.readme.read_text())

    def test_images_are_shown_where_they_are_there(self):
        self.record(record())
        self.drawn(record())
        self.run_tool()
        self.assertNotIn("samples_64.png", self.readme.read_text())
        (self.root / "results" / "samples_64.png").write_bytes(b"")
        self.assertEqual(self.run_tool("--check")[0], 1)
        self.run_tool()
        self.assertIn("](../results/samples_64.png)\n", self.readme.read_text())

    def test_check_names_what_is_old(self):
        self.record(record())
        self.drawn(record(device="another"))
        for tool in (loss_curves, ladder_table):
            status, errors = self.run_tool("--check", tool=tool)
            self.assertEqual(status, 1)
            self.assertIn("train/README.md is not that of the newest record", errors)
            self.assertIn("results/training_curves.svg is not that of the newest record", errors)
        self.assertIn("\nold\n", self.readme.read_text())

    def test_broken_records_are_named(self):
        for says, raw in (
            ("its schema is not", record(schema="ladder.training-run/2")),
            ("'ladder/loss' is not a list of numbers", record(ladder=side(loss=[1, None, 2]))),
            ("'ladder/loss_ema' is not as long as 'ladder/step'", record(ladder=side(loss_ema=[1]))),
            ("'pytorch/step' is empty", record(pytorch=side(step=[], loss=[], loss_ema=[]))),
            ("it has no 'ladder/ms_a_step'", record(ladder={"steps": 3, "wall_seconds": 1.0})),
        ):
            with self.subTest(says=says):
                self.record(raw)
                status, errors = self.run_tool()
                self.assertEqual((status, len(errors.splitlines())), (1, 1), errors)
                self.assertIn(says, errors)
                self.assertEqual(self.readme.read_text(), README)

    def test_the_picture_is_that_of_its_figures(self):
        self.record(record())
        python = wheels.python_with(wheels.MATPLOTLIB, setup.LOG)
        subprocess.run([python, ROOT / "tools" / "readme" / "loss_curves.py", "--root", self.root], check=True)
        self.assertTrue(self.picture.read_text().startswith("<?xml"))
        self.assertEqual(self.run_tool("--check"), (0, ""))
        self.record(record(ladder=side(loss_ema=[1.0, 0.75, 0.4])))
        self.assertEqual(self.run_tool("--check")[0], 1)


class Make(Made):
    def setUp(self):
        super().setUp()
        self.run_folder = self.root / "run"
        step = self.run_folder / "checkpoints" / "step_00000030"
        step.mkdir(parents=True)
        (step.parent / "latest").write_text("step_00000030")
        header = json.dumps({"__metadata__": {"config": json.dumps(CONFIG), "device": "NVIDIA H200"}}).encode()
        (step / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        for part in ("ema", "optimizer"):
            (step / f"{part}.safetensors").touch()
        self.log(
            [
                {"step": 0, "held_out_loss": 1.0},
                {"step": 10, "loss": 0.5, "ms_a_step": 100},
                {"step": 20, "loss": 9.0, "ms_a_step": 900},
                {"step": 20, "held_out_loss": 9.0},
                {"step": 20, "loss": 0.25, "ms_a_step": 200},
                {"step": 20, "held_out_loss": 0.375},
                {"step": 30, "loss": 0.125, "ms_a_step": 300},
            ]
        )
        self.pytorch = self.root / "pytorch.json"
        self.told = {
            "config": "unet64",
            "batch": 32,
            "steps": 30,
            "window": 10,
            "losses": [0.5, 0.25, 0.125],
            "evaluations": [{"step": 30, "held_out": 0.2, "held_out_ema": 0.1}],
            "train_seconds": 4.0,
            "ms_per_step": 140.0,
            "dtype": "bf16",
            "compile": True,
            "graph": False,
            "versions": {"torch": "2.9.0"},
        }
        self.pytorch.write_text(json.dumps(self.told))

    def log(self, lines):
        (self.run_folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def make(self, *more):
        out = self.root / "results" / "h200" / "2026-01-02_abc1234_training-run.json"
        status = self.run_tool(
            "--make",
            str(out),
            "--ladder",
            str(self.run_folder),
            "--commit",
            "abc1234",
            "--command",
            "./ladder train",
            *more,
        )
        self.assertEqual(status, (0, ""))
        return json.loads(out.read_text())

    def test_a_record_of_two_logs(self):
        made = self.make("--pytorch", str(self.pytorch))
        self.assertEqual(
            (made["schema"], made["device"], made["commit"], made["config"]),
            ("ladder.training-run/1", "NVIDIA H200", "abc1234", CONFIG),
        )
        ours, theirs = made["ladder"], made["pytorch"]
        self.assertEqual((ours["step"], ours["loss"]), ([10, 20, 30], [0.5, 0.25, 0.125]))
        self.assertEqual(ours["held_out"], {"step": [0, 20], "loss": [1.0, 0.375]})
        self.assertAlmostEqual(ours["wall_seconds"], 6.0)
        self.assertAlmostEqual(ours["ms_a_step"], 200.0)
        self.assertAlmostEqual(ours["final_loss"], 0.875 / 3)
        self.assertEqual(
            (theirs["step"], theirs["wall_seconds"], theirs["how"]), ([10, 20, 30], 4.0, "PyTorch 2.9.0, bf16, compile")
        )
        self.assertEqual(theirs["held_out"], {"step": [30], "loss": [0.2], "loss_of_average": [0.1]})
        self.drawn(made)
        self.assertEqual(self.run_tool(), (0, ""))
        self.assertIn("| Ladder | 30 | 200.00 | 0 min 06 s | 0.2917 | 0.3750 | - |", self.readme.read_text())

    def test_a_long_run_is_thinned(self):
        self.log(
            [{"step": step, "loss": 2.0 if step <= 5000 else 1.0, "ms_a_step": 1} for step in range(10, 20001, 10)]
        )
        made = self.make()
        self.assertIsNone(made["pytorch"])
        ours = made["ladder"]
        self.assertEqual((len(ours["step"]), ours["step"][-1], ours["final_loss"]), (400, 20000, 1.0))
        self.assertEqual({len(ours[name]) for name in ("step", "loss", "loss_ema")}, {400})
        self.assertEqual(sum(ours["loss"]) / 400, 1.25)
        at = ours["step"].index(5500)  # a half-life behind the fall
        self.assertAlmostEqual(ours["loss_ema"][at], 1.5, delta=0.01)

    def test_what_make_refuses(self):
        with self.assertRaisesRegex(UsageError, "--make needs --ladder RUN, --commit and --command"):
            self.run_tool("--make", "x.json")
        with self.assertRaisesRegex(UsageError, "are for --make"):
            self.run_tool("--commit", "abc")
        for says, change in (
            ("batch 16, the run to be compared has 32", {"batch": 16}),
            ("config tiny, the run", {"config": "tiny"}),
            ("nothing that unet_train.py --data wrote: KeyError", {"evaluations": [{}]}),
        ):
            self.pytorch.write_text(json.dumps({**self.told, **change}))
            with self.subTest(says=says), self.assertRaisesRegex(Failure, says):
                self.make("--pytorch", str(self.pytorch))
        self.log([])
        with self.assertRaisesRegex(Failure, "log.jsonl' has no step"):
            self.make()
        (self.run_folder / "log.jsonl").write_text("{")
        with self.assertRaisesRegex(Failure, "is no log of ./ladder train"):
            self.make()


if __name__ == "__main__":
    unittest.main()
