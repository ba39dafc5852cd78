"""A recorded training beside PyTorch's: the record made of two logs, and the table and picture made of the record."""

import json
import struct
import subprocess
from pathlib import Path

import pytest

from cli import paths, wheels
from cli.errors import Failure, UsageError
from readme import generated, ladder_table, loss_curves

ROOT = Path(__file__).resolve().parents[2]

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


class Made:
    def __init__(self, tmp_path, capsys):
        self.capsys = capsys
        self.root = tmp_path
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
                *(raw[name][key] for key in ("step", "loss", "loss_ema")),
                *(raw[name]["held_out"][key] for key in ("step", "loss")),
            ]
            for name in ("ladder", "pytorch")
            if raw[name]
        }
        self.picture.write_text(f"<svg>{generated.description(title, curves)}</svg>")

    def run_tool(self, *arguments, tool=ladder_table):
        root = ["--root", str(self.root)] if tool is ladder_table else []
        return tool.main([*root, *arguments]), self.capsys.readouterr().err


@pytest.fixture
def made(tmp_path, capsys):
    return Made(tmp_path, capsys)


def test_without_a_record_it_says_so(made):
    assert made.run_tool() == (0, "")
    assert "*No record yet: `tools/readme/loss_curves.py --make`" in made.readme.read_text()
    assert not made.picture.exists()
    assert made.run_tool("--check") == (0, "")


def test_the_table(made):
    made.record(record())
    made.record(record(created="2026-01-01T00:00:00Z", device="of yesterday"), "2026-01-03_f_training-run.json")
    made.drawn(record())
    assert made.run_tool() == (0, "")
    assert made.readme.read_text().splitlines()[2:7] == [
        "**NVIDIA H200**, unet64, bf16, batch 32, commit abc1234def: `./ladder train --steps 30`",
        "",
        "| | steps | ms a step | wall time | final training loss | held-out loss | held out, averaged weights |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| Ladder | 30 | 8.25 | 1 h 02 min | 0.0312 | 0.0625 | - |",
    ]
    assert (
        "| PyTorch 2.9.0, bf16, compile, graph | 30 | 8.25 | 1 min 05 s | 0.0312 | 0.0700 | 0.0500 |"
        in made.readme.read_text()
    )


def test_a_run_without_pytorch(made):
    made.record(record(pytorch=None))
    made.drawn(record(pytorch=None))
    assert made.run_tool() == (0, "")
    assert "| PyTorch" not in made.readme.read_text()


def test_images_are_shown_where_they_are_there(made):
    made.record(record())
    made.drawn(record())
    made.run_tool()
    assert "samples_64.png" not in made.readme.read_text()
    (made.root / "results" / "samples_64.png").write_bytes(b"")
    assert made.run_tool("--check")[0] == 1
    made.run_tool()
    assert "](../results/samples_64.png)\n" in made.readme.read_text()


def test_check_names_what_is_old(made):
    made.record(record())
    made.drawn(record(device="another"))
    status, errors = made.run_tool("--check")
    assert status == 1
    assert "train/README.md is not that of the newest record" in errors
    assert "results/training_curves.svg is not that of the newest record" in errors
    assert "\nold\n" in made.readme.read_text()


@pytest.mark.parametrize(
    ("says", "raw"),
    [
        ("its schema is not", record(schema="ladder.training-run/2")),
        ("'ladder/loss' is not a list of numbers", record(ladder=side(loss=[1, None, 2]))),
        ("'ladder/loss_ema' is not as long as 'ladder/step'", record(ladder=side(loss_ema=[1]))),
        ("'pytorch/step' is empty", record(pytorch=side(step=[], loss=[], loss_ema=[]))),
        ("it has no 'ladder/ms_a_step'", record(ladder={"steps": 3, "wall_seconds": 1.0})),
    ],
)
def test_broken_records_are_named(made, says, raw):
    made.record(raw)
    status, errors = made.run_tool()
    assert (status, len(errors.splitlines())) == (1, 1), errors
    assert says in errors
    assert made.readme.read_text() == README


