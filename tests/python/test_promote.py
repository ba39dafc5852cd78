"""./ladder promote on made-up records: who is promoted, who stays, what --check and --set see."""

import pytest

import made_records
from cli import promote
from cli.errors import Failure, UsageError
from records import promotion

PROBLEM = "n32 c64 bf16"


def result(version, warm, problem=PROBLEM, cold=None, status="PASS", **fields):
    """Warm and cold medians in microseconds; no `warm`: measured cold only."""
    made = made_records.times(1e-6 * (cold or 2 * warm), warm=[1e-6 * warm] * 3 if warm else None)
    if not warm:
        made |= {"warm_seconds": None, "warm_samples": {**made["warm_samples"], "seconds": []}}
    return made_records.result(version, made, problem, 100e-6, status, **fields)


class Promote:
    def __init__(self, tmp_path, capsys):
        self.capsys = capsys
        self.root = tmp_path
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
        return promote.main(["--root", str(self.root), *arguments]), "".join(self.capsys.readouterr())

    def cells(self, problem=PROBLEM):
        """Columns of a problem's line, or None."""
        return promotion.parse(self.table.read_text(), self.table).get(("toy/fprop", problem))

    def promoted(self, problem=PROBLEM):
        self.run_tool()
        cells = self.cells(problem)
        return cells and cells[2]


@pytest.fixture
def project(tmp_path, capsys):
    return Promote(tmp_path, capsys)


def test_the_fastest_warm_version_wins_whatever_its_cold_time(project):
    project.record(result(1, 30, cold=31), result(2, 20, cold=60), result(3, 25, cold=26))
    assert project.promoted() == "v02_idea_2"


def test_a_line_holds_the_problem_and_the_times_of_one_run(project):
    project.record(result(2, 20.44, cold=123.4), dirty=True)
    project.run_tool()
    assert project.cells() == (
        "toy/fprop",
        PROBLEM,
        "v02_idea_2",
        "20.4 us warm",
        "123 cold",
        "cuDNN",
        "90.0 warm",
        "c0ffee1+",
    )


@pytest.mark.parametrize("search, counts", [("all", True), ("kept", True), ("listed", False), ("heuristic", False)])
def test_only_a_full_search_is_a_baseline_to_promote_by(project, search, counts):
    searched = {**made_records.baseline(100e-6), "search": search}
    project.record(result(2, 20))  # as older records, which say nothing of their search
    project.record(result(1, 10, baseline=searched))
    assert project.promoted() == ("v01_idea_1" if counts else "v02_idea_2")
    project.record(result(1, 10, status="FAIL", baseline=searched), result(2, 25, baseline={"library": None}))
    assert project.promoted() == "v02_idea_2"


def test_a_baseline_without_a_warm_time_shows_its_cold_one_and_none_at_all_a_dash(project):
    cold = result(1, None, cold=100)["times"]
    project.record(
        {**result(1, 5), "baseline": made_records.baseline(cold)},
        {**result(1, 5, "n1 c1 bf16"), "baseline": made_records.baseline(None)},
    )
    project.run_tool()
    assert project.cells()[3:7] == ("5.00 us warm", "10.0 cold", "cuDNN", "100 cold")
    assert project.cells("n1 c1 bf16")[5:7] == ("-", "-")


def test_within_three_percent_the_incumbent_stays(project):
    project.record(result(1, 100))
    assert project.promoted() == "v01_idea_1"
    project.record(result(1, 102.9), result(2, 100))
    assert project.promoted() == "v01_idea_1"
    assert project.cells()[3] == "103 us warm"  # of the newest record, though the version is the same
    project.record(result(1, 103.1))
    assert project.promoted() == "v02_idea_2"


def test_without_an_incumbent_three_percent_are_nothing(project):
    project.record(result(1, 101), result(2, 100))
    assert project.promoted() == "v02_idea_2"


def test_what_did_not_pass_is_not_promoted(project):
    project.record(result(1, 30), result(2, 20, status="FAIL"), result(3, 10, status="UNTRUSTED"))
    assert project.promoted() == "v01_idea_1"


def test_an_incumbent_that_fails_now_is_replaced(project):
    project.record(result(1, 30), result(2, 20))
    assert project.promoted() == "v02_idea_2"
    project.record(made_records.result(2, None, PROBLEM, status="FAIL"))
    _, printed = project.run_tool()
    assert project.cells()[2] == "v01_idea_1"
    assert "v02_idea_2 -> v01_idea_1: 30.0 us warm; v02_idea_2 is gone" in printed


def test_a_version_that_left_the_tree_is_not_promoted(project):
    project.record(result(1, 30), result(2, 20), result(9, 10))
    assert project.promoted() == "v02_idea_2"
    (project.versions / "v02_idea_2.cu").unlink()
    assert project.promoted() == "v01_idea_1"


def test_a_version_that_lost_the_dtype_is_not_promoted(project):
    project.record(result(1, 30), result(2, 20))
    (project.versions / "v02_idea_2.cu").write_text("{.launch = launch, .dtypes = {ladder::Dtype::f32}}\n")
    assert project.promoted() == "v01_idea_1"


def test_the_newest_record_counts_and_not_the_best(project):
    project.record(result(1, 10), result(2, 20))
    project.record(result(1, 40))
    assert project.promoted() == "v02_idea_2"
    project.record(result(1, 15))
    assert project.promoted() == "v01_idea_1"
    assert project.cells()[7] == "c0ffee3"


