"""./ladder record with a bench program that is a script: parts, interruption, resumption, what is never overwritten, and
which versions have no record."""

import argparse
import copy
import json
import os
import re
import sys
import textwrap
from pathlib import Path

import pytest

import made_records
from cli import device, record
from cli.errors import Failure, UsageError
from records import record_files
from registry import listing

ROOT = Path(__file__).resolve().parents[2]

# Behaves as bench_<layer> does towards the verb. It dies after as many new results as the file `patience` says.
BENCH = """\
#!{python}
import json, os, sys
from pathlib import Path
here = Path(__file__).parent
made = json.loads((here / "record.json").read_text())
words = sys.argv[1:]
if "--environment" in words:
    print(json.dumps(made["environment"]))
    sys.exit(0)
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
def word(flag, otherwise=None):
    return words[words.index(flag) + 1] if flag in words else otherwise
if word("--set") == "ci":
    print("bench: unknown set: ci", file=sys.stderr)
    sys.exit(2)
results = [r for r in made["results"] if word("--dtype") in (None, r["dtype"]) and word("--pass") == r["pass"]
           and word("--version") in ("all", str(r["version"]))]
if "--benchmark_list_tests" in words:
    for r in results:
        print(f"toy/{{r['pass']}}/v{{r['version']:02d}}_{{r['idea']}}/{{r['problem']}}/iterations:1/manual_time")
    sys.exit(0)
file = Path(word("--record"))
partial = Path(str(file) + ".partial")
assert partial.exists() == ("--resume" in words)
if not partial.exists():
    partial.write_text(json.dumps({{"environment": made["environment"]}}) + "\\n")
done = partial.read_text().count("\\n") - 1
patience = int((here / "patience").read_text())
for r in results[done:]:
    if patience == 0:
        print("the machine went away", file=sys.stderr)
        sys.exit(137)
    patience -= 1
    with open(partial, "a") as out:
        out.write(json.dumps(r) + "\\n")
partial.unlink()
made["results"] = results
file.write_text(json.dumps(made))
sys.exit(1 if any(r["verdict"]["status"] == "FAIL" for r in results) else 0)
"""


SHAPES = """\
[ci]
small: n1 c16
[perf]
top:   n32 c64
[unet]
res64: n32 c64
"""


class Toy:
    """A tree with the layer toy, whose pass fprop has v01 to v03."""

    def __init__(self, tmp_path, capsys):
        self.root, self.capsys = tmp_path, capsys
        self.results = self.root / "results"
        for number in (1, 2, 3):
            self.add_version("fprop", number)
        (self.root / "dev" / "toy" / "shapes.txt").write_text(SHAPES)
        self.bench = self.root / "build" / "bench_toy"
        self.bench.parent.mkdir()
        self.bench.write_text(textwrap.dedent(BENCH).format(python=sys.executable))
        self.bench.chmod(0o755)
        made = ((1, 200e-6, "n32 c64 bf16"), (2, 50e-6, "n32 c64 bf16"), (1, 300e-6, "n32 c64 fp32"))
        self.set_up([made_records.result(*each) for each in made])

    def add_version(self, pass_name, number, dtypes=("f32", "bf16")):
        file = self.root / "dev" / "toy" / pass_name / f"v{number:02d}_idea_{number}.cu"
        file.parent.mkdir(parents=True, exist_ok=True)
        named = ", ".join(f"ladder::Dtype::{dtype}" for dtype in dtypes)
        file.write_text(f"LADDER_VERSION(toy::Pass, {{.launch = launch, .dtypes = {{{named}}}}})\n")

    def set_up(self, results, patience=99, **fields):
        made_records.write(self.bench.parent / "record.json", made_records.record(results, **fields))
        self.set_patience(patience)

    def set_patience(self, patience):
        (self.bench.parent / "patience").write_text(str(patience))

    def calls(self):
        return [json.loads(line) for line in (self.bench.parent / "calls").read_text().splitlines()]

    def files(self):
        return sorted(file.name for file in (self.results / "h200").iterdir())

    def only_record(self):
        (name,) = self.files()
        return record_files.load(self.results / "h200" / name)


