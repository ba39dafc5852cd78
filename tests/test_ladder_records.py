"""The reader of records: what it takes from a whole one, and that it believes none that contradicts itself."""

import copy
import json
import math
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import made_records  # noqa: E402
from records import record_files  # noqa: E402


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = Path(folder.name)
        self.file = self.results / "h200" / "a.json"
        self.made = made_records.record([made_records.result(1, [90e-6, 100e-6, 130e-6], clock=[1e9, 2e9, 2e9])])

    def load(self, made):
        return record_files.load(made_records.write(self.file, made))

    def refused(self, made, says):
        with self.assertRaises(record_files.BadRecord) as raised:
            self.load(made)
        self.assertIn(says, str(raised.exception))
        self.assertIn("a.json", str(raised.exception))
        self.assertEqual(len(str(raised.exception).splitlines()), 1)

    def spoiled(self, change):
        made = copy.deepcopy(self.made)
        change(made["results"][0])
        return made

    def test_a_whole_record(self):
        record = self.load(self.made)
        self.assertEqual((record.device, record.short, record.fingerprint["library"]), ("h200", "abcdef0", "cuDNN 9"))
        (result,) = record.results
        self.assertEqual(result.key, ("h200", "toy/fprop", 1, "n32 c64 bf16"))
        self.assertEqual(result.times.seconds, [90e-6, 100e-6, 130e-6])
        self.assertEqual(result.times.cycles, [90e-6 * 1e9, 100e-6 * 2e9, 130e-6 * 2e9])
        self.assertEqual((result.times.median, result.baseline_times.median), (100e-6, 100e-6))

    def test_the_time_of_moving_the_bytes(self):
        (result,) = self.load(self.made).results
        self.assertTrue(math.isnan(result.streaming))
        made = self.spoiled(
            lambda result: result.update(streaming={"seconds": 20e-6, "samples": [19e-6, 20e-6, 30e-6]})
        )
        self.assertEqual(self.load(made).results[0].streaming, 20e-6)
        made["results"][0]["streaming"]["seconds"] = 18e-6
        self.refused(made, "the streaming kernel of v01 n32 c64 bf16: the median")
        made["results"][0]["streaming"] = {"seconds": 0, "samples": [0]}
        self.refused(made, "positive")

    def test_a_library_in_its_own_process_knows_no_clock(self):
        def of_a_worker(result):
            result["baseline"]["times"]["cold_samples"]["sm_clock_hz"] = [None] * 3
            result["baseline"]["times"]["warm_samples"]["seconds"] = []
            result["baseline"]["times"]["warm_seconds"] = None
            result["baseline"]["tried_plans"] = [
                {"name": "eager", "seconds": 1e-6, "reason": ""},
                {"name": "ill", "seconds": 0, "reason": "no compiler"},
            ]
            result["baseline"]["reason"] = "no cuDNN"

        (result,) = self.load(self.spoiled(of_a_worker)).results
        self.assertTrue(all(math.isnan(clock) for clock in result.baseline_times.clocks))
        self.assertEqual(result.baseline_times.median, 100e-6)
        self.assertEqual([plan.name for plan in result.tried_plans], ["eager", "ill"])
        self.assertEqual(result.tried_plans[0].seconds, 1e-6)
        self.assertTrue(math.isnan(result.tried_plans[1].seconds))
        self.assertEqual(result.baseline_reason, "no cuDNN")

        def impossible(result):
            result["baseline"]["times"]["cold_samples"]["sm_clock_hz"] = [None, -1e9, None]

        self.refused(self.spoiled(impossible), "positive")

    def test_the_records_of_this_tree_are_whole(self):
        records, bad = record_files.load_all(ROOT / "results")
        self.assertEqual(bad, [])
        self.assertGreaterEqual(len(records), 4)

    def test_a_figure_that_its_samples_do_not_bear_out_is_refused(self):
        def faster(result):
            result["times"]["cold_seconds"]["median"] *= 0.98

        def faster_warm(result):
            result["times"]["warm_seconds"] *= 0.98

        def slower_baseline(result):
            result["baseline"]["times"]["cold_seconds"]["median"] *= 1.02

        self.refused(self.spoiled(faster), "v01 n32 c64 bf16: the median is said to be")
        self.refused(self.spoiled(faster_warm), "v01 n32 c64 bf16: the median is said to be")
        self.refused(self.spoiled(slower_baseline), "the baseline of v01")

    def test_impossible_samples_are_refused(self):
        for wrong in (0, -1e-6, math.inf, math.nan):
            self.refused(
                self.spoiled(
                    lambda result, wrong=wrong: result["times"]["cold_samples"]["seconds"].__setitem__(0, wrong)
                ),
                "samples must be positive",
            )
        self.refused(self.spoiled(lambda result: result["times"]["cold_samples"]["sm_clock_hz"].pop()), "2 clocks")
        self.refused(
            self.spoiled(lambda result: result["times"]["cold_seconds"].update(low=1)), "leaves out the median"
        )
        self.refused(self.spoiled(lambda result: result["verdict"].update(status="GREAT")), "GREAT")

    def test_a_sealed_record_may_not_change_by_a_byte(self):
        text = record_files.text_of(self.made)
        self.file.parent.mkdir(parents=True)
        self.file.write_text(text)
        self.assertEqual(len(record_files.load(self.file).results), 1)
        for old, new in (("idea_1", "idea_2"), ('"error":0.001', '"error":0.0009'), ("\n}\n", "\n}")):
            self.assertIn(old, text)
            self.file.write_text(text.replace(old, new))
            with self.assertRaisesRegex(record_files.BadRecord, "checksum"):
                record_files.load(self.file)
        self.file.write_text(text[: len(text) // 2])
        with self.assertRaisesRegex(record_files.BadRecord, "not a record"):
            record_files.load(self.file)

    def test_what_is_sealed_says_what_was_given(self):
        sealed = json.loads(record_files.text_of(self.made))
        sealed.pop("sha256")
        self.assertEqual(sealed, self.made)
        again = record_files.text_of({"sha256": "0" * 64, **self.made})
        self.assertEqual(again, record_files.text_of(self.made))

    def test_one_bad_record_hides_no_other(self):
        made_records.write(self.file, self.made)
        made_records.write(self.results / "h200" / "b.json", {"schema": "ladder.conformance/1"})
        made_records.write(self.results / "h200" / "c.json", {**self.made, "results": None})
        records, bad = record_files.load_all(self.results)
        self.assertEqual(([record.file.name for record in records], len(bad)), (["a.json"], 1))

    def test_unchecked_times_are_no_figures(self):
        made_records.write(self.file, self.made)
        later = made_records.record([made_records.result(1, 1e-6, status="UNCHECKED")], created="2027-01-01T00:00:00Z")
        made_records.write(self.results / "h200" / "b.json", later)
        (row,) = record_files.read(self.results)
        self.assertEqual((row.file, row.cold), ("a.json", 100e-6))


if __name__ == "__main__":
    unittest.main()
