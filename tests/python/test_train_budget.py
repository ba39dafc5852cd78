"""The tables of a training step's time, from small made-up records."""

import json

import pytest

from readme import ladder_table, train_budget

README = """\
before
<!-- training:begin budget -->
old
<!-- training:end -->
between
<!-- training:begin speed -->
<!-- training:end -->
<!-- training:begin other -->
kept
<!-- training:end -->
"""


def operation(layer, path, us, bound, problem="n2 bf16"):
    return {
        "layer": layer,
        "pass": path,
        "problem": problem,
        "version": "v03_tile",
        "why": "recorded",
        "us": us,
        "lower_bound_us": bound,
    }


def budget(operations, milliseconds=10.0, created="2026-01-02T00:00:00Z"):
    return {
        "schema": "ladder.budget/1",
        "created": created,
        "device": "NVIDIA H200",
        "graph": True,
        "graph_nodes": 7,
        "config": {"name": "unet64", "dtype": "bf16", "batch": 32},
        "steps_timed": 200,
        "ms_a_step": milliseconds,
        "tflops": 100.4,
        "device_bytes": 2**30,
        "operations": operations,
    }


def pytorch(variants, **more):
    return {
        "schema": "ladder.pytorch-speed/1",
        "created": "2026-01-02T00:00:00Z",
        "config": "unet64",
        "batch": 32,
        "versions": {"torch": "2.9.0", "gpu": "NVIDIA H200"},
        "variants": variants,
        **more,
    }


OPERATIONS = [
    operation("in.0", "conv3x3/fprop", 100, 80),
    operation("in.1", "add/forward", 60, 10),
    operation("in.2", "conv3x3/fprop", 40, 35),
]


class Made:
    def __init__(self, tmp_path, capsys):
        self.capsys = capsys
        self.root = tmp_path
        (self.root / "train").mkdir()
        self.readme = self.root / "train" / "README.md"
        self.readme.write_text(README)
        (self.root / "results" / "h200").mkdir(parents=True)

    def record(self, name, raw, commit="abc1234", device="h200"):
        file = self.root / "results" / device / f"2026-01-02_{commit}_{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(raw if isinstance(raw, str) else json.dumps(raw))
        return file

    def run_tool(self, *arguments):
        return ladder_table.main(["--root", str(self.root), *arguments]), self.capsys.readouterr().err

    def lines(self):
        status, errors = self.run_tool()
        assert (status, errors) == (0, "")
        return self.readme.read_text().splitlines()

    def refuses(self, says):
        before = self.readme.read_text()
        for arguments in ([], ["--check"]):
            status, errors = self.run_tool(*arguments)
            assert (status, len(errors.splitlines())) == (1, 1), errors
            assert says in errors
        assert self.readme.read_text() == before


@pytest.fixture
def made(tmp_path, capsys):
    return Made(tmp_path, capsys)


def test_without_a_record_it_says_so(made):
    lines = made.lines()
    assert lines[2] == "*No record yet: `./ladder train --budget FILE` on a GPU makes one.*"
    assert lines[6].startswith("*No record yet: `./ladder train --budget FILE` and ")
    assert lines[0::4][:2] + lines[-2:-1] == ["before", "between", "kept"]


def test_the_kind_with_the_largest_gap_comes_first(made):
    made.record("training-budget", budget(OPERATIONS))
    lines = made.lines()
    at = lines.index("| operation | launches | time, us | lower bound, us | gap, us | share of the time |")
    assert lines[at - 2] == (
        "**NVIDIA H200**, unet64, bf16, batch 32, commit abc1234: 10.00 ms a step, one "
        "CUDA graph of 7 nodes, 100 TFLOP/s. Operations timed in their places, one after the other: "
        "0.20 ms."
    )
    assert lines[at + 2 : at + 5] == [
        "| add/forward | 1 | 60 | 10 | 50 | 30.0 % |",
        "| conv3x3/fprop | 2 | 140 | 115 | 25 | 70.0 % |",
        "| *all* | 3 | 200 | 125 | 75 | 100 % |",
    ]
    assert "| in.1 | add/forward | `n2 bf16` | v03_tile | 60.0 | 10.0 | 50.0 |" in lines