class Recording(Toy):
    def record(self, *arguments):
        """(exit status, stdout)"""
        options = record._parse([*arguments, "--results", str(self.results)])
        there = listing.read(self.root)
        parts = record._parts(options, there, record._chosen(options, there))
        machine = {"temperature.gpu": "40"}
        recording = record.Recording(
            options, parts, {"toy/fprop": self.bench}, self.results, [{"registers": 1}], lambda: machine
        )
        return recording.run(), self.capsys.readouterr().out


@pytest.fixture
def recording(tmp_path, capsys):
    return Recording(tmp_path, capsys)


def test_a_record_is_one_sealed_file_named_after_date_and_commit(recording):
    status, out = recording.record()
    assert status == 0
    (name,) = recording.files()
    assert re.search(r"^\d{4}-\d\d-\d\d_abcdef0\.json$", name)
    made = recording.only_record()
    assert '"sha256"' in made.file.read_text()
    assert len(made.results) == 3
    assert (made.machine["after"], made.kernels) == ({"temperature.gpu": "40"}, [{"registers": 1}])
    assert "toy/fprop bf16, x baseline: v01 0.50, v02 2.00" in out
    assert "3 PASS" in out


def test_parts_of_several_dtypes_are_joined(recording):
    assert recording.record("--dtype", "bf16,fp32")[0] == 0
    made = recording.only_record()
    assert [result.dtype for result in made.results] == ["bf16", "bf16", "fp32"]
    assert len(made.programs["toy/fprop"]) == 2


def test_the_set_and_a_full_search_are_asked_for_by_name(recording):
    recording.record()
    recording.record("--tag", "quick", "--baseline", "heuristic")
    full, quick = (call for call in recording.calls() if "--record" in call)
    assert full[full.index("--set") + 1] == quick[quick.index("--set") + 1] == "unet"
    assert "--dtype" not in full
    assert "--baseline=all" in full and "--baseline=heuristic" in quick


def test_parts_of_two_places_are_not_joined():
    one = made_records.record([])
    other = copy.deepcopy(one)
    other["environment"]["device"]["uuid"] = "GPU-2"
    with pytest.raises(Failure, match="differ in device"):
        record.joined(["toy/fprop"] * 2, [one, other])


def test_a_record_is_never_changed(recording):
    recording.record()
    before = recording.only_record().file.read_bytes()
    with pytest.raises(UsageError, match="never changed: --tag"):
        recording.record()
    assert recording.only_record().file.read_bytes() == before
    assert recording.record("--tag", "again")[0] == 0
    assert [name[10:] for name in recording.files()] == ["_abcdef0.json", "_abcdef0_again.json"]
    with pytest.raises(Failure):
        record.write_new(recording.results / "h200" / recording.files()[0], "other")


def test_uncommitted_changes_show_in_the_name_and_the_record(recording):
    recording.set_up([made_records.result(1, 200e-6)], dirty=True)
    recording.record()
    assert recording.only_record().file.name.endswith("_abcdef0_dirty.json")
    assert recording.only_record().short == "abcdef0+"


def test_an_interrupted_recording_keeps_what_it_has_and_goes_on(recording):
    recording.set_up([made_records.result(version, 200e-6) for version in (1, 2, 3)], patience=2)
    with pytest.raises(Failure, match="went away; 2 of 3 results kept, go on with ./ladder record --resume"):
        recording.record("--seed", "7")
    (name,) = recording.files()
    assert name.endswith(".partial")
    with pytest.raises(UsageError, match="interrupted recording: go on with ./ladder record --resume"):
        recording.record()
    recording.set_patience(99)
    assert recording.record("--resume")[0] == 0
    assert [result.version for result in recording.only_record().results] == [1, 2, 3]
    measured = [call for call in recording.calls() if "--record" in call]
    assert [("--resume" in call, call[call.index("--seed") + 1]) for call in measured] == [(False, "7"), (True, "7")]


