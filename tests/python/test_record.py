"""./ladder record with a bench program that is a script: parts, interruption, resumption, and what is never overwritten."""

import argparse
import copy
import lzma
import os
import re
from pathlib import Path

import pytest

import made_records
from cli import device, record
from cli.errors import Failure, UsageError
from cli.progress import Progress
from cli.recording import Recording, joined, write_new
from recorded_toy import Toy
from records import current, record_files
from registry import listing

ROOT = Path(__file__).resolve().parents[2]

# Files of two recorded versions, of one that is not recorded, and shared by the layer; another pass; another layer below.
FILES = ("fprop/v01_idea_1.cu", "fprop/v02_idea_2.cu", "fprop/v03_idea_3.cu", "shared.cu", "dgrad/v01_idea_1.cu")
KERNELS = [
    {"file": file, "registers": at}
    for at, file in enumerate([*(f"dev/toy/{name}" for name in FILES), "dev/other/fprop/v01_idea_1.cu"], start=1)
]


class Recorder(Toy):
    def record(self, *arguments):
        """(exit status, stdout)"""
        options = record._parse([*arguments, "--results", str(self.results)])
        there = listing.read(self.root)
        parts = record._parts(options, there, record._chosen(options, there))
        machine = {"temperature.gpu": "40"}
        made = Recording(options, parts, {"toy/fprop": self.bench}, self.results, KERNELS, self.code, lambda: machine)
        return made.run(), self.capsys.readouterr().out


@pytest.fixture
def recording(tmp_path, capsys):
    return Recorder(tmp_path, capsys)


def test_a_record_is_one_sealed_file_named_after_date_and_commit(recording):
    status, out = recording.record()
    assert status == 0
    (name,) = recording.files()
    assert re.search(r"^\d{4}-\d\d-\d\d_abcdef0\.json\.xz$", name)
    made = recording.only_record()
    assert b'"sha256"' in lzma.decompress(made.file.read_bytes())
    assert len(made.results) == 3
    assert made.machine["after"] == {"temperature.gpu": "40"}
    assert "toy/fprop bf16, x baseline: v01 0.50, v02 2.00" in out
    assert "3 PASS" in out


def test_a_record_has_the_registers_of_its_versions_alone(recording):
    recording.record()
    assert [kernel["registers"] for kernel in recording.only_record().kernels] == [1, 2, 4]


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
        joined(["toy/fprop"] * 2, [one, other])


def test_a_record_is_never_changed(recording):
    recording.record()
    before = recording.only_record().file.read_bytes()
    with pytest.raises(UsageError, match="never changed: --tag"):
        recording.record()
    assert recording.only_record().file.read_bytes() == before
    assert recording.record("--tag", "again")[0] == 0
    assert [name[10:] for name in recording.files()] == ["_abcdef0.json.xz", "_abcdef0_again.json.xz"]
    plain = recording.results / "h200" / recording.files()[0].removesuffix(".xz")
    plain.with_suffix(".json.xz").rename(plain)
    with pytest.raises(UsageError, match=r"_abcdef0\.json exists.*never changed: --tag"):
        recording.record()
    with pytest.raises(Failure):
        write_new(recording.results / "h200" / recording.files()[0], "other")


def test_uncommitted_changes_show_in_the_name_and_the_record(recording):
    recording.set_up([made_records.result(1, 200e-6)], dirty=True)
    recording.record()
    assert recording.only_record().file.name.endswith("_abcdef0_dirty.json.xz")
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
    progress = Progress(names, {"a": 10, "b": 20, "c": 30})
    assert progress.forecast() == "about 1:20 by the last record"
    assert progress._expected(2) == 50
    assert Progress(names, {}).forecast() == "no estimate yet"


def test_the_first_results_do_not_set_the_pace_of_all(monkeypatch):
    names = {"a": [f"{i}" for i in range(400)]}
    progress = Progress(names, {f"{i}": 0.001 if i < 3 else 5 for i in range(400)})
    progress.start("a")
    progress.show("a", 0)
    progress.started -= 30
    progress.show("a", 3)
    assert 1985 < progress._left() < 2 * 1985


def test_a_full_disk_leaves_no_half_a_record(recording):
    file = recording.results / "h200" / "a.json"
    file.parent.mkdir(parents=True)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    aside = file.with_name(f".a.json.{os.getpid()}")
    aside.symlink_to(full)
    with pytest.raises(Failure, match="was not written: No space left"):
        write_new(file, "x" * 100000)
    assert list(file.parent.iterdir()) == []


def test_a_layer_that_the_unet_has_not_is_recorded_on_perf():
    for sets, chosen in ((("ci", "perf", "unet"), "unet"), (("ci", "perf"), "perf")):
        layer = listing.Layer("toy", (), "", dict.fromkeys(sets, {}))
        assert record._set(argparse.Namespace(set=None), layer) == chosen


def test_slugs_are_those_of_the_programs():
    models = ("NVIDIA H200", "NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-16GB", "NVIDIA A100 80GB PCIe")
    assert [device.slug_of(model) for model in models] == ["h200", "rtx-4090", "v100-sxm2-16gb", "a100-80gb-pcie"]


def test_a_record_has_the_digests_of_its_versions_and_the_folder_those_of_the_build(recording):
    recording.record()
    made = recording.only_record()
    assert made.machine_code == {"toy/fprop/v01": "1", "toy/fprop/v02": "2"}
    assert [result.machine_code for result in made.results] == ["1", "2", "1"]
    assert current.read(recording.results) == recording.code
    recording.code = {"sm_80": recording.code["sm_90"]}
    recording.record("--tag", "other")
    assert record_files.load_all(recording.results)[0][1].machine_code == {}


def test_a_recording_does_not_go_on_with_other_code(recording):
    recording.set_patience(1)
    with pytest.raises(Failure):
        recording.record()
    recording.code["sm_90"]["versions"]["toy/fprop/v01"] = "changed"
    with pytest.raises(UsageError, match="machine code has changed since .*partial was begun: remove it"):
        recording.record("--resume")


@pytest.mark.skipif(not (ROOT / "build" / "emulator" / "bench_conv3x3").exists(), reason="no emulator build")
def test_its_partial_files_and_names_are_understood(tmp_path):
    options = record._parse(["--set", "ci", "--version", "1", "--dtype", "fp32,bf16", "--results", str(tmp_path)])
    there = listing.read(ROOT)
    parts = record._parts(options, there, {"conv3x3/fprop": there.find("conv3x3/fprop").versions})
    programs = {"conv3x3/fprop": ROOT / "build" / "emulator" / "bench_conv3x3"}
    assert Recording(options, parts, programs, tmp_path, [], {}, lambda: None).run() == 0
    (file,) = (tmp_path / "emulator").glob("*.json.xz")
    made = record_files.load(file)
    assert {result.status for result in made.results} == {"PASS"}
    assert {result.dtype for result in made.results} == {"fp32", "bf16"}
