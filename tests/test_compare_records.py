"""./ladder compare between records: which ones are meant, the verdicts, the outputs and the exit codes."""

import contextlib
import io
import json
import random
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import made_records  # noqa: E402
from cli import paths  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402
from compare import main as compare_main  # noqa: E402
from compare import records  # noqa: E402
from records import record_files  # noqa: E402

OLD, NEW = "a" * 40, "b" * 40


def noisy(seconds, seed=1, clock=1.98e9, noise=0.001):
    rng = random.Random(f"{seconds} {seed}")
    return made_records.times([seconds * rng.gauss(1, noise) for _ in range(30)], clock)


def timed(
    version,
    seconds,
    problem="n32 c64 bf16",
    candle=30e-6,
    seed=1,
    clock=1.98e9,
    library="cuDNN 9",
    plan="eng1",
    heuristic=None,
    **more,
):
    """A result beside a baseline; None for no candle, no times of the heuristic's plan."""
    baseline = made_records.baseline(noisy(candle, seed) if candle else None, library, plan)
    baseline.update(heuristic_plan="eng1", heuristic_times=heuristic)
    return made_records.result(version, noisy(seconds, seed, clock), problem, baseline=baseline, **more)


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        patch = mock.patch.object(paths, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)

    def record(self, name, results, day=1, device="h200", **environment):
        made = made_records.record(results, created=f"2026-01-{day:02d}T00:00:00Z", **environment)
        return made_records.write(self.root / "results" / device / name, made)

    def two(self, old, new, **environment):
        """Records of two commits."""
        self.record("old.json", old, day=1, commit=OLD)
        self.record("new.json", new, day=2, **{"commit": NEW, **environment})

    def run_tool(self, *arguments):
        """(exit code, stdout, stderr)"""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = compare_main.main(list(arguments))
        return status, out.getvalue(), errors.getvalue()

    def verdicts(self, *arguments):
        report = json.loads(self.run_tool("--json", "-", *arguments)[1])
        return {
            (entry["version"], entry["problem"]): (entry["status"], entry["reason"]) for entry in report["comparisons"]
        }

    def refused(self, error, *arguments):
        with self.assertRaises(error) as caught:
            self.run_tool(*arguments)
        self.assertEqual(len(str(caught.exception).splitlines()), 1)
        return str(caught.exception)