def test_parts_that_were_whole_are_not_measured_again(recording):
    recording.set_up(
        [
            made_records.result(1, 200e-6),
            made_records.result(1, 300e-6, "n32 c64 fp32"),
            made_records.result(2, 300e-6, "n32 c64 fp32"),
        ],
        patience=1,
    )
    with pytest.raises(Failure):
        recording.record("--dtype", "bf16,fp32")
    recording.set_patience(99)
    assert recording.record("--resume")[0] == 0
    measured = [call for call in recording.calls() if "--record" in call]
    assert [call[call.index("--dtype") + 1] for call in measured] == ["bf16", "fp32", "fp32"]
    assert len(recording.only_record().results) == 3


def test_nothing_to_resume_is_said(recording):
    with pytest.raises(UsageError, match="no interrupted recording of abcdef0"):
        recording.record("--resume")


def test_what_failed_is_recorded_and_is_the_exit_status(recording):
    recording.set_up([made_records.result(1, 200e-6), made_records.result(2, None, status="FAIL", reason="wrong")])
    status, out = recording.record()
    assert (status, "1 FAIL, 1 PASS" in out) == (1, True)
    assert [result.status for result in recording.only_record().results] == ["PASS", "FAIL"]


def test_the_benchs_own_words_for_wrong_usage(recording):
    with pytest.raises(UsageError, match="unknown set: ci"):
        recording.record("--set", "ci")
    for wrong in (["--dtype", "int8"], ["--tag", "a b"], ["--velocity"]):
        with pytest.raises(UsageError):
            record._parse(wrong)


def test_the_estimate_is_what_the_last_record_took():
    names = {"part": ["a", "b", "c", "d"]}
    progress = record.Progress(names, {"a": 10, "b": 20, "c": 30})
    assert progress.forecast() == "about 1:20 by the last record"
    assert progress._expected(2) == 50
    assert record.Progress(names, {}).forecast() == "no estimate yet"


def test_a_full_disk_leaves_no_half_a_record(recording):
    file = recording.results / "h200" / "a.json"
    file.parent.mkdir(parents=True)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    aside = file.with_name(f".a.json.{os.getpid()}")
    aside.symlink_to(full)
    with pytest.raises(Failure, match="was not written: No space left"):
        record.write_new(file, "x" * 100000)
    assert list(file.parent.iterdir()) == []


class Missing(Toy):
    """--missing as a user calls it, on a machine without a GPU or with one."""

    def __init__(self, tmp_path, monkeypatch, capsys):
        super().__init__(tmp_path, capsys)
        self.monkeypatch = monkeypatch
        self.add_version("dgrad", 1, ("f32",))
        self.built = []
        self.on_gpu(None)
        monkeypatch.setattr(record.paths, "ROOT", self.root)
        monkeypatch.setattr(record.build, "folder", lambda preset: self.bench.parent)
        monkeypatch.setattr(record.build, "build", lambda preset, targets: self.built.append(targets))
        monkeypatch.setattr(record.resources, "collect", lambda folder: ([], None))
        monkeypatch.setattr(record, "read_machine", lambda: None)

    def on_gpu(self, model):
        found = (device._Gpu(model, 90), "") if model else (None, "no GPU: for a test")
        self.monkeypatch.setattr(device, "_first", lambda: found)

    def recorded(self, *results, folder="h200", name="a.json", **fields):
        made_records.write(self.results / folder / name, made_records.record(list(results), **fields))

    def ladder(self, *arguments):
        """(exit status, lines of stdout, lines of stderr)"""
        status = record.main([*arguments, "--results", str(self.results)])
        return status, *(text.splitlines() for text in self.capsys.readouterr())

    def list(self, *arguments):
        """{pass: the other cells of its row} and the last line"""
        status, out, said = self.ladder("--missing", "--list", *arguments)
        assert (status, said, self.built) == (0, [], [])
        return {row[0]: row[1:] for row in (re.split(r" {2,}", line) for line in out[1:-2])}, out[-1]

    def refused(self, says, *arguments):
        with pytest.raises(UsageError) as caught:
            self.ladder(*arguments)
        assert len(str(caught.value).splitlines()) == 1
        assert says in str(caught.value)

    def measured(self):
        """Of each run that measured: its pass, version, set or problem, and dtype."""

        def word(call, flag):
            return call[call.index(flag) + 1] if flag in call else None

        def words(call):
            what = word(call, "--set") or word(call, "--problem")
            return word(call, "--pass"), word(call, "--version"), what, word(call, "--dtype")

        return [words(call) for call in self.calls() if "--record" in call]

    def parts(self, *arguments):
        """Of what would be recorded: pass, dtype, version, and which problems."""
        options = record._parse(["--missing", *arguments, "--results", str(self.results)])
        there = listing.read(self.root)
        chosen = record._chosen(options, there)
        parts = record._parts(options, there, chosen, record._gaps(options, there, chosen, "h200"))
        return [(path, dtype, words[1], *words[2:4]) for path, dtype, words in parts]


