"""./ladder record --missing and --stale: what lacks a record, in which order it is recorded, and what fits into the time."""

import itertools
import json
import re

import pytest

import made_records
from cli import device, record, record_missing, recording
from cli.errors import Failure, UsageError
from recorded_toy import Toy
from records import current, missing, record_files

LINE = "n32 c64"  # of the sets perf and unet
DGRAD = {"pass": "dgrad"}


class Ladder(Toy):
    """The verb as a user calls it, on a machine without a GPU or with one, and with or without a build."""

    def __init__(self, tmp_path, monkeypatch, capsys):
        super().__init__(tmp_path, capsys)
        self.monkeypatch = monkeypatch
        self.add_version("dgrad", 1, ("f32",))
        self.code["sm_90"]["versions"]["toy/dgrad/v01"] = "1"
        self.built = []
        self.on_gpu(None)
        monkeypatch.setattr(record.paths, "ROOT", self.root)
        monkeypatch.setattr(recording.build, "folder", lambda preset: self.bench.parent)
        monkeypatch.setattr(recording.build, "build", lambda preset, targets: self.built.append(targets))
        monkeypatch.setattr(recording.disassembly, "fetched", lambda: None)
        monkeypatch.setattr(recording.resources, "collect", lambda folder: ([], None))
        monkeypatch.setattr(recording.machine_code, "of_build", lambda folder, passes: self.code)
        monkeypatch.setattr(record_missing, "read_machine", lambda: None)

    def on_gpu(self, model):
        found = (device._Gpu(model, 90, 1), "") if model else (None, "no GPU: for a test")
        self.monkeypatch.setattr(device, "_first", lambda: found)

    def recorded(self, *results, folder="h200", name="a.json", digest="", **fields):
        """A record whose versions all have machine code of that digest, or of that of the build for "today"."""
        if digest:
            today = self.code["sm_90"]["versions"]
            fields["machine_code"] = {key: value if digest == "today" else digest for key, value in today.items()}
        made_records.write(self.results / folder / name, made_records.record(list(results), **fields))

    def ladder(self, *arguments):
        """(exit status, lines of stdout, lines of stderr)"""
        status = record.main([*arguments, "--results", str(self.results)])
        return status, *(text.splitlines() for text in self.capsys.readouterr())

    def list(self, *arguments):
        """{pass: {column: cell}}, the rows of the plan without their seconds, and the last lines."""
        status, out, said = self.ladder("--list", *arguments)
        assert (status, said, self.built) == (0, [], [])
        states, plan, last = (list(lines) for full, lines in itertools.groupby(out, bool) if full)
        states, plan = ([re.split(r" {2,}", line) for line in lines] for lines in (states, plan))
        return {row[0]: dict(zip(states[0][1:], row[1:])) for row in states[1:]}, [row[:-1] for row in plan[1:]], last

    def planned(self, *arguments):
        return self.list(*arguments)[1]

    def refused(self, says, *arguments):
        with pytest.raises(UsageError) as caught:
            self.ladder(*arguments)
        assert len(str(caught.value).splitlines()) == 1
        assert says in str(caught.value)

    def measured(self):
        """The runs that measured: pass, versions, dtype of each."""
        calls = [call for call in self.calls() if "--record" in call]
        return [tuple(call[call.index(flag) + 1] for flag in ("--pass", "--version", "--dtype")) for call in calls]

    def newest(self):
        return [(result.path[4:], result.version, result.problem) for result in self.last_record().results]

    def last_record(self):
        return max(record_files.load_all(self.results)[0], key=lambda each: each.file.stat().st_mtime_ns)


@pytest.fixture
def toy(tmp_path, monkeypatch, capsys):
    return Ladder(tmp_path, monkeypatch, capsys)


def every_result(seconds=50e-6, spent=1.0, **more):
    """The records of every version on perf."""
    made = [
        made_records.result(version, seconds, f"{LINE} {dtype}", seconds_spent=spent, **more)
        for version in (1, 2, 3)
        for dtype in ("bf16", "fp32")
    ]
    return [*made, made_records.result(1, seconds, f"{LINE} fp32", seconds_spent=spent, **DGRAD)]


