"""./ladder promote on made-up records: who is promoted, who stays, what --check and --set see."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import made_records  # noqa: E402
from cli import promote  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402
from records import promotion  # noqa: E402

PROBLEM = "n32 c64 bf16"


def result(version, warm, problem=PROBLEM, cold=None, status="PASS", **fields):
    """Warm and cold medians in microseconds; no `warm`: measured cold only."""
    made = made_records.times(1e-6 * (cold or 2 * warm), warm=[1e-6 * warm] * 3 if warm else None)
    if not warm:
        made |= {"warm_seconds": None, "warm_samples": {**made["warm_samples"], "seconds": []}}
    return made_records.result(version, made, problem, 100e-6, status, **fields)


class Promote(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.versions = self.root / "dev" / "toy" / "fprop"
        self.versions.mkdir(parents=True)
        for number in (1, 2, 3):
            file = self.versions / f"v{number:02d}_idea_{number}.cu"
            file.write_text("LADDER_VERSION(toy::Fprop, {.launch = launch})\n")
        (self.root / "dev" / "toy" / "shapes.txt").write_text("[unet]\ntop: n32 c64\n[perf]\nlow: n32 c8\n")
        self.table = self.root / "runtime" / "promoted" / "h200.txt"
        self.day = 0

    def record(self, *results, device="h200", **fields):
        """A record newer than those before."""
        self.day += 1
        made = made_records.record(list(results), f"2026-01-{self.day:02d}T00:00:00Z", f"c0ffee{self.day}234", **fields)
        made_records.write(self.root / "results" / device / f"{99 - self.day}.json", made)

    def run_tool(self, *arguments):
        """(exit status, what it printed)"""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = promote.main(["--root", str(self.root), *arguments])
        return status, printed.getvalue()

    def cells(self, problem=PROBLEM):
        """Columns of a problem's line, or None."""
        return promotion.parse(self.table.read_text(), self.table).get(("toy/fprop", problem))

    def promoted(self, problem=PROBLEM):
        self.run_tool()
        cells = self.cells(problem)
        return cells and cells[2]

    def test_the_fastest_warm_version_wins_whatever_its_cold_time(self):
        self.record(result(1, 30, cold=31), result(2, 20, cold=60), result(3, 25, cold=26))
        self.assertEqual(self.promoted(), "v02_idea_2")

    def test_a_line_holds_the_problem_and_the_times_of_one_run(self):
        self.record(result(2, 20.44, cold=123.4), dirty=True)
        self.run_tool()
        self.assertEqual(
            self.cells(),
            ("toy/fprop", PROBLEM, "v02_idea_2", "20.4 us warm", "123 cold", "cuDNN", "90.0 warm", "c0ffee1+"),
        )

    def test_a_baseline_without_a_warm_time_shows_its_cold_one_and_none_at_all_a_dash(self):
        cold = result(1, None, cold=100)["times"]
        self.record(
            {**result(1, 5), "baseline": made_records.baseline(cold)},
            {**result(1, 5, "n1 c1 bf16"), "baseline": made_records.baseline(None)},
        )
        self.run_tool()
        self.assertEqual(self.cells()[3:7], ("5.00 us warm", "10.0 cold", "cuDNN", "100 cold"))
        self.assertEqual(self.cells("n1 c1 bf16")[5:7], ("-", "-"))

    def test_within_three_percent_the_incumbent_stays(self):
        self.record(result(1, 100))
        self.assertEqual(self.promoted(), "v01_idea_1")
        self.record(result(1, 102.9), result(2, 100))
        self.assertEqual(self.promoted(), "v01_idea_1")
        self.assertEqual(self.cells()[3], "103 us warm")  # of the newest record, though the version is the same
        self.record(result(1, 103.1))
        self.assertEqual(self.promoted(), "v02_idea_2")

    def test_without_an_incumbent_three_percent_are_nothing(self):
        self.record(result(1, 101), result(2, 100))
        self.assertEqual(self.promoted(), "v02_idea_2")

    def test_what_did_not_pass_is_not_promoted(self):
        self.record(result(1, 30), result(2, 20, status="FAIL"), result(3, 10, status="UNTRUSTED"))
        self.assertEqual(self.promoted(), "v01_idea_1")

    def test_an_incumbent_that_fails_now_is_replaced(self):
        self.record(result(1, 30), result(2, 20))
        self.assertEqual(self.promoted(), "v02_idea_2")
        self.record(made_records.result(2, None, PROBLEM, status="FAIL"))
        _, printed = self.run_tool()
        self.assertEqual(self.cells()[2], "v01_idea_1")
        self.assertIn("v02_idea_2 -> v01_idea_1: 30.0 us warm; v02_idea_2 is gone", printed)

    def test_a_version_that_left_the_tree_is_not_promoted(self):
        self.record(result(1, 30), result(2, 20), result(9, 10))
        self.assertEqual(self.promoted(), "v02_idea_2")
        (self.versions / "v02_idea_2.cu").unlink()
        self.assertEqual(self.promoted(), "v01_idea_1")

    def test_a_version_that_lost_the_dtype_is_not_promoted(self):
        self.record(result(1, 30), result(2, 20))
        (self.versions / "v02_idea_2.cu").write_text("{.launch = launch, .dtypes = {ladder::Dtype::f32}}\n")
        self.assertEqual(self.promoted(), "v01_idea_1")

    def test_the_newest_record_counts_and_not_the_best(self):
        self.record(result(1, 10), result(2, 20))
        self.record(result(1, 40))
        self.assertEqual(self.promoted(), "v02_idea_2")
        self.record(result(1, 15))
        self.assertEqual(self.promoted(), "v01_idea_1")
        self.assertEqual(self.cells()[7], "c0ffee3")

    def test_a_cold_time_counts_only_where_nobody_has_a_warm_one(self):
        self.record(
            result(1, None, cold=5),
            result(2, 20),
            result(1, None, "n1 c1 bf16", cold=9),
            result(2, None, "n1 c1 bf16", cold=8),
        )
        self.assertEqual(self.promoted(), "v02_idea_2")
        self.assertEqual(self.cells("n1 c1 bf16")[2:5], ("v02_idea_2", "-", "8.00 cold"))

    def test_devices_have_tables_of_their_own(self):
        self.record(result(1, 30), result(2, 20))
        self.record(result(1, 10), result(2, 20), device="b200")
        self.run_tool("--device", "h200")
        self.assertEqual(self.cells()[2], "v02_idea_2")
        other = self.table.with_name("b200.txt")
        self.assertFalse(other.exists())
        self.run_tool()
        self.assertIn("v01_idea_1", other.read_text())
        with self.assertRaisesRegex(UsageError, "a100.*: b200, h200"):
            self.run_tool("--device", "a100")

    def test_an_emulated_time_is_none(self):
        self.record(result(1, 10), kind="emulator")
        with self.assertRaisesRegex(Failure, "no record of a GPU"):
            self.run_tool()

    def test_lines_are_in_the_order_of_numbers_and_dtypes(self):
        any_order = ("n32 c128 bf16", "n32 c8 bf16", "n4 c8 bf16", "n32 c16 fp32")
        self.record(*(result(1, 10, problem) for problem in any_order))
        self.run_tool()
        problems = [problem for _, problem in promotion.parse(self.table.read_text(), self.table)]
        self.assertEqual(problems, ["n32 c16 fp32", "n4 c8 bf16", "n32 c8 bf16", "n32 c128 bf16"])

    def test_check_is_silent_about_a_fresh_table_and_changes_nothing(self):
        self.record(result(1, 30))
        status, printed = self.run_tool("--check")
        self.assertEqual(status, 1)
        self.assertFalse(self.table.exists())
        self.run_tool()
        self.assertEqual(self.run_tool("--check"), (0, ""))

    def test_check_shows_the_lines_that_differ(self):
        self.record(result(1, 30), result(1, 30, "n1 c1 bf16"))
        self.run_tool()
        before = self.table.read_text()
        self.record(result(2, 20))
        status, printed = self.run_tool("--check")
        self.assertEqual(status, 1)
        self.assertEqual(self.table.read_text(), before)
        self.assertIn("runtime/promoted/h200.txt is not what", printed)
        lines = [line for line in printed.splitlines() if line[:2] in ("- ", "+ ")]
        changed = [line[:2] + line.split("  ")[2].strip() for line in lines]
        self.assertEqual(changed, ["- v01_idea_1", "+ v02_idea_2"])

    def test_check_finds_a_version_that_vanished_and_one_that_somebody_typed(self):
        self.record(result(1, 30), result(2, 20))
        self.run_tool()
        self.table.write_text(self.table.read_text().replace("v02_idea_2", "v01_idea_1"))
        self.assertEqual(self.run_tool("--check")[0], 1)
        self.run_tool()
        self.assertEqual(self.run_tool("--check")[0], 0)
        (self.versions / "v02_idea_2.cu").unlink()
        self.assertEqual(self.run_tool("--check")[0], 1)

    def test_a_set_leaves_other_lines_alone(self):
        self.record(result(1, 30), result(1, 30, "n32 c8 bf16"))
        self.run_tool()
        self.record(result(2, 20), result(2, 20, "n32 c8 bf16"))
        self.run_tool("--set", "perf")
        self.assertEqual((self.cells()[2], self.cells("n32 c8 bf16")[2]), ("v01_idea_1", "v02_idea_2"))
        self.assertEqual(self.run_tool("--check", "--set", "perf")[0], 0)
        self.assertEqual(self.run_tool("--check", "--set", "unet", "perf")[0], 1)
        with self.assertRaisesRegex(UsageError, "there are unet, perf"):
            self.run_tool("--set", "edge")

    def test_the_summary_says_what_changed_and_by_how_much(self):
        self.record(result(1, 30), result(1, 30, "n32 c8 bf16"), result(3, 7, "n2 c2 bf16"))
        self.assertIn("3 cases; 0 have another version, 3 are new, 0 dropped, 0 have other", self.run_tool()[1])
        self.record(result(2, 20), result(1, 31, "n32 c8 bf16"), result(1, 9, "n1 c1 bf16"))
        (self.versions / "v03_idea_3.cu").unlink()
        _, printed = self.run_tool()
        self.assertEqual(
            printed.splitlines(),
            [
                "runtime/promoted/h200.txt: 3 cases; 1 have another version, 1 are new, 1 dropped, 1 have other figures only",
                "  toy/fprop  n1 c1 bf16  v01_idea_1: 9.00 us warm, new",
                "  toy/fprop  n2 c2 bf16  v03_idea_3: no version of the tree passes with a time any more",
                "  toy/fprop  n32 c64 bf16  v01_idea_1 -> v02_idea_2: 30.0 -> 20.0 us warm, 33.3 % less",
            ],
        )

    def test_a_malformed_table_is_named_with_its_line_and_kept(self):
        self.record(result(1, 30))
        self.run_tool()
        good = self.table.read_text()
        again = good.splitlines()[-1] + "\n"
        for bad, says in (("toy/fprop  n1 c1 bf16  v01_idea_1\n", "3 columns"), (again, "there twice")):
            self.table.write_text(good + bad)
            with self.assertRaisesRegex(Failure, rf"h200.txt:{len(good.splitlines()) + 1}: .*{says}"):
                self.run_tool()
            self.assertEqual(self.table.read_text(), good + bad)

    def test_a_broken_record_is_named(self):
        self.record({**result(1, 30), "times": {"warm_seconds": 1}})
        with self.assertRaisesRegex(Failure, "98.json: broken record"):
            self.run_tool()


class TheTree(unittest.TestCase):
    def test_tables_are_those_of_the_newest_records(self):
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            status = promote.main(["--check"])
        self.assertEqual(status, 0, printed.getvalue())


if __name__ == "__main__":
    unittest.main()