@pytest.fixture
def missing(tmp_path, monkeypatch, capsys):
    return Missing(tmp_path, monkeypatch, capsys)


def test_the_list_is_a_line_a_pass_and_one_of_counts(missing):
    missing.recorded(made_records.result(2, 50e-6))
    status, out, said = missing.ladder("--missing", "--list")
    assert (status, said) == (0, [])
    assert out[:-1] == [
        "pass       recorded  not recorded  recorded, but not in",
        "toy/dgrad  0 of 1    v01           -",
        "toy/fprop  1 of 3    v01 v03       fp32 v02",
        "",
    ]
    assert out[-1] == (
        "3 of 4 versions have no record on h200; run ./ladder record --missing --results "
        f"{missing.results}; recorded, but not in a dtype of theirs: 1 (--dtype fp32)"
    )
    assert [file.name for file in missing.results.rglob("*.json*")] == ["a.json"]


def test_only_what_passed_on_that_gpu_is_a_record(missing):
    missing.recorded(
        made_records.result(1, None, status="FAIL", reason="wrong"),
        made_records.result(2, None, status="SKIP", reason="odd"),
        made_records.result(3, 50e-6),
    )
    missing.recorded(made_records.result(1, 50e-6), folder="h100")
    missing.recorded(made_records.result(1, 50e-6), kind="emulator", name="b.json")
    missing.recorded(made_records.result(1, 50e-6), kind="emulator", folder="emulator")
    assert missing.list("toy/fprop", "--device", "h200")[0]["toy/fprop"][:2] == ["1 of 3", "v01 v02"]
    assert missing.list("toy/fprop", "--device", "h100")[0]["toy/fprop"][:2] == ["1 of 3", "v02 v03"]


def test_one_result_that_passed_is_enough(missing):
    missing.recorded(made_records.result(1, None, "n1 c1 bf16", status="FAIL"), made_records.result(1, 50e-6))
    missing.recorded(made_records.result(1, None, status="FAIL"), name="b.json", created="2026-02-01T00:00:00Z")
    assert missing.list("toy/fprop")[0]["toy/fprop"][1] == "v02 v03"


def test_a_record_that_contradicts_itself_is_named_and_does_not_count(missing):
    missing.recorded(made_records.result(1, 50e-6))
    missing.recorded(made_records.result(2, 50e-6), name="b.json", sha256="0" * 64)
    _, out, said = missing.ladder("--missing", "--list", "toy/fprop")
    assert re.search(r"^ladder: not counted: .*b\.json: changed since it was written[^\n]*$", "\n".join(said))
    assert "v02 v03" in out[1]


def test_each_dtype_is_asked_about_by_itself(missing):
    missing.recorded(made_records.result(1, 50e-6), made_records.result(2, 50e-6, "n32 c64 fp32"))
    rows, last = missing.list("--dtype", "bf16,fp32")
    assert rows == {"toy/dgrad": ["-", "-", "0 of 1", "v01"], "toy/fprop": ["1 of 3", "v02 v03", "1 of 3", "v01 v03"]}
    assert (
        "5 of 7 versions, counted in each dtype, have no record on h200 in bf16, fp32; run ./ladder record "
        "--missing --dtype bf16,fp32 "
    ) in last
    assert "recorded, but" not in last
    assert "v02 v03" in missing.list("toy/fprop", "--problem", "n1 c1 bf16")[0]["toy/fprop"]
    missing.refused("no version that was asked for has fp16", "--missing", "--list", "--dtype", "fp16")