def test_the_list_has_a_line_a_pass_a_plan_and_the_command(toy):
    toy.recorded(made_records.result(2, 50e-6))
    states, plan, last = toy.list("--missing")
    assert states == {
        "toy/dgrad": {"recorded": "0", "no record": "1", "without any record": "v01"},
        "toy/fprop": {"recorded": "1", "no record": "5", "without any record": "v01 v03"},
    }
    assert plan == [
        ["set", "toy/fprop", "bf16", "v01 v03", "2"],
        ["set", "toy/dgrad", "fp32", "v01", "1"],
        ["set", "toy/fprop", "fp32", "v01 v02 v03", "3"],
    ]
    (line,) = last
    assert line.startswith("6 of 7 results are to be recorded on h200, about 0:21; run ./ladder record --missing")
    assert [file.name for file in toy.results.rglob("*.json*")] == ["a.json"]


def test_any_verdict_on_that_gpu_is_a_record_but_not_one_that_nobody_gave(toy):
    toy.recorded(
        made_records.result(1, None, status="FAIL", reason="wrong"),
        made_records.result(2, None, status="SKIP", reason="odd"),
        made_records.result(3, 50e-6, status="UNCHECKED"),
    )
    toy.recorded(made_records.result(3, 50e-6), folder="h100")
    toy.recorded(made_records.result(3, 50e-6), kind="emulator", name="b.json")
    for slug, rest in (("h200", "v03"), ("h100", "v01 v02")):
        assert toy.planned("--missing", "--dtype", "bf16", "--device", slug) == [
            ["set", "toy/fprop", "bf16", rest, str(rest.count("v"))]
        ]


def test_a_record_that_contradicts_itself_is_named_and_does_not_count(toy):
    toy.recorded(made_records.result(1, 50e-6))
    toy.recorded(made_records.result(2, 50e-6), name="b.json", sha256="0" * 64)
    _, out, said = toy.ladder("--missing", "--list", "--dtype", "bf16")
    assert re.search(r"^ladder: not counted: .*b\.json: changed since it was written[^\n]*$", "\n".join(said))
    assert "v02 v03" in out[-3]


def test_a_record_of_other_code_is_stale_and_one_of_todays_is_not(toy):
    toy.recorded(*every_result())
    assert toy.list("--stale")[0]["toy/fprop"] == {"of older code": "6", "without any record": "-"}
    toy.recorded(made_records.result(1, 50e-6), made_records.result(2, 50e-6), name="b.json", digest="today")
    toy.code["sm_90"]["versions"]["toy/fprop/v02"] = "changed"
    states, plan, last = toy.list("--stale", "--dtype", "bf16")
    assert states["toy/fprop"] == {"current": "1", "of older code": "2", "without any record": "-"}
    assert plan == [["set", "toy/fprop", "bf16", "v02 v03", "2"]]
    assert "2 of 3 results are to be recorded on h200" in last[0]
    toy.recorded(*every_result(), name="c.json", digest="today")
    toy.recorded(*every_result(), name="d.json", digest="changed")
    assert toy.list("--stale")[2] == [
        "nothing to record: h200 has records of all 7 results of today's machine code"
    ]  # fp32 v02 of d.json is of the changed code


def test_code_that_no_build_has_is_unknown_and_the_build_is_named(toy):
    toy.recorded(*every_result())
    del toy.code["sm_90"]["versions"]["toy/fprop/v03"]
    states, plan, last = toy.list("--stale", "--dtype", "bf16")
    assert states["toy/fprop"] == {"of older code": "2", "unknown": "1", "without any record": "-"}
    assert [row[3] for row in plan] == ["v01 v02"]
    assert last[0] == "unknown: 1 versions have no object in build/cuda; first: ./ladder build --preset cuda"
    toy.code = {}
    states, plan, last = toy.list("--stale")
    assert (states["toy/dgrad"]["unknown"], states["toy/fprop"]["unknown"], plan) == ("1", "6", [])
    assert last[0].startswith("unknown: 4 versions")
    assert last[1] == "nothing is known to be stale on h200"