def recorded(layer, path, busy, gap, overlap, realistic, bound):
    more = {"gap_us": gap, "overlap_us": overlap, "realistic_us": realistic}
    return {**operation(layer, path, busy + gap, bound), **more}


def test_busy_and_gaps_of_kernel_records_add_up_to_the_step(made):
    operations = [
        recorded("in.0", "conv3x3/fprop", 900, 50, 20, 700, 500),
        recorded("in.1", "conv3x3/fprop", 100, 30, 0, 60, 50),
        recorded("in.2", "add/residual", 800, 80, 5, 780, 600),
        recorded("in.3", "silu/forward", 10, 2, 0, 1, 1),
        recorded("in.4", "silu/backward", 15, 1, 3, 2, 1),
        recorded("", "copies", 7, 5, 0, 0, 0),
    ]
    edges = {"timed_by": "kernel records", "programmatic_edges": 5, "plain_edges": 2}
    made.record("training-budget", {**budget(operations), **edges})
    lines = made.lines()
    at = lines.index(
        "| operation | launches | busy, us | gap in front | overlap | realistic bound | peak bound | share |"
    )
    assert "5 of its 7 edges programmatic" in lines[at - 2] and "a step took 2.00 ms" in lines[at - 2]
    assert lines[at + 2 : at + 7] == [
        "| conv3x3/fprop | 2 | 1000 | 80 | 20 | 760 | 550 | 54.0 % |",
        "| add/residual | 1 | 800 | 80 | 5 | 780 | 600 | 44.0 % |",
        "| 3 others | 3 | 32 | 8 | 3 | 3 | 2 | 2.0 % |",
        "| *all* | 6 | 1832 | 168 | 28 | 1543 | 1152 | 100.0 % |",
        "<!-- training:end -->",
    ]


def test_ten_single_operations(made):
    made.record("training-budget", budget([operation(f"layer.{i}", "add/forward", 50 + i, 40) for i in range(12)]))
    layers = [line.split(" | ")[0] for line in made.lines() if line.startswith("| layer.")]
    assert layers == [f"| layer.{i}" for i in range(11, 1, -1)]


def test_an_unknown_bound_is_no_figure(made):
    made.record("training-budget", budget([operation("a", "new/forward", 500, None), *OPERATIONS]))
    lines = made.lines()
    at = lines.index("| conv3x3/fprop | 2 | 140 | 115 | 25 | 20.0 % |")
    assert lines[at + 1] == "| new/forward | 1 | 500 | - | - | 71.4 % |"


def test_the_newest_record_counts(made):
    made.record("training-budget", budget(OPERATIONS, 10.0))
    old = made.record("x", budget(OPERATIONS, 20.0, created="2026-01-01T00:00:00Z"))
    old.rename(old.with_name("2026-01-03_fff_training-budget.json"))
    assert ": 10.00 ms a step" in "\n".join(made.lines())


def test_of_two_devices_the_newest_budget_counts(made):
    for device, milliseconds, created in (
        ("a100", 30.0, "2026-01-01"),
        ("h200", 10.0, "2026-01-02"),
        ("x", 20.0, "2026-01-03"),
    ):
        made.record("training-budget", budget(OPERATIONS, milliseconds, created=created), device=device)
    text = "\n".join(made.lines())
    assert ": 20.00 ms a step" in text
    assert ": 10.00 ms a step" not in text and ": 30.00 ms a step" not in text


@pytest.mark.parametrize(
    ("says", "raw"),
    [
        ("not a record", "{"),
        ("its schema is not ladder.budget/1", {"schema": "ladder.budget/2"}),
        ("it has no 'device'", {"schema": "ladder.budget/1", "operations": OPERATIONS}),
        ("no operation that was timed", budget([operation("a", "add/forward", 0, 0)])),
        ("broken operation: KeyError: 'us'", budget([{"layer": "", "pass": "", "problem": "", "version": ""}])),
        ("'ms_a_step' is 0, not a positive number", budget(OPERATIONS, 0)),
    ],
)
def test_broken_records_are_named(made, says, raw):
    made.record("training-budget", raw)
    made.refuses(says)


