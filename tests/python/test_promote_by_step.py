"""./ladder promote --by step on made-up comparisons: what they settle, and that warm times leave it alone."""

import json

import pytest

from cli.errors import Failure, UsageError
from test_promote import PROBLEM, project, result  # noqa: F401 (a fixture)

OTHER = "n32 c8 bf16"


def side(number, switch="", problems=(PROBLEM,)):
    version = f"v{number:02d}_idea_{number}"
    versions = [{"pass": "toy/fprop", "problem": each, "version": version, "operations": 1} for each in problems]
    return {"name": f"toy/fprop=v{number:02d}{switch}", "versions": versions}


def compared(project, status, a, b, day=1, **fields):  # noqa: F811
    record = {
        "schema": "ladder.step-comparison/1",
        "created": f"2026-02-{day:02d}T00:00:00Z",
        "commit": f"{day}ead5678",
        "dirty": False,
        "slug": "h200",
        "sides": [a, b],
        "verdicts": [{"status": status, "us": -20.04}],
        **fields,
    }
    file = project.root / "results" / "h200" / f"2026-02-01_{day}ead567_step-{day}.json"
    file.write_text(json.dumps(record))


@pytest.fixture
def table(project):  # noqa: F811
    """v01 stands for two problems, by 10 %."""
    project.record(result(1, 20), result(2, 22), result(3, 23), result(1, 5, OTHER), result(2, 6, OTHER))
    project.run_tool()
    return project


def test_the_faster_in_the_step_replaces_the_one_that_stands(table):
    compared(table, "FAST", side(1), side(2))
    status, said = table.run_tool("--by", "step")
    assert status == 0 and "v01_idea_1 -> v02_idea_2: 20.0 us less in the step, 1ead567 step" in said
    assert table.cells()[2:5] + table.cells()[-1:] == ("v02_idea_2", "22.0 us warm", "44.0 cold", "1ead567 step")
    assert table.cells(OTHER)[2] == "v01_idea_1", "it was not in the step"


def test_warm_times_leave_a_settled_line_alone(table):
    compared(table, "FAST", side(1), side(2))
    table.run_tool("--by", "step")
    assert table.run_tool("--check")[0] == 0
    table.record(result(1, 2), result(3, 1))
    assert table.promoted() == "v02_idea_2"
    table.record(result(2, 22, status="FAIL"))
    assert table.promoted() == "v03_idea_3", "a version that fails stands nowhere"


@pytest.mark.parametrize(("status", "promoted"), [("SLOW", 1), ("SAME", 2), ("AMBIGUOUS", 2), ("UNTRUSTED", 2)])
def test_only_a_call_settles_and_a_slow_side_gives_way(table, status, promoted):
    compared(table, "FAST", side(1), side(2), day=1)
    compared(table, status, side(1), side(2), day=2)
    table.run_tool("--by", "step")
    assert table.cells()[2] == f"v{promoted:02d}_idea_{promoted}"


def test_what_does_not_stand_is_not_replaced(table):
    before = table.table.read_text()
    compared(table, "FAST", side(2), side(3), day=1)  # neither stands
    compared(table, "FAST", side(1), side(9), day=2)  # no such version in the tree
    compared(table, "FAST", side(1, ",overlap=on"), side(2, ",overlap=off"), day=3)  # not of versions alone
    compared(table, "FAST", side(1, problems=["n1 c1 bf16"]), side(2, problems=["n1 c1 bf16"]), day=4)  # no line
    compared(table, "FAST", side(1), side(2), day=5, slug="h100")
    compared(table, "FAST", side(1), side(2), day=6, verdicts=None)  # emulated
    assert table.run_tool("--by", "step")[0] == 0
    assert table.table.read_text() == before


def budget(project, what, times, commit="1ead5678", **fields):  # noqa: F811
    operations = [
        {"pass": "toy/fprop", "problem": problem, "version": f"v{number:02d}_idea_{number}", "us": us}
        for problem, number, us in times
    ]
    record = {
        "schema": "ladder.budget/1",
        "created": "2026-02-01T00:00:00Z",
        "commit": commit,
        "dirty": False,
        "config": {"batch": 32},
        "operations": operations,
        **fields,
    }
    (project.root / "results" / "h200" / f"2026-02-01_1ead567_step-budget-{what}.json").write_text(json.dumps(record))


def test_budgets_with_several_versions_settle_each_problem_by_its_place(table):
    budget(table, "v01", [(PROBLEM, 1, 20), (PROBLEM, 1, 24), (OTHER, 1, 5)])
    budget(table, "v02", [(PROBLEM, 2, 19), (PROBLEM, 2, 21), (OTHER, 2, 4.9)])  # of OTHER 2 % less
    status, said = table.run_tool("--by", "step")
    assert status == 0 and "v01_idea_1 -> v02_idea_2: 22.0 -> 20.0 us in the step, 1ead567 step" in said
    assert table.cells(OTHER)[2] == "v01_idea_1"


def test_operations_beside_the_others_settle_nothing(table):
    before = table.table.read_text()
    for number, us in ((1, 20), (2, 10)):
        budget(table, f"v{number}", [])
        file = table.root / "results" / "h200" / f"2026-02-01_1ead567_step-budget-v{number}.json"
        operation = {"pass": "toy/fprop", "problem": PROBLEM, "version": f"v0{number}_idea_{number}", "us": us}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"operations": [operation | {"beside": True}]}))
    assert table.run_tool("--by", "step")[0] == 0
    assert table.table.read_text() == before


def test_budgets_of_another_commit_or_model_are_not_compared(table):
    before = table.table.read_text()
    budget(table, "v01", [(PROBLEM, 1, 20)])
    budget(table, "v02", [(PROBLEM, 2, 10)], commit="2ead5678")
    budget(table, "v03", [(PROBLEM, 3, 10)], config={"batch": 8})
    budget(table, "more", [("n1 c1 bf16", 2, 10), ("n1 c1 bf16", 1, 20)])  # no line
    assert table.run_tool("--by", "step")[0] == 0
    assert table.table.read_text() == before


def test_check_says_what_would_change_and_twice_is_once(table):
    compared(table, "FAST", side(1), side(2))
    before = table.table.read_text()
    status, said = table.run_tool("--by", "step", "--check")
    assert status == 1 and "+ toy/fprop" in said
    assert table.table.read_text() == before
    table.run_tool("--by", "step")
    assert table.run_tool("--by", "step", "--check")[0] == 0


def test_broken_records_and_wrong_usage(table):
    with pytest.raises(UsageError, match="--set is of --by warm"):
        table.run_tool("--by", "step", "--set", "unet")
    for broken in ({"schema": "ladder.step-comparison/2"}, {"sides": [{}, {}]}):
        compared(table, "FAST", side(1), side(2), **broken)
        with pytest.raises(Failure, match="step-1.json: "):
            table.run_tool("--by", "step")