def test_a_cold_time_counts_only_where_nobody_has_a_warm_one(project):
    project.record(
        result(1, None, cold=5),
        result(2, 20),
        result(1, None, "n1 c1 bf16", cold=9),
        result(2, None, "n1 c1 bf16", cold=8),
    )
    assert project.promoted() == "v02_idea_2"
    assert project.cells("n1 c1 bf16")[2:5] == ("v02_idea_2", "-", "8.00 cold")


def test_devices_have_tables_of_their_own(project):
    project.record(result(1, 30), result(2, 20))
    project.record(result(1, 10), result(2, 20), device="b200")
    project.run_tool("--device", "h200")
    assert project.cells()[2] == "v02_idea_2"
    other = project.table.with_name("b200.txt")
    assert not other.exists()
    project.run_tool()
    assert "v01_idea_1" in other.read_text()
    with pytest.raises(UsageError, match="a100.*: b200, h200"):
        project.run_tool("--device", "a100")


def test_an_emulated_time_is_none(project):
    project.record(result(1, 10), kind="emulator")
    with pytest.raises(Failure, match="no record of a GPU"):
        project.run_tool()


def test_lines_are_in_the_order_of_numbers_and_dtypes(project):
    any_order = ("n32 c128 bf16", "n32 c8 bf16", "n4 c8 bf16", "n32 c16 fp32")
    project.record(*(result(1, 10, problem) for problem in any_order))
    project.run_tool()
    problems = [problem for _, problem in promotion.parse(project.table.read_text(), project.table)]
    assert problems == ["n32 c16 fp32", "n4 c8 bf16", "n32 c8 bf16", "n32 c128 bf16"]


def test_check_is_silent_about_a_fresh_table_and_changes_nothing(project):
    project.record(result(1, 30))
    status, printed = project.run_tool("--check")
    assert status == 1
    assert not project.table.exists()
    project.run_tool()
    assert project.run_tool("--check") == (0, "")


def test_check_shows_the_lines_that_differ(project):
    project.record(result(1, 30), result(1, 30, "n1 c1 bf16"))
    project.run_tool()
    before = project.table.read_text()
    project.record(result(2, 20))
    status, printed = project.run_tool("--check")
    assert status == 1
    assert project.table.read_text() == before
    assert "runtime/promoted/h200.txt is not what" in printed
    lines = [line for line in printed.splitlines() if line[:2] in ("- ", "+ ")]
    changed = [line[:2] + line.split("  ")[2].strip() for line in lines]
    assert changed == ["- v01_idea_1", "+ v02_idea_2"]


def test_check_finds_a_version_that_vanished_and_one_that_somebody_typed(project):
    project.record(result(1, 30), result(2, 20))
    project.run_tool()
    project.table.write_text(project.table.read_text().replace("v02_idea_2", "v01_idea_1"))
    assert project.run_tool("--check")[0] == 1
    project.run_tool()
    assert project.run_tool("--check")[0] == 0
    (project.versions / "v02_idea_2.cu").unlink()
    assert project.run_tool("--check")[0] == 1


def test_a_set_leaves_other_lines_alone(project):
    project.record(result(1, 30), result(1, 30, "n32 c8 bf16"))
    project.run_tool()
    project.record(result(2, 20), result(2, 20, "n32 c8 bf16"))
    project.run_tool("--set", "perf")
    assert (project.cells()[2], project.cells("n32 c8 bf16")[2]) == ("v01_idea_1", "v02_idea_2")
    assert project.run_tool("--check", "--set", "perf")[0] == 0
    assert project.run_tool("--check", "--set", "unet", "perf")[0] == 1
    with pytest.raises(UsageError, match="there are unet, perf"):
        project.run_tool("--set", "edge")


def test_the_summary_says_what_changed_and_by_how_much(project):
    project.record(result(1, 30), result(1, 30, "n32 c8 bf16"), result(3, 7, "n2 c2 bf16"))
    assert "3 cases; 0 have another version, 3 are new, 0 dropped, 0 have other" in project.run_tool()[1]
    project.record(result(2, 20), result(1, 31, "n32 c8 bf16"), result(1, 9, "n1 c1 bf16"))
    (project.versions / "v03_idea_3.cu").unlink()
    _, printed = project.run_tool()
    assert printed.splitlines() == [
        "runtime/promoted/h200.txt: 3 cases; 1 have another version, 1 are new, 1 dropped, 1 have other figures only",
        "  toy/fprop  n1 c1 bf16  v01_idea_1: 9.00 us warm, new",
        "  toy/fprop  n2 c2 bf16  v03_idea_3: no version of the tree passes with a time any more",
        "  toy/fprop  n32 c64 bf16  v01_idea_1 -> v02_idea_2: 30.0 -> 20.0 us warm, 33.3 % less",
    ]


def test_a_malformed_table_is_named_with_its_line_and_kept(project):
    project.record(result(1, 30))
    project.run_tool()
    good = project.table.read_text()
    again = good.splitlines()[-1] + "\n"
    for bad, says in (("toy/fprop  n1 c1 bf16  v01_idea_1\n", "3 columns"), (again, "there twice")):
        project.table.write_text(good + bad)
        with pytest.raises(Failure, match=rf"h200.txt:{len(good.splitlines()) + 1}: .*{says}"):
            project.run_tool()
        assert project.table.read_text() == good + bad


def test_a_broken_record_is_named_and_left_out(project, capsys):
    project.record(result(2, 20))
    project.record({**result(1, 10), "times": {"warm_seconds": 1}})
    assert project.promoted() == "v02_idea_2"
    capsys.readouterr()
    project.run_tool()


def test_tables_are_those_of_the_newest_records(capsys):
    assert promote.main(["--check"]) == 0, capsys.readouterr().err