def test_the_step_comes_first_then_perf_then_what_was_recorded(toy):
    promoted = toy.root / "runtime" / "promoted" / "h200.txt"
    promoted.parent.mkdir(parents=True)
    promoted.write_text("toy/fprop  n8 c8 fp32  v02_idea_2  45.0 us warm  50.0 cold  -  -  abcdef0\n")
    operation = {"layer": "out", "pass": "toy/fprop", "problem": "n9 c9 bf16", "version": "v03_idea_3"}
    operation.update(us=1.0, lower_bound_us=None)
    budget = {"schema": "ladder.budget/1", "operations": [operation, {**operation, "version": "baseline"}]}
    toy.recorded(made_records.result(1, 50e-6, "n1 c1 bf16"), made_records.result(9, 50e-6, "n1 c1 bf16"))
    (toy.results / "h200" / "2026-01-01_abcdef0_training-budget.json").write_text(json.dumps(budget))
    assert toy.planned("--stale", "toy/fprop") == [
        ["promoted", "toy/fprop", "bf16", "v03", "1"],
        ["promoted", "toy/fprop", "fp32", "v02", "1"],
        ["set", "toy/fprop", "bf16", "v01 v02 v03", "3"],
        ["set", "toy/fprop", "fp32", "v01 v02 v03", "3"],
        ["recorded", "toy/fprop", "bf16", "v01", "1"],
    ]
    assert [row[0] for row in toy.planned("--missing", "toy/fprop")] == ["promoted", "promoted", "set", "set"]
    assert toy.planned("--stale", "--set", "ci", "--version", "2") == [
        ["set", "toy/fprop", "bf16", "v02", "1"],
        ["set", "toy/fprop", "fp32", "v02", "1"],
    ]
    assert toy.planned("--stale", "--problem", "n1 c1 fp32", "toy/dgrad") == [["set", "toy/dgrad", "fp32", "v01", "1"]]


def test_a_version_that_names_no_dtypes_may_have_any(toy):
    toy.add_version("fprop", 4, ())
    toy.recorded(*every_result())
    assert [row[2:4] for row in toy.planned("--missing")] == [
        [dtype, "v04"] for dtype in ("bf16", "fp32", "tf32", "fp16")
    ]
    toy.refused("no version that was asked for has a problem", "--missing", "--list", "toy/dgrad", "--dtype", "fp16")


def test_seconds_are_those_of_like_results(tmp_path):
    spent = ((1, "a bf16", 9.0), (2, "a bf16", 1.0), (3, "b bf16", 2.0))
    made = [made_records.result(version, 50e-6, problem, seconds_spent=seconds) for version, problem, seconds in spent]
    made_records.write(tmp_path / "h200" / "a.json", made_records.record(made))
    known = missing._Estimate(record_files.load_all(tmp_path)[0])
    labels = ("v02_idea_2", "v04_idea_4")
    assert known.of("toy/fprop", labels, "a bf16") == 9.0 + 4.0  # the reference once, and the mean of the pass
    assert known.of("toy/fprop", labels, "c bf16") == 4.0 + 4.0
    assert known.of("toy/other", labels, "c bf16") == 2 * missing._DEFAULT


def test_what_is_stale_is_recorded_with_its_code_and_nothing_else(toy):
    toy.on_gpu("NVIDIA H200")
    toy.recorded(*every_result(), digest="older")
    toy.recorded(made_records.result(2, 50e-6), name="b.json", digest="today")
    toy.set_up(every_result())
    status, out, said = toy.ladder("--stale", "--dtype", "bf16")
    assert (status, toy.built) == (0, [["bench_toy"]])
    assert out[1].split()[:5] == ["set", "toy/fprop", "bf16", "v01", "v03"]
    assert "ladder: 2 of 3 results are to be recorded on h200, about 0:05" in said
    assert toy.measured() == [("fprop", "1,3", "bf16")]
    made = toy.last_record()
    assert made.file.name.endswith("_abcdef0_current.json.xz")
    assert made.machine_code == {"toy/fprop/v01": "1", "toy/fprop/v03": "3"}
    assert current.read(toy.results) == toy.code
    assert toy.ladder("--stale", "--dtype", "bf16")[2][-1] == (
        "ladder: nothing to record: h200 has records of all 3 results of today's machine code"
    )
    assert toy.ladder("--stale")[0] == 0
    assert toy.last_record().file.name.endswith("_abcdef0_current-2.json.xz")
    assert toy.measured()[1:] == [("dgrad", "1", "fp32"), ("fprop", "1,2,3", "fp32")]


def test_no_group_begins_that_would_not_fit(toy):
    toy.on_gpu("NVIDIA H200")
    toy.recorded(*every_result(spent=10.0))
    toy.set_up(every_result())
    status, _, said = toy.ladder("--stale", "--minutes", "0.3")  # 18 s: fprop takes 33, dgrad 13
    assert (status, toy.newest()) == (0, [("dgrad", 1, f"{LINE} fp32")])
    assert "ladder: 6 results would not have fitted into --minutes 0.3" in said
    status, _, said = toy.ladder("--stale", "--minutes", "0.3")
    assert (status, toy.measured(), toy.files()) == (0, [("dgrad", "1", "fp32")], toy.files())
    assert not any(name.endswith(".partial") for name in toy.files())
    assert "ladder: no group of results was whole: nothing is recorded" in said


