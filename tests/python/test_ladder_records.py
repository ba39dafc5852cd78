"""The reader of records: what it takes from a whole one, and that it believes none that contradicts itself."""

import copy
import json
import math
from pathlib import Path

import pytest

import made_records
from cli import json_file
from records import record_files

ROOT = Path(__file__).resolve().parents[2]


class Records:
    def __init__(self, tmp_path):
        self.results = tmp_path
        self.file = self.results / "h200" / "a.json"
        self.made = made_records.record([made_records.result(1, [90e-6, 100e-6, 130e-6], clock=[1e9, 2e9, 2e9])])

    def load(self, made):
        return record_files.load(made_records.write(self.file, made))

    def refused(self, made, says):
        with pytest.raises(record_files.BadRecord) as raised:
            self.load(made)
        assert says in str(raised.value)
        assert "a.json" in str(raised.value)
        assert len(str(raised.value).splitlines()) == 1

    def spoiled(self, change):
        made = copy.deepcopy(self.made)
        change(made["results"][0])
        return made


@pytest.fixture
def kept(tmp_path):
    return Records(tmp_path)


def test_a_whole_record(kept):
    record = kept.load(kept.made)
    assert (record.device, record.short, record.fingerprint["library"]) == ("h200", "abcdef0", "cuDNN 9")
    (result,) = record.results
    assert result.key == ("h200", "toy/fprop", 1, "n32 c64 bf16")
    assert result.times.seconds == [90e-6, 100e-6, 130e-6]
    assert result.times.cycles == [90e-6 * 1e9, 100e-6 * 2e9, 130e-6 * 2e9]
    assert (result.times.median, result.baseline_times.median) == (100e-6, 100e-6)


def test_the_time_of_moving_the_bytes(kept):
    (result,) = kept.load(kept.made).results
    assert math.isnan(result.streaming)
    made = kept.spoiled(lambda result: result.update(streaming={"seconds": 20e-6, "samples": [19e-6, 20e-6, 30e-6]}))
    assert kept.load(made).results[0].streaming == 20e-6
    made["results"][0]["streaming"]["seconds"] = 18e-6
    kept.refused(made, "the streaming kernel of v01 n32 c64 bf16: the median")
    made["results"][0]["streaming"] = {"seconds": 0, "samples": [0]}
    kept.refused(made, "positive")


def test_a_library_in_its_own_process_knows_no_clock(kept):
    def of_a_worker(result):
        result["baseline"]["times"]["cold_samples"]["sm_clock_hz"] = [None] * 3
        result["baseline"]["times"]["warm_samples"]["seconds"] = []
        result["baseline"]["times"]["warm_seconds"] = None
        result["baseline"]["tried_plans"] = [
            {"name": "eager", "seconds": 1e-6, "reason": ""},
            {"name": "ill", "seconds": 0, "reason": "no compiler"},
        ]
        result["baseline"]["reason"] = "no cuDNN"

    (result,) = kept.load(kept.spoiled(of_a_worker)).results
    assert all(math.isnan(clock) for clock in result.baseline_times.clocks)
    assert result.baseline_times.median == 100e-6
    assert [plan.name for plan in result.tried_plans] == ["eager", "ill"]
    assert result.tried_plans[0].seconds == 1e-6
    assert math.isnan(result.tried_plans[1].seconds)
    assert result.baseline_reason == "no cuDNN"

    def impossible(result):
        result["baseline"]["times"]["cold_samples"]["sm_clock_hz"] = [None, -1e9, None]

    kept.refused(kept.spoiled(impossible), "positive")


def test_the_records_of_this_tree_are_whole():
    records, bad = record_files.load_all(ROOT / "results")
    assert bad == []
    assert len(records) >= 4


def test_a_figure_that_its_samples_do_not_bear_out_is_refused(kept):
    def faster(result):
        result["times"]["cold_seconds"]["median"] *= 0.98

    def faster_warm(result):
        result["times"]["warm_seconds"] *= 0.98

    def slower_baseline(result):
        result["baseline"]["times"]["cold_seconds"]["median"] *= 1.02

    kept.refused(kept.spoiled(faster), "v01 n32 c64 bf16: the median is said to be")
    kept.refused(kept.spoiled(faster_warm), "v01 n32 c64 bf16: the median is said to be")
    kept.refused(kept.spoiled(slower_baseline), "the baseline of v01")


def test_impossible_samples_are_refused(kept):
    for wrong, says in (
        (0, "samples must be positive"),
        (-1e-6, "samples must be positive"),
        (math.inf, "no number of JSON"),
        (math.nan, "no number of JSON"),
    ):
        kept.refused(
            kept.spoiled(lambda result, wrong=wrong: result["times"]["cold_samples"]["seconds"].__setitem__(0, wrong)),
            says,
        )
    kept.refused(kept.spoiled(lambda result: result["times"]["cold_samples"]["sm_clock_hz"].pop()), "2 clocks")
    kept.refused(kept.spoiled(lambda result: result["times"]["cold_seconds"].update(low=1)), "leaves out the median")
    kept.refused(kept.spoiled(lambda result: result["verdict"].update(status="GREAT")), "GREAT")


def test_a_sealed_record_may_not_change_by_a_byte(kept):
    text = record_files.text_of(kept.made)
    kept.file.parent.mkdir(parents=True)
    kept.file.write_text(text)
    assert len(record_files.load(kept.file).results) == 1
    for old, new in (("idea_1", "idea_2"), ('"error":0.001', '"error":0.0009'), ("\n}\n", "\n}")):
        assert old in text
        kept.file.write_text(text.replace(old, new))
        with pytest.raises(record_files.BadRecord, match="checksum"):
            record_files.load(kept.file)
    kept.file.write_text(text[: len(text) // 2])
    with pytest.raises(record_files.BadRecord, match="not a record"):
        record_files.load(kept.file)


def test_a_packed_record_is_the_record(kept):
    text = record_files.text_of(kept.made)
    made_records.write(kept.file, {"schema": "ladder.conformance/1"})
    for lines in (text, text.replace("\n", "\r\n")):  # its checksum is that of its text, whatever ends a line
        packed = kept.file.with_name("b.json.xz")
        packed.write_bytes(json_file.packed(lines))
        (record,), bad = record_files.load_all(kept.results)
        assert (record.file, record.results[0].cold, bad) == (packed, 100e-6, [])
    packed.write_bytes(json_file.packed(text.replace("bf16", "fp16")))
    (error,) = record_files.load_all(kept.results)[1]
    assert "checksum" in str(error)


def test_what_is_sealed_says_what_was_given(kept):
    sealed = json.loads(record_files.text_of(kept.made))
    sealed.pop("sha256")
    assert sealed == kept.made
    again = record_files.text_of({"sha256": "0" * 64, **kept.made})
    assert again == record_files.text_of(kept.made)


def test_one_bad_record_hides_no_other(kept):
    made_records.write(kept.file, kept.made)
    made_records.write(kept.results / "h200" / "b.json", {"schema": "ladder.conformance/1"})
    made_records.write(kept.results / "h200" / "c.json", {**kept.made, "results": None})
    records, bad = record_files.load_all(kept.results)
    assert ([record.file.name for record in records], len(bad)) == (["a.json"], 1)


def test_unchecked_times_are_no_figures(kept):
    made_records.write(kept.file, kept.made)
    later = made_records.record([made_records.result(1, 1e-6, status="UNCHECKED")], created="2027-01-01T00:00:00Z")
    made_records.write(kept.results / "h200" / "b.json", later)
    (row,) = record_files.read(kept.results)
    assert (row.record.file.name, row.cold) == ("a.json", 100e-6)