def test_a_version_that_names_no_dtypes_may_have_any(missing):
    missing.add_version("fprop", 4, ())
    missing.recorded(*(made_records.result(version, 50e-6) for version in (1, 2, 3)))
    assert missing.list("toy/fprop", "--dtype", "bf16")[0]["toy/fprop"] == ["3 of 4", "v04"]
    assert missing.list("toy/fprop", "--version", "4")[0]["toy/fprop"] == ["0 of 1", "v04", "-"]


def test_where_nothing_is_missing_a_line_says_so_without_a_gpu(missing):
    missing.recorded(*(made_records.result(version, 50e-6) for version in (1, 2, 3)))
    assert missing.ladder("--missing", "toy/fprop") == (
        0,
        [],
        [
            "ladder: nothing to record: none of 3 versions lacks a record on h200; recorded, but not "
            "in a dtype of theirs: 3 (--dtype fp32)"
        ],
    )
    assert missing.list("toy/fprop", "--dtype", "bf16") == (
        {"toy/fprop": ["3 of 3", "-"]},
        "none of 3 versions lacks a record on h200 in bf16",
    )
    assert (missing.built, missing.files()) == ([], ["a.json"])
    with pytest.raises(Failure, match="record needs a GPU: no GPU: for a test"):
        missing.ladder("--missing")


def test_what_is_missing_is_recorded_and_nothing_else(missing):
    missing.on_gpu("NVIDIA H200")
    missing.recorded(made_records.result(2, 50e-6), made_records.result(3, 50e-6))
    missing.set_up(
        [
            made_records.result(1, 200e-6),
            made_records.result(2, 50e-6),
            made_records.result(3, 50e-6),
            made_records.result(1, 300e-6, "n32 c64 fp32", **{"pass": "dgrad"}),
        ]
    )
    assert missing.ladder("--missing")[0] == 0
    assert missing.built == [["bench_toy"]]
    assert missing.measured() == [("dgrad", "1", "perf", None), ("fprop", "1", "perf", None)]
    (missing.results / "h200" / "a.json").unlink()
    assert [(result.path, result.version) for result in missing.only_record().results] == [
        ("toy/dgrad", 1),
        ("toy/fprop", 1),
    ]


def test_which_problems_and_dtypes_are_run(missing):
    missing.recorded(made_records.result(2, 50e-6), made_records.result(3, 50e-6, "n32 c64 fp32"))
    assert missing.parts("toy/fprop") == [("toy/fprop", None, "1", "--set", "perf")]
    assert missing.parts("toy/fprop", "--version", "2-3") == []
    assert missing.parts("toy/fprop", "--set", "unet") == [("toy/fprop", None, "1", "--set", "unet")]
    assert missing.parts("toy/fprop", "--problem", "n1 c1") == [("toy/fprop", None, "1", "--problem", "n1 c1")]
    assert missing.parts("--problem", "n1 c1 bf16") == [("toy/fprop", "bf16", "1,3", "--problem", "n1 c1 bf16")]
    assert missing.parts("--dtype", "bf16,fp32") == [
        ("toy/dgrad", "fp32", "1", "--set", "perf"),
        ("toy/fprop", "bf16", "1,3", "--set", "perf"),
        ("toy/fprop", "fp32", "1,2", "--set", "perf"),
    ]
    (missing.root / "dev" / "toy" / "shapes.txt").write_text("[unet]\nres64: n32 c64\n")
    assert missing.parts("toy/fprop") == [("toy/fprop", None, "1", "--set", "unet")]


@pytest.mark.parametrize(
    ("sets", "only_missing", "chosen"),
    [(("ci", "perf", "unet"), False, "unet"), (("ci", "perf", "unet"), True, "perf"), (("ci", "perf"), False, "perf")],
)
def test_a_layer_that_the_unet_has_not_is_recorded_on_perf(sets, only_missing, chosen):
    layer = listing.Layer("toy", (), "", dict.fromkeys(sets, {}))
    assert record._set(argparse.Namespace(set=None, missing=only_missing), layer) == chosen


