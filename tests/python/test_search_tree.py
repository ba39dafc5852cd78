"""./ladder tree on made-up searches: where candidates stand, which path is marked, how it fits a terminal."""

import json

import pytest

import made_records
from cli import paths
from cli.errors import Failure, UsageError
from search import log, tree

PROBLEM = "n32 c64 bf16"


@pytest.fixture
def search(tmp_path, monkeypatch):
    """log.append() with what every candidate here has."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    folder = tmp_path / "dev" / "toy" / "fprop"
    folder.mkdir(parents=True)
    (folder / "v08_tiles.cu").write_text("LADDER_VERSION(toy::Fprop, {.launch = launch})\n")

    def add(parent, us=None, verdict="PASS", idea="an idea", **fields):
        made = {"source": f"// {us} {idea}\n", "parent": parent, "us": us, "verdict": verdict, "idea": idea}
        if us:
            made |= {"problem": PROBLEM, "dtype": "bf16", "device": "H200", "baseline_us": 30, "ratio": 30 / us}
        return log.append("toy", "fprop", {**made, **fields})

    return add


def drawn(width=100, **more):
    return tree.lines(tree.grow(log.read("toy", "fprop")[0]), width, **more)


def branching(search):
    first = search("v08", 20)
    slow = search(first, 40, idea="more stages")
    search(slow, 25, idea="fewer threads")
    search(first, None, "FAIL", reason="y differs", idea="half2")
    search(first, 10, idea="swizzle")
    search("v08", 60)


def test_branches_stand_beside_and_the_best_path_straight_below(search):
    branching(search)
    lines = drawn()
    assert lines[0] == "n32 c64 bf16, H200"
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "node",
        "v08",
        "├ ○ 6",
        "● 1",
        "├ ○ 2",
        "│ ○ 3",
        "├ ○ 4",
        "● 5",
    ]
    assert lines[-1].split() == "● 5 PASS 10.0 × 2.00 × 3.00 swizzle".split()
    assert lines[6].split() == "│ ○ 3 PASS 25.0 × 1.60 × 1.20 fewer threads".split()
    assert lines[7].endswith("half2: y differs") and "FAIL" in lines[7]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_every_line_fits(search, width):
    branching(search)
    search(5, 9.5, idea="words " * 40)
    lines = drawn(width)
    assert max(map(len, lines)) == width
    assert lines[-1].endswith("…")


def test_colour_is_only_for_a_terminal(search, capsys):
    branching(search)
    plain, coloured = drawn(), drawn(colour=True)
    assert "\033" not in "".join(plain)
    assert [line for line in coloured if line.startswith("\033[1;32m")] == [
        f"\033[1;32m{line}\033[0m" for line in plain if "●" in line
    ]
    assert tree.main(["toy/fprop"]) == 0
    assert "\033" not in capsys.readouterr().out


def test_words_of_candidates_move_no_cursor(search):
    search("v08", 20, idea="a\033[2Jb\nc\u202e")
    assert drawn()[-1].endswith("a [2Jb c")


def test_other_problems_have_their_own_best(search):
    first = search("v08", 20)
    search(first, 5, problem="n1 c8", dtype="fp32")
    search(first, None, "FAIL")
    lines = drawn()
    assert lines[:2] == ["a n32 c64 bf16, H200", "b n1 c8, fp32, H200"]
    assert [line.split()[:3] for line in lines[-2:]] == [["├", "○", "3"], ["●", "2b", "PASS"]]
    assert lines[-1].count("×") == 1, "times of two problems have no ratio"


def test_a_search_of_failures_has_no_best(search):
    search(search("v08", None, "FAIL"), None, "SKIP")
    assert "●" not in "".join(drawn())


def test_an_untrusted_time_is_not_the_best(search):
    search(search("v08", 20), 1, "UNTRUSTED")
    assert [line[0] for line in drawn()[-2:]] == ["●", "○"]


def test_cold_times_count_as_the_baselines_do(search):
    search(search("v08", 20, cold_us=25), 19, cold_us=50, ratio=0.6)
    assert drawn()[-1].split() == "○ 2 PASS 50.0 × 0.500 × 0.600 an idea".split()


def test_a_thousand_rounds(search):
    node = {"parent": "v08", "verdict": "PASS", "idea": "", "problem": "", "dtype": "", "device": "", "reason": ""}
    records = [
        {**node, "node": at, "parent": at - 1 or "v08", "us": 2000 - at, "cold_us": None, "ratio": 0}
        for at in range(1, 1500)
    ]
    assert len(tree.lines(tree.grow(records), 60)) == 1501


def test_best_alone_and_json(search, capsys):
    branching(search)
    tree.main(["toy/fprop", "--best"])
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in shown[2:]] == ["v08", "● 1", "● 5"]
    tree.main(["toy", "--json"])
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert [node["best_path"] for node in nodes] == [True, False, False, False, True, False]
    assert (nodes[4]["to_parent"], nodes[4]["to_baseline"], nodes[3]["us_shown"]) == (2, 3, None)


def test_a_published_search_has_its_own_times_and_ours(search, capsys, tmp_path):
    published = {
        "published": {"ms": 1.5, "share": 0.5},
        "problem": PROBLEM,
        "device": "L40S (published)",
        "source": None,
    }
    first = search(None, **published, version="v01")
    search(first, **{**published, "published": {"ms": 1, "share": 0.75}}, version="v02")
    assert drawn()[-1].split() == "● 2 PASS 1000 × 1.50 × 0.750 v02: an idea".split()
    times = made_records.times(40e-6, warm=[30e-6] * 3)
    made = made_records.record(
        [made_records.result(2, times, PROBLEM, 100e-6, "PASS")], "2026-01-01T00:00:00Z", "c" * 40
    )
    made_records.write(tmp_path / "results" / "h200" / "1.json", made)
    tree.main(["toy/fprop"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split()[:4] == ["node", "verdict", "us", "here"]
    assert shown[-1].split()[3:5] == ["1000", "40.0"]
    assert shown[-2].split()[3:5] == ["1500", "×"], "v01 has no record"


def test_no_search_says_how_to_begin(search):
    with pytest.raises(Failure, match="^toy/fprop has no search yet; begin one: ./ladder try toy/fprop"):
        tree.main(["toy"])
    with pytest.raises(UsageError, match="no layer 'toys'"):
        tree.main(["toys/fprop"])


def test_a_child_of_a_damaged_line_is_drawn(search, capsys):
    search(search("v08", 20), 10)
    file = log.path("toy", "fprop")
    file.write_text("{torn\n" + file.read_text().split("\n", 1)[1])
    tree.main(["toy"])
    said = capsys.readouterr()
    assert "toy-fprop.jsonl:1: not a node" in said.err
    assert said.out.splitlines()[2] == "node 1, which cannot be read"