class Verdicts(Records):
    def only(self, *arguments):
        ((verdict),) = self.verdicts(*arguments).values()
        return verdict

    def test_slow_fast_and_same_by_default_previous_against_last(self):
        self.two(
            [timed(1, 20e-6), timed(2, 20e-6), timed(3, 20e-6)],
            [timed(1, 22e-6, seed=2), timed(2, 18e-6, seed=2), timed(3, 20e-6, seed=2)],
        )
        statuses = [status for status, _ in self.verdicts().values()]
        self.assertEqual(statuses, ["SLOW", "FAST", "SAME"])

    def test_a_slower_machine_is_not_a_slow_kernel(self):
        self.two([timed(1, 20e-6)], [timed(1, 22e-6, candle=33e-6, seed=2)])
        status, reason = self.only()
        self.assertEqual(status, "AMBIGUOUS")
        self.assertIn("against the baseline's plan", reason)

    def test_a_lower_clock_is_not_a_slow_kernel(self):
        self.two([timed(1, 20e-6)], [timed(1, 21.5e-6, seed=2, clock=1.98e9 * 20 / 21.5)])
        status, reason = self.only()
        self.assertEqual(status, "AMBIGUOUS")
        self.assertIn("the SM clock fell 7.0 %", reason)

    def test_without_a_candle_a_change_is_ambiguous_and_no_change_is_the_same(self):
        for candle in ({"candle": None}, {"plan": "eng9"}, {"library": "cuDNN 10"}):
            self.two(
                [timed(1, 20e-6), timed(2, 20e-6)],
                [timed(1, 22e-6, seed=2, **candle), timed(2, 20e-6, seed=2, **candle)],
            )
            (changed, reason), (unchanged, _) = self.verdicts().values()
            self.assertEqual((changed, unchanged), ("AMBIGUOUS", "SAME"))
            self.assertIn("not interleaved", reason)
            self.assertIn("--live decides", reason)

    def test_the_heuristics_plan_stands_in_where_the_best_plan_differs(self):
        candle = made_records.times([40e-6 * random.Random(seed).gauss(1, 0.001) for seed in range(10)])
        self.two(
            [timed(1, 20e-6, plan="eng7", heuristic=candle)], [timed(1, 22e-6, seed=2, plan="eng9", heuristic=candle)]
        )
        self.assertEqual(self.only()[0], "SLOW")

    def test_too_few_samples(self):
        few = made_records.result(1, [20e-6] * 8, against=[30e-6] * 8)
        self.two([timed(1, 20e-6)], [few])
        self.assertIn("too few repetitions: 8", self.only()[1])

    def test_missing_and_untrusted_have_reasons(self):
        self.two(
            [timed(1, 20e-6), timed(2, 20e-6), timed(3, 20e-6), timed(4, 20e-6)],
            [
                made_records.result(2, None, status="SKIP", reason="c is odd"),
                made_records.result(3, None, status="FAIL", reason="5 elements are wrong"),
                timed(4, 20e-6, status="UNTRUSTED", reason="faster than light"),
                timed(5, 20e-6),
            ],
        )
        verdicts = {version: verdict for (version, _), verdict in self.verdicts().items()}
        self.assertEqual(
            verdicts,
            {
                1: ("MISSING", "not in B"),
                2: ("MISSING", "SKIP in B: c is odd"),
                3: ("MISSING", "FAIL in B: 5 elements are wrong"),
                4: ("UNTRUSTED", "UNTRUSTED in B: faster than light"),
                5: ("MISSING", "not in A"),
            },
        )

    def test_what_neither_side_timed_is_not_compared(self):
        skip = made_records.result(2, None, status="SKIP", reason="c is odd")
        self.two([timed(1, 20e-6), skip], [timed(1, 20e-6, seed=2), skip])
        self.assertEqual(list(self.verdicts()), [(1, "n32 c64 bf16")])

    def test_filters(self):
        both = [timed(version, 20e-6, problem) for version in (1, 2) for problem in ("n32 c64 bf16", "n32 c8 fp32")]
        self.two(both, both)
        self.assertEqual(list(self.verdicts("--version", "2", "--dtype", "fp32")), [(2, "n32 c8 fp32")])
        self.assertEqual(len(self.verdicts("--problem", "n32 c64")), 2)
        self.assertEqual(len(self.verdicts("--problem", "n32 c64 bf16", "--version", "1-2")), 2)
        self.assertIn("nothing to compare", self.refused(UsageError, "--problem", "n32 c6"))  # no beginning of a line
        for target in ("toy", "toy/fprop"):
            self.assertEqual(len(self.verdicts(target)), 4)
            self.assertEqual(len(self.verdicts("previous", target, "last", "--version", "v02")), 2)
        self.assertIn("'toy/dgrad' is no file, no commit", self.refused(UsageError, "toy/dgrad"))
        self.assertIn("no version '3': toy/fprop has v01", self.refused(UsageError, "--version", "3"))