def test_the_picture_is_that_of_its_figures(made):
    made.record(record())
    python = wheels.python_with(wheels.MATPLOTLIB, paths.SETUP_LOG)
    subprocess.run([python, ROOT / "tools" / "readme" / "ladder_table.py", "--root", made.root], check=True)
    assert made.picture.read_text().startswith("<?xml")
    assert made.run_tool("--check") == (0, "")
    made.record(record(ladder=side(loss_ema=[1.0, 0.75, 0.4])))
    assert made.run_tool("--check")[0] == 1


class Make(Made):
    def __init__(self, tmp_path, capsys):
        super().__init__(tmp_path, capsys)
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
        made_of = ["--ladder", str(self.run_folder), "--commit", "abc1234", "--command", "./ladder train"]
        assert self.run_tool("--make", str(out), *made_of, *more, tool=loss_curves) == (0, "")
        return json.loads(out.read_text())


@pytest.fixture
def make(tmp_path, capsys):
    return Make(tmp_path, capsys)


def test_a_record_of_two_logs(make):
    made = make.make("--pytorch", str(make.pytorch))
    assert (made["schema"], made["device"], made["commit"], made["config"]) == (
        "ladder.training-run/1",
        "NVIDIA H200",
        "abc1234",
        CONFIG,
    )
    ours, theirs = made["ladder"], made["pytorch"]
    assert (ours["step"], ours["loss"]) == ([10, 20, 30], [0.5, 0.25, 0.125])
    assert ours["held_out"] == {"step": [0, 20], "loss": [1.0, 0.375]}
    assert ours["wall_seconds"] == pytest.approx(6.0, abs=5e-8)
    assert ours["ms_a_step"] == pytest.approx(200.0, abs=5e-8)
    assert ours["final_loss"] == pytest.approx(0.875 / 3, abs=5e-8)
    assert (theirs["step"], theirs["wall_seconds"], theirs["how"]) == (
        [10, 20, 30],
        4.0,
        "PyTorch 2.9.0, bf16, compile",
    )
    assert theirs["held_out"] == {"step": [30], "loss": [0.2], "loss_of_average": [0.1]}
    make.drawn(made)
    assert make.run_tool() == (0, "")
    assert "| Ladder | 30 | 200.00 | 0 min 06 s | 0.2917 | 0.3750 | - |" in make.readme.read_text()


def test_a_long_run_is_thinned(make):
    make.log([{"step": step, "loss": 2.0 if step <= 5000 else 1.0, "ms_a_step": 1} for step in range(10, 20001, 10)])
    made = make.make()
    assert made["pytorch"] is None
    ours = made["ladder"]
    assert (len(ours["step"]), ours["step"][-1], ours["final_loss"]) == (400, 20000, 1.0)
    assert {len(ours[name]) for name in ("step", "loss", "loss_ema")} == {400}
    assert sum(ours["loss"]) / 400 == 1.25
    at = ours["step"].index(5500)  # a half-life behind the fall
    assert ours["loss_ema"][at] == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize(
    ("says", "change"),
    [
        ("batch 16, the run to be compared has 32", {"batch": 16}),
        ("config tiny, the run", {"config": "tiny"}),
        ("nothing that unet_train.py --data wrote: KeyError", {"evaluations": [{}]}),
    ],
)
def test_whose_figures_make_refuses(make, says, change):
    make.pytorch.write_text(json.dumps({**make.told, **change}))
    with pytest.raises(Failure, match=says):
        make.make("--pytorch", str(make.pytorch))


def test_what_make_refuses(make):
    with pytest.raises(UsageError, match="--make needs --ladder RUN, --commit and --command"):
        make.run_tool("--make", "x.json", tool=loss_curves)
    with pytest.raises(UsageError, match="are for --make"):
        make.run_tool("--commit", "abc", tool=loss_curves)
    make.log([])
    with pytest.raises(Failure, match="log.jsonl' has no step"):
        make.make()
    (make.run_folder / "log.jsonl").write_text("{")
    with pytest.raises(Failure, match="is no log of ./ladder train"):
        make.make()