def test_a_program_that_fails_leaves_the_groups_of_the_others(toy):
    toy.on_gpu("NVIDIA H200")
    toy.set_up(every_result(), patience=2)  # results of a run: enough for dgrad
    status, _, said = toy.ladder("--missing")
    assert status == 1
    assert toy.measured() == [("fprop", "1,2,3", "bf16"), ("dgrad", "1", "fp32"), ("fprop", "1,2,3", "fp32")]
    assert any("bench_toy ended with status 137: the machine went away" in line for line in said)
    assert toy.newest() == [("dgrad", 1, f"{LINE} fp32")]
    toy.set_patience(99)
    assert toy.ladder("--missing")[0] == 0
    assert toy.newest() == [("fprop", number, f"{LINE} {dtype}") for dtype in ("bf16", "fp32") for number in (1, 2, 3)]


def test_what_a_killed_run_had_whole_becomes_a_record(toy):
    toy.on_gpu("NVIDIA H200")
    toy.set_up(every_result(), patience=2)

    def killed(*_):
        raise RuntimeError("killed")

    with toy.monkeypatch.context() as patch:
        patch.setattr(recording.Recording, "_finish", killed)
        with pytest.raises(RuntimeError):
            toy.ladder("--missing")
    (left,) = toy.files()
    toy.set_patience(99)
    assert toy.ladder("--missing")[0] == 0
    assert [name.split("_", 1)[1] for name in toy.files()] == ["abcdef0_current-2.json.xz", "abcdef0_current.json.xz"]
    assert left.endswith("_current.partial")
    assert toy.newest() == [("fprop", number, f"{LINE} {dtype}") for dtype in ("bf16", "fp32") for number in (1, 2, 3)]


def test_a_broken_budget_is_named(toy):
    toy.recorded(made_records.result(1, 50e-6))
    (toy.results / "h200" / "2026-01-01_abcdef0_training-budget.json").write_text("{")
    with pytest.raises(Failure, match=r"training-budget\.json: not a record"):
        toy.ladder("--missing", "--list")


def test_whose_records_count(toy):
    toy.refused("no GPU here, and ", "--missing", "--list")
    toy.recorded(made_records.result(1, 50e-6))
    toy.recorded(made_records.result(1, None), kind="emulator", folder="emulator")
    assert " on h200," in toy.list("--missing")[2][0]
    toy.refused("--device h300: no record of it; there are those of: h200", "--missing", "--list", "--device", "h300")
    toy.recorded(made_records.result(2, 50e-6), folder="rtx-4090")
    assert " on h200," in toy.list("--missing", "--device", "h200")[2][0]
    status, out, said = toy.ladder("--missing", "--list")
    assert (status, said) == (0, ["ladder: the newest record is of rtx-4090; --device chooses another (h200)"])
    assert " on rtx-4090," in out[-1]
    toy.on_gpu("NVIDIA GeForce RTX 4090")
    assert " on rtx-4090," in toy.list("--missing")[2][0]
    toy.refused("--device h200: the GPU here is rtx-4090", "--missing", "--device", "h200")
    toy.on_gpu("NVIDIA H100 PCIe")
    assert "7 of 7 results are to be recorded on h100-pcie" in toy.list("--missing")[2][0]
    toy.on_gpu(None)
    with pytest.raises(Failure, match="record needs a GPU: no GPU: for a test; --list"):
        toy.ladder("--stale", "--device", "h200")


def test_wrong_usage(toy):
    toy.recorded(made_records.result(1, 50e-6))
    toy.refused("--list needs --missing or --stale", "--list")
    toy.refused("--minutes needs --missing or --stale", "--minutes", "5")
    toy.refused("--device needs --missing or --stale", "--device", "h200")
    toy.refused("--missing and --stale exclude each other", "--missing", "--stale")
    toy.refused("--stale and --version best exclude each other", "--stale", "--version", "best")
    toy.refused("--missing and --resume exclude each other", "--missing", "--resume")
    toy.refused("'0': a number above 0", "--stale", "--minutes", "0")
    toy.refused("no layer 'tpy'", "--missing", "--list", "tpy")
    toy.refused("--set 'prf': toy has ci, perf, unet", "--missing", "--set", "prf")