class Naming(Records):
    def test_commits_files_and_words_name_records(self):
        self.two([timed(1, 20e-6)], [timed(1, 22e-6, seed=2)])
        new = str(self.root / "results" / "h200" / "new.json")
        for a, b in (("aaaaaaa", "bbbbbbb"), ("previous", new), (OLD, "last")):
            self.assertEqual(list(self.verdicts(a, b).values())[0][0], "SLOW", (a, b))
        self.assertEqual(list(self.verdicts("last", "previous").values())[0][0], "FAST")
        self.assertEqual(list(self.verdicts("aaaaaaa").values())[0][0], "SLOW")  # against last

    def test_records_of_one_commit_are_merged_the_newest_wins(self):
        self.record("old.json", [timed(1, 20e-6), timed(1, 20e-6, "n32 c64 fp32")], day=1, commit=OLD)
        self.record("b16.json", [timed(1, 25e-6)], day=2, commit=NEW)
        self.record("b32.json", [timed(1, 25e-6, "n32 c64 fp32")], day=3, commit=NEW)
        self.record("b16_again.json", [timed(1, 20e-6, seed=3)], day=4, commit=NEW)
        statuses = {problem: status for (_, problem), (status, _) in self.verdicts("aaaa", "bbbb").items()}
        self.assertEqual(statuses, {"n32 c64 bf16": "SAME", "n32 c64 fp32": "SLOW"})

    def test_last_joins_files_of_one_commit_that_repeat_nothing(self):
        self.two([timed(1, 20e-6), timed(1, 20e-6, "n32 c64 fp32")], [timed(1, 20e-6, seed=2)])
        self.record("more.json", [timed(1, 20e-6, "n32 c64 fp32", seed=2)], day=3, commit=NEW)
        self.assertEqual([status for status, _ in self.verdicts().values()], ["SAME", "SAME"])

    def test_a_commit_measured_twice_compares_with_itself(self):
        self.two([timed(1, 20e-6)], [timed(1, 20e-6, seed=2)], commit=OLD)
        self.assertEqual([status for status, _ in self.verdicts().values()], ["SAME"])

    def test_previous_is_one_that_has_some_of_the_kernels_of_last(self):
        self.two([timed(1, 20e-6)], [timed(1, 20e-6, "n32 c64 fp32")])
        self.record("newest.json", [timed(1, 22e-6, seed=2)], day=3, commit="c" * 40)
        self.assertEqual([status for status, _ in self.verdicts().values()], ["SLOW"])

    def test_a_dirty_record_is_used_only_where_there_is_no_clean_one(self):
        self.two([timed(1, 20e-6)], [timed(1, 20e-6, seed=2)])
        self.record("dirty.json", [timed(1, 40e-6)], day=3, commit=NEW, dirty=True)
        self.assertEqual(list(self.verdicts("aaaa", "bbbb").values())[0][0], "SAME")
        self.assertIn("bbbbbbb+", self.run_tool("aaaa", "last")[1])

    def test_different_devices_never_compare(self):
        h200 = self.record("old.json", [timed(1, 20e-6)], commit=OLD)
        a100 = self.record("new.json", [timed(1, 20e-6)], commit=NEW, device="a100")
        for pair in ((str(h200), str(a100)), ("aaaa", "bbbb")):
            message = self.refused(UsageError, *pair)
            self.assertIn("h200", message)
            self.assertIn("a100", message)
        self.assertIn("several devices", self.refused(UsageError))
        self.assertIn("no 'previous'", self.refused(UsageError, "--device", "h200"))

    def test_what_is_not_there(self):
        self.assertIn("no record in results/", self.refused(UsageError))
        self.record("old.json", [timed(1, 20e-6)], commit=OLD)
        self.assertIn("no 'previous'", self.refused(UsageError))
        self.assertIn("there are: aaaaaaa", self.refused(UsageError, "cccccc"))
        self.assertIn("no file", self.refused(UsageError, "nowhere.json"))
        self.assertIn("no commit", self.refused(UsageError, "the best one"))
        self.assertIn("not 3 words", self.refused(UsageError, "a", "b", "c"))

    def test_corrupt_records_are_named_and_passed_over(self):
        self.two([timed(1, 20e-6)], [timed(1, 22e-6, seed=2)])
        bad = self.root / "results" / "h200" / "bad.json"
        good = (self.root / "results" / "h200" / "new.json").read_text()
        for text in ("", "{", good[: len(good) // 2], good.replace('"problem"', '"question"')):
            bad.write_text(text)
            status, out, errors = self.run_tool()
            self.assertEqual(status, 0)
            self.assertIn("1 SLOW", out)
            self.assertEqual(len(errors.splitlines()), 1)
            self.assertIn("bad.json", errors)
            self.assertIn("bad.json", self.refused(Failure, str(bad), "last"))

    def test_json_of_another_kind_is_no_side(self):
        other = self.root / "results" / "h200" / "conformance.json"
        self.two([timed(1, 20e-6)], [timed(1, 20e-6)])
        other.write_text('{"schema": "ladder.conformance/1"}')
        self.assertIn("no record", self.refused(UsageError, str(other)))


class Output(Records):
    def setUp(self):
        super().setUp()
        self.two(
            [timed(1, 20e-6), timed(2, 20e-6), timed(3, 20e-6), timed(4, 20e-6, "n32 c64 bf16")],
            [timed(1, 21e-6, seed=2), timed(2, 24e-6, seed=2), timed(3, 20e-6, seed=2)],
        )

    def test_the_worst_comes_first_with_its_reproducer_and_the_same_is_folded(self):
        _, out, _ = self.run_tool()
        lines = [line for line in out.splitlines() if line.startswith(("SLOW", "MISSING", "SAME"))]
        self.assertEqual([line.split()[0] for line in lines], ["SLOW", "SLOW", "MISSING"])
        self.assertTrue(
            lines[0].endswith("./ladder compare --live aaaaaaaaaa toy/fprop --version 2 --problem 'n32 c64 bf16'"),
            lines[0],
        )
        self.assertIn("4 kernels: 2 SLOW, 1 MISSING, 1 SAME", out)
        self.assertIn("geometric mean of B / A over 3 kernels: 1.0", out)
        self.assertNotIn("\033", out)
        self.assertIn("SAME", self.run_tool("--all")[1].split("geometric")[0])

    def test_changes_of_the_environment_are_noted(self):
        self.record("newer.json", [timed(1, 20e-6)], day=3, commit="c" * 40, compiler="nvcc 14")
        self.assertIn("note: compiler nvcc 13 in A, nvcc 14 in B", self.run_tool()[1])

    def test_exit_codes(self):
        self.assertEqual(self.run_tool()[0], 0)
        self.assertEqual(self.run_tool("--fail-on", "slow")[0], 3)
        self.assertEqual(self.run_tool("--fail-on", "missing")[0], 3)
        self.assertEqual(self.run_tool("--fail-on", "untrusted,ambiguous")[0], 0)
        self.assertEqual(self.run_tool("--version", "3", "--fail-on", "slow,missing,untrusted,ambiguous")[0], 0)

    def test_json(self):
        file = self.root / "out.json"
        self.run_tool("--json", str(file))
        report = json.loads(file.read_text())
        self.assertEqual(
            (report["schema"], report["mode"], report["a"]["commit"]), ("ladder.comparison/1", "records", OLD)
        )
        self.assertEqual(
            report["counts"], {"SLOW": 2, "UNTRUSTED": 0, "MISSING": 1, "AMBIGUOUS": 0, "FAST": 0, "SAME": 1}
        )
        worst, missing = report["comparisons"][0], report["comparisons"][2]
        self.assertAlmostEqual(worst["ratio"], 1.2, delta=0.002)
        self.assertEqual((missing["ratio"], missing["b_seconds"], missing["reason"]), (None, None, "not in B"))
        self.assertEqual([path.name for path in self.root.iterdir()], ["results", "out.json"])  # nothing left aside

    def test_junit(self):
        file = self.root / "junit.xml"
        self.run_tool("--junit", str(file), "--fail-on", "slow")
        suites = ElementTree.parse(file).getroot()
        (suite,) = suites
        self.assertEqual((suites.tag, suite.tag), ("testsuites", "testsuite"))
        self.assertEqual([suite.get(name) for name in ("tests", "failures", "errors", "skipped")], ["4", "2", "0", "1"])
        outcome = {case.get("classname"): [child.tag for child in case] for case in suite}
        self.assertEqual(
            outcome,
            {
                "h200.toy.fprop.v02": ["failure"],
                "h200.toy.fprop.v01": ["failure"],
                "h200.toy.fprop.v04": ["skipped"],
                "h200.toy.fprop.v03": [],
            },
        )
        for case in suite:
            self.assertEqual(case.get("name"), "n32 c64 bf16")
            self.assertGreaterEqual(float(case.get("time")), 0)
        self.assertIn("--live", suite[0][0].text)
        self.run_tool("--junit", str(file), "--fail-on", "missing")
        self.assertEqual(ElementTree.parse(file).getroot().get("failures"), "3")

    def test_wrong_usage_is_one_line(self):
        live = ("--live", "HEAD")
        for arguments in (
            ("--fail-on", "fast"),
            ("--version", "x"),
            ("--nonsense",),
            ("--inject-slowdown", "2"),
            ("--keep", "x"),
            (*live, "--set", "a", "--problem", "b"),
            (*live, "--repetitions", "0"),
        ):
            self.refused(UsageError, *arguments)
        self.assertIn("folder does not exist", self.refused(Failure, "--json", str(self.root / "no" / "x.json")))

    def test_an_unwritable_file_is_one_line(self):
        (self.root / "taken").mkdir()
        self.assertIn("cannot write", self.refused(Failure, "--json", str(self.root / "taken")))
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), ["results", "taken"])


class RealRecords(unittest.TestCase):
    def test_the_records_of_this_tree_compare_with_themselves(self):
        there, bad = record_files.load_all(ROOT / "results")
        self.assertEqual(bad, [])
        whole = records.merge([record for record in there if record.device == there[-1].device])
        comparisons = records.compare(whole, whole)
        self.assertGreater(len(comparisons), 100)
        called = [comparison.label for comparison in comparisons if comparison.verdict.status in ("SLOW", "FAST")]
        self.assertEqual(called, [])


if __name__ == "__main__":
    unittest.main()