def test_check_is_quiet_on_what_is_up_to_date(made):
    made.record("training-budget", budget(OPERATIONS))
    assert made.run_tool("--check") == (
        1,
        "ladder table: train/README.md is not that of the newest records; run ./ladder table\n",
    )
    made.lines()
    assert made.run_tool("--check") == (0, "")


def test_a_step_beside_pytorch(made):
    made.record("training-budget", budget(OPERATIONS))
    made.record(
        "training-pytorch",
        pytorch(
            {
                "graph": {"ms": 15.0, "peak_allocated_mib": 4000.4},
                "eager_fp32": {"ms": 80.0, "peak_allocated_mib": 9000.0},
                "compile_bf16": {"error": "out of memory"},
            }
        ),
    )
    made.record(
        "training-pytorch-sampling", pytorch({"sample": {"ms": 321.4, "images": 64, "sampler": "ddim 50"}}, batch=64)
    )
    made.record(
        "training-sampling",
        {
            "schema": "ladder.sampling/1",
            "images": 64,
            "sampler": "ddim",
            "steps": 50,
            "batch_seconds": [9.0, 0.25, 0.3, 0.2],
        },
    )
    lines = made.lines()
    at = lines.index("| | ms a step | x Ladder | images/s | peak memory, MiB | 64 images sampled, ms |")
    assert lines[at - 2] == "**NVIDIA H200**, unet64, batch 32, PyTorch 2.9.0, commit abc1234:"
    assert lines[at + 2 : at + 5] == [
        "| **Ladder**, bf16 | 10.00 | 1 | 3200 | 1024 | 250 |",
        "| PyTorch eager, fp32 | 80.00 | 8.00 | 400 | 9000 | - |",
        "| PyTorch compile in a CUDA graph | 15.00 | 1.50 | 2133 | 4000 | 321 |",
    ]
    assert "Missing: PyTorch compile, NCHW: out of memory" in lines
    assert train_budget.step_lines(made.root) == (
        f"{lines[at - 2]} **10.00 ms** a training step in bf16; PyTorch compile in a CUDA graph 15.00 ms, 1.50 x.\n"
    )


def test_sampling_of_another_commit_is_said(made):
    made.record("training-budget", budget(OPERATIONS))
    sampling = {
        "schema": "ladder.sampling/1",
        "images": 64,
        "sampler": "ddim",
        "steps": 50,
        "batch_seconds": [9.0, 0.25],
    }
    made.record("training-sampling", sampling)
    assert not [line for line in made.lines() if line.startswith("Sampled at")]
    made.record("training-sampling", sampling, commit="def5678")
    assert "Sampled at commit def5678." in made.lines()


def test_one_side_alone(made):
    made.record("training-pytorch", pytorch({"graph": {"ms": 15.0, "peak_allocated_mib": 4000.4}}))
    lines = made.lines()
    assert "| PyTorch compile in a CUDA graph | 15.00 | - | 2133 | 4000 | - |" in lines
    assert "Missing: our own step, `./ladder train --budget FILE`." in lines
    assert train_budget.step_lines(made.root).startswith("*No record yet: ")


TIMED = {"ms": 15.0, "peak_allocated_mib": 1.0}


@pytest.mark.parametrize(
    ("says", "raw"),
    [
        ("tiny at batch 32 is not what", pytorch({"graph": TIMED}, config="tiny")),
        ("no variant 'jax' is known here", pytorch({"jax": TIMED})),
        ("it has no 'variants/graph/peak_allocated_mib'", pytorch({"graph": {"ms": 15.0}})),
        ("its schema is not ladder.pytorch-speed/1", {"variants": {}}),
    ],
)
def test_refusals(made, says, raw):
    made.record("training-budget", budget(OPERATIONS))
    made.record("training-pytorch", raw)
    made.refuses(says)


def test_a_sampling_of_another_size_is_refused(made):
    made.record("training-budget", budget(OPERATIONS))
    made.record("training-pytorch", pytorch({"graph": TIMED}))
    made.record("training-sampling", {"schema": "ladder.sampling/1", "images": 4, "sampler": "ddim", "steps": 50})
    made.refuses("batches of 64 images by 50 steps of ddim")