def test_an_interrupted_one_goes_on_with_what_it_had_planned(missing):
    missing.on_gpu("NVIDIA H200")
    missing.set_up(
        [
            made_records.result(1, 200e-6),
            made_records.result(2, 50e-6),
            made_records.result(2, 90e-6, "n32 c64 fp32"),
            made_records.result(1, 300e-6, "n32 c64 fp32", **{"pass": "dgrad"}),
        ],
        patience=1,
    )
    missing.recorded(made_records.result(1, 50e-6), made_records.result(3, 50e-6))
    with pytest.raises(Failure, match="2 of 3 results kept, go on with ./ladder record --resume"):
        missing.ladder("--missing")
    (plan,) = missing.results.glob("h200/*.partial/plan.json")
    assert [[path, dtype, words[:4]] for path, dtype, words in json.loads(plan.read_text())["parts"]] == [
        ["toy/dgrad", None, ["--version", "1", "--set", "perf"]],
        ["toy/fprop", None, ["--version", "2", "--set", "perf"]],
    ]
    missing.recorded(
        made_records.result(2, 50e-6), made_records.result(1, 50e-6, "n32 c64 fp32", **{"pass": "dgrad"}), name="b.json"
    )
    missing.set_patience(99)
    assert missing.ladder("--missing", "--resume")[0] == 0
    assert missing.measured() == [
        ("dgrad", "1", "perf", None),
        ("fprop", "2", "perf", None),
        ("fprop", "2", "perf", None),
    ]


def test_whose_records_count(missing):
    missing.refused("no GPU here, and ", "--missing", "--list")
    missing.recorded(made_records.result(1, 50e-6))
    missing.recorded(made_records.result(1, None), kind="emulator", folder="emulator")
    assert " on h200;" in missing.list()[1]
    missing.refused(
        "--device h300: no record of it; there are those of: h200", "--missing", "--list", "--device", "h300"
    )
    missing.recorded(made_records.result(2, 50e-6), folder="rtx-4090")
    assert " on h200;" in missing.list("--device", "h200")[1]
    status, out, said = missing.ladder("--missing", "--list")
    assert (status, said) == (0, ["ladder: the newest record is of rtx-4090; --device chooses another (h200)"])
    assert " on rtx-4090;" in out[-1]
    missing.on_gpu("NVIDIA GeForce RTX 4090")
    assert " on rtx-4090;" in missing.list()[1]
    missing.refused("--device h200: the GPU here is rtx-4090", "--missing", "--device", "h200")
    missing.on_gpu("NVIDIA H100 PCIe")
    assert "4 of 4 versions have no record on h100-pcie;" in missing.list()[1]


def test_slugs_are_those_of_the_programs():
    models = ("NVIDIA H200", "NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-16GB", "NVIDIA A100 80GB PCIe")
    assert [device.slug_of(model) for model in models] == ["h200", "rtx-4090", "v100-sxm2-16gb", "a100-80gb-pcie"]


def test_wrong_usage(missing):
    missing.recorded(made_records.result(1, 50e-6))
    missing.refused("--list needs --missing", "--list")
    missing.refused("--device needs --missing", "--device", "h200")
    missing.refused("--version best exclude each other", "--missing", "--version", "best")
    missing.refused("--list and --resume exclude each other", "--missing", "--list", "--resume")
    missing.refused("no layer 'tpy'", "--missing", "--list", "tpy")
    missing.refused("--set 'prf': toy has ci, perf, unet", "--missing", "--set", "prf")


@pytest.mark.skipif(not (ROOT / "build" / "emulator" / "bench_conv3x3").exists(), reason="no emulator build")
def test_its_partial_files_and_names_are_understood(tmp_path):
    options = record._parse(["--set", "ci", "--version", "1", "--dtype", "fp32,bf16", "--results", str(tmp_path)])
    there = listing.read(ROOT)
    parts = record._parts(options, there, {"conv3x3/fprop": there.find("conv3x3/fprop").versions})
    programs = {"conv3x3/fprop": ROOT / "build" / "emulator" / "bench_conv3x3"}
    assert record.Recording(options, parts, programs, tmp_path, [], lambda: None).run() == 0
    (file,) = (tmp_path / "emulator").glob("*.json")
    made = record_files.load(file)
    assert {result.status for result in made.results} == {"PASS"}
    assert {result.dtype for result in made.results} == {"fp32", "bf16"}
