"""./ladder compare between records: which ones are meant, the verdicts, the outputs and the exit codes."""

import json
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

import made_records
from cli import paths
from cli.errors import Failure, UsageError
from compare import main as compare_main
from compare import records
from records import record_files

ROOT = Path(__file__).resolve().parents[2]

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


class Records:
    def __init__(self, tmp_path, monkeypatch, capsys):
        self.capsys = capsys
        self.root = tmp_path
        monkeypatch.setattr(paths, "ROOT", self.root)

    def record(self, name, results, day=1, device="h200", **environment):
        made = made_records.record(results, created=f"2026-01-{day:02d}T00:00:00Z", **environment)
        return made_records.write(self.root / "results" / device / name, made)

    def two(self, old, new, **environment):
        """Records of two commits."""
        self.record("old.json", old, day=1, commit=OLD)
        self.record("new.json", new, day=2, **{"commit": NEW, **environment})

    def run_tool(self, *arguments):
        """(exit code, stdout, stderr)"""
        return compare_main.main(list(arguments)), *self.capsys.readouterr()

    def verdicts(self, *arguments):
        report = json.loads(self.run_tool("--json", "-", *arguments)[1])
        return {(each["version"], each["problem"]): (each["status"], each["reason"]) for each in report["comparisons"]}

    def only(self, *arguments):
        ((verdict),) = self.verdicts(*arguments).values()
        return verdict

    def refused(self, error, *arguments):
        with pytest.raises(error) as caught:
            self.run_tool(*arguments)
        self.capsys.readouterr()  # what it said before is of no later run
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    return Records(tmp_path, monkeypatch, capsys)


def test_slow_fast_and_same(project):
    project.two(
        [timed(1, 20e-6), timed(2, 20e-6), timed(3, 20e-6)],
        [timed(1, 22e-6, seed=2), timed(2, 18e-6, seed=2), timed(3, 20e-6, seed=2)],
    )
    statuses = [status for status, _ in project.verdicts().values()]
    assert statuses == ["SLOW", "FAST", "SAME"]


def test_by_default_the_two_newest_results_of_each_kernel(project):
    project.two([timed(1, 20e-6), timed(2, 20e-6)], [timed(1, 20e-6, seed=2), timed(2, 20e-6, seed=2), timed(3, 20e-6)])
    project.record(
        "one.json", [timed(1, 22e-6, seed=3), made_records.result(2, None, against=None)], day=3, commit="c" * 40
    )
    statuses = {version: status for (version, _), (status, _) in project.verdicts().items()}
    assert statuses == {1: "SLOW", 2: "SAME"}  # a check without times is no measurement
    out = project.run_tool()[1]
    assert "note: 1 kernels are left out, measured once" in out
    assert "--live bbbbbbbbbb toy/fprop --version 1" in out


def test_a_layer_that_the_newest_records_lack(project):
    project.two([timed(1, 20e-6, layer="other")], [timed(1, 22e-6, seed=2, layer="other")])
    project.record("more.json", [timed(1, 20e-6)], day=3, commit="c" * 40)
    assert project.only("other")[0] == "SLOW"
    assert "1 were measured on h200, and none twice" in project.refused(UsageError, "toy")


def test_another_card_is_no_change_of_the_kernel(project):
    other = made_records.record([])["environment"]["device"] | {"uuid": "GPU-2"}
    new = [timed(1, 22e-6, candle=33e-6, seed=2), timed(2, 22e-6, seed=2), timed(3, 20e-6, candle=33e-6, seed=2)]
    project.two([timed(version, 20e-6) for version in (1, 2, 3)], new)
    assert [status for status, _ in project.verdicts().values()] == ["SLOW", "AMBIGUOUS", "AMBIGUOUS"]
    file = project.root / "results" / "h200" / "new.json"
    made = made_records.record(new, created="2026-01-02T00:00:00Z", commit=NEW)
    made["environment"]["device"] = other
    made_records.write(file, made)
    statuses = {version: status for (version, _), (status, _) in project.verdicts().items()}
    assert statuses == {1: "SAME", 2: "SLOW", 3: "AMBIGUOUS"}


def test_no_verdict_between_two_models(project):
    other = made_records.record([])["environment"]["device"] | {"name": "NVIDIA H100 80GB HBM3"}
    project.two([timed(1, 20e-6)], [])
    new = made_records.record([timed(1, 22e-6, seed=2)], created="2026-01-02T00:00:00Z", commit=NEW)
    new["environment"]["device"] = other
    made_records.write(project.root / "results" / "h200" / "new.json", new)
    assert project.only() == ("AMBIGUOUS", "another device: NVIDIA H200 in A, NVIDIA H100 80GB HBM3 in B")
    assert project.run_tool("--fail-on", "ambiguous")[0] == 3


def on_a_clock(change, tick=32e-9, kernels=100):
    """Results of kernels of 1.6 to 3 us on a clock that reads in ticks, B's longer by `change`."""
    rng = random.Random(7)

    def read(seconds):
        return made_records.times([round(rng.gauss(seconds, 6e-9) / tick) * tick for _ in range(30)])

    sides = ([], [])
    for at in range(kernels):
        seconds, candle = rng.uniform(1.6e-6, 3e-6), rng.uniform(25e-6, 35e-6)
        for side, factor in zip(sides, (1, 1 + change)):
            baseline = made_records.baseline(read(candle))
            baseline.update(heuristic_plan="eng1", heuristic_times=None)
            side.append(made_records.result(2, read(factor * seconds), f"n{at + 1} c64 bf16", baseline=baseline))
    return sides


def test_a_tick_of_the_clock_is_no_change_of_a_short_kernel(project):
    for change, least, most in ((0.0, 0, 0), (0.006, 0, 0), (0.03, 70, 100)):  # of 100 kernels
        project.two(*on_a_clock(change))
        statuses = [status for status, _ in project.verdicts().values()]
        assert least <= statuses.count("SLOW") <= most and "FAST" not in statuses, change
    (record, _), _ = record_files.load_all(project.root / "results")
    assert abs(record.tick - 32e-9) < 1e-12
    project.two([timed(1, 20e-6)], [timed(1, 20e-6)])  # on no clock that shows
    assert record_files.load_all(project.root / "results")[0][0].tick < 1e-9


def test_what_is_missing_for_one_reason_is_one_line(project):
    project.two([timed(1, 20e-6)], [timed(1, 20e-6, seed=2), *(timed(2, 2e-5, f"n{n} c64 bf16") for n in (1, 2, 3))])
    missing = [line for line in project.run_tool("previous")[1].splitlines() if line.startswith("MISSING")]
    assert [line.split(None, 1)[1] for line in missing] == ["3 kernels of toy/fprop  not in A"]


def test_a_slower_machine_is_not_a_slow_kernel(project):
    project.two([timed(1, 20e-6)], [timed(1, 22e-6, candle=33e-6, seed=2)])
    status, reason = project.only()
    assert status == "AMBIGUOUS"
    assert "against the baseline's plan" in reason


def test_a_lower_clock_is_not_a_slow_kernel(project):
    project.two([timed(1, 20e-6)], [timed(1, 21.5e-6, seed=2, clock=1.98e9 * 20 / 21.5)])
    status, reason = project.only()
    assert status == "AMBIGUOUS"
    assert "the SM clock fell 7.0 %" in reason


@pytest.mark.parametrize("candle", [{"candle": None}, {"plan": "eng9"}, {"library": "cuDNN 10"}])
def test_without_a_candle_a_change_is_ambiguous_and_no_change_is_the_same(project, candle):
    project.two(
        [timed(1, 20e-6), timed(2, 20e-6)], [timed(1, 22e-6, seed=2, **candle), timed(2, 20e-6, seed=2, **candle)]
    )
    (changed, reason), (unchanged, _) = project.verdicts().values()
    assert (changed, unchanged) == ("AMBIGUOUS", "SAME")
    assert "not interleaved" in reason
    assert "--live decides" in reason


def test_the_heuristics_plan_stands_in_where_the_best_plan_differs(project):
    candle = made_records.times([40e-6 * random.Random(seed).gauss(1, 0.001) for seed in range(10)])
    project.two(
        [timed(1, 20e-6, plan="eng7", heuristic=candle)], [timed(1, 22e-6, seed=2, plan="eng9", heuristic=candle)]
    )
    assert project.only()[0] == "SLOW"


def test_too_few_samples(project):
    few = made_records.result(1, [20e-6] * 8, against=[30e-6] * 8)
    project.two([timed(1, 20e-6)], [few])
    assert "too few repetitions: 8" in project.only()[1]


def test_missing_and_untrusted_have_reasons(project):
    project.two(
        [timed(1, 20e-6), timed(2, 20e-6), timed(3, 20e-6), timed(4, 20e-6)],
        [
            made_records.result(2, None, status="SKIP", reason="c is odd"),
            made_records.result(3, None, status="FAIL", reason="5 elements are wrong"),
            timed(4, 20e-6, status="UNTRUSTED", reason="faster than light"),
            timed(5, 20e-6),
        ],
    )
    verdicts = {version: verdict for (version, _), verdict in project.verdicts("previous", "last").items()}
    assert verdicts == {
        1: ("MISSING", "not in B"),
        2: ("MISSING", "SKIP in B: c is odd"),
        3: ("MISSING", "FAIL in B: 5 elements are wrong"),
        4: ("UNTRUSTED", "UNTRUSTED in B: faster than light"),
        5: ("MISSING", "not in A"),
    }


def test_what_neither_side_timed_is_not_compared(project):
    skip = made_records.result(2, None, status="SKIP", reason="c is odd")
    project.two([timed(1, 20e-6), skip], [timed(1, 20e-6, seed=2), skip])
    assert list(project.verdicts()) == [(1, "n32 c64 bf16")]


def test_filters(project):
    both = [timed(version, 20e-6, problem) for version in (1, 2) for problem in ("n32 c64 bf16", "n32 c8 fp32")]
    project.two(both, both)
    assert list(project.verdicts("--version", "2", "--dtype", "fp32")) == [(2, "n32 c8 fp32")]
    assert len(project.verdicts("--problem", "n32 c64")) == 2
    assert len(project.verdicts("--problem", "n32 c64 bf16", "--version", "1-2")) == 2
    assert "nothing to compare" in project.refused(UsageError, "--problem", "n32 c6")  # no beginning of a line
    for target in ("toy", "toy/fprop"):
        assert len(project.verdicts(target)) == 4
        assert len(project.verdicts("previous", target, "last", "--version", "v02")) == 2
    assert "'toy/dgrad' is no file, no commit" in project.refused(UsageError, "toy/dgrad")
    assert "no version '3': toy/fprop has v01" in project.refused(UsageError, "--version", "3")


def test_commits_files_and_words_name_records(project):
    project.two([timed(1, 20e-6)], [timed(1, 22e-6, seed=2)])
    new = str(project.root / "results" / "h200" / "new.json")
    for a, b in (("aaaaaaa", "bbbbbbb"), ("previous", new), (OLD, "last")):
        assert list(project.verdicts(a, b).values())[0][0] == "SLOW", (a, b)
    assert list(project.verdicts("last", "previous").values())[0][0] == "FAST"
    assert list(project.verdicts("aaaaaaa").values())[0][0] == "SLOW"  # against last


def test_records_of_one_commit_are_merged_the_newest_wins(project):
    project.record("old.json", [timed(1, 20e-6), timed(1, 20e-6, "n32 c64 fp32")], day=1, commit=OLD)
    project.record("b16.json", [timed(1, 25e-6)], day=2, commit=NEW)
    project.record("b32.json", [timed(1, 25e-6, "n32 c64 fp32")], day=3, commit=NEW)
    project.record("b16_again.json", [timed(1, 20e-6, seed=3)], day=4, commit=NEW)
    statuses = {problem: status for (_, problem), (status, _) in project.verdicts("aaaa", "bbbb").items()}
    assert statuses == {"n32 c64 bf16": "SAME", "n32 c64 fp32": "SLOW"}


def test_last_joins_files_of_one_commit_that_repeat_nothing(project):
    project.two([timed(1, 20e-6), timed(1, 20e-6, "n32 c64 fp32")], [timed(1, 20e-6, seed=2)])
    project.record("more.json", [timed(1, 20e-6, "n32 c64 fp32", seed=2)], day=3, commit=NEW)
    assert [status for status, _ in project.verdicts().values()] == ["SAME", "SAME"]


def test_a_commit_measured_twice_compares_with_itself(project):
    project.two([timed(1, 20e-6)], [timed(1, 20e-6, seed=2)], commit=OLD)
    assert [status for status, _ in project.verdicts().values()] == ["SAME"]


def test_previous_is_one_that_has_some_of_the_kernels_of_last(project):
    project.two([timed(1, 20e-6)], [timed(1, 20e-6, "n32 c64 fp32")])
    project.record("newest.json", [timed(1, 22e-6, seed=2)], day=3, commit="c" * 40)
    assert [status for status, _ in project.verdicts().values()] == ["SLOW"]


def test_a_dirty_record_is_used_only_where_there_is_no_clean_one(project):
    project.two([timed(1, 20e-6)], [timed(1, 20e-6, seed=2)])
    project.record("dirty.json", [timed(1, 40e-6)], day=3, commit=NEW, dirty=True)
    assert list(project.verdicts("aaaa", "bbbb").values())[0][0] == "SAME"
    assert "bbbbbbb+" in project.run_tool("aaaa", "last")[1]


def test_different_devices_never_compare(project):
    h200 = project.record("old.json", [timed(1, 20e-6)], commit=OLD)
    a100 = project.record("new.json", [timed(1, 20e-6)], day=2, commit=NEW, device="a100")
    for pair in ((str(h200), str(a100)), ("aaaa", "bbbb")):
        message = project.refused(UsageError, *pair)
        assert "h200" in message
        assert "a100" in message
    for words in ((), ("toy",)):
        assert "1 were measured on a100, and none twice" in project.refused(UsageError, *words)
    assert "1 were measured on h200, and none twice" in project.refused(UsageError, "--device", "h200")
    assert "no 'previous'" in project.refused(UsageError, "previous", "--device", "h200")


def test_of_several_devices_that_of_the_newest_record_is_taken(project):
    project.two([timed(1, 20e-6)], [timed(1, 22e-6, seed=2)])
    for day in (3, 4):
        project.record(f"{day}.json", [timed(2, 20e-6, layer="other")], day=day, commit=str(day) * 40, device="a100")
    says = "ladder: the newest record is of {}; --device chooses another ({})\n"
    for words, taken in (
        ((), says.format("a100", "h200")),
        (("previous",), says.format("a100", "h200")),
        (("other",), ""),  # which one device alone has measured
        (("toy",), ""),
        (("--device", "h200"), ""),
        (("aaaa", "bbbb"), ""),
    ):
        status, out, errors = project.run_tool(*words)
        assert (status, errors) == (0, taken), words
        assert ("1 SLOW" in out) == (words in (("toy",), ("--device", "h200"), ("aaaa", "bbbb"))), words


def test_a_layer_without_a_record(project):
    folder = project.root / "dev" / "softmax" / "forward"
    folder.mkdir(parents=True)
    (folder / "v01_naive.cu").write_text("")
    project.two([timed(1, 20e-6)], [timed(1, 20e-6, seed=2)])
    for word in ("softmax", "softmax/forward"):
        assert project.refused(UsageError, word) == f"no record of {word}: ./ladder record {word} makes one"
    assert "'softmac' is no file, no commit" in project.refused(UsageError, "softmac")


def test_what_is_not_there(project):
    assert "no record in results/" in project.refused(UsageError)
    project.record("old.json", [timed(1, 20e-6)], commit=OLD)
    assert "none twice" in project.refused(UsageError)
    assert "no 'previous'" in project.refused(UsageError, "previous")
    assert "there are: aaaaaaa" in project.refused(UsageError, "cccccc")
    assert "no file" in project.refused(UsageError, "nowhere.json")
    assert "no commit" in project.refused(UsageError, "the best one")
    assert "not 3 words" in project.refused(UsageError, "a", "b", "c")


def test_corrupt_records_are_named_and_passed_over(project):
    project.two([timed(1, 20e-6)], [timed(1, 22e-6, seed=2)])
    bad = project.root / "results" / "h200" / "bad.json"
    good = (project.root / "results" / "h200" / "new.json").read_text()
    for text in ("", "{", good[: len(good) // 2], good.replace('"problem"', '"question"')):
        bad.write_text(text)
        status, out, errors = project.run_tool()
        assert status == 0
        assert "1 SLOW" in out
        assert len(errors.splitlines()) == 1
        assert "bad.json" in errors
        assert "bad.json" in project.refused(Failure, str(bad), "last")


def test_json_of_another_kind_is_no_side(project):
    other = project.root / "results" / "h200" / "conformance.json"
    project.two([timed(1, 20e-6)], [timed(1, 20e-6)])
    other.write_text('{"schema": "ladder.conformance/1"}')
    assert "no record" in project.refused(UsageError, str(other))


@pytest.fixture
def written(project):
    project.two(
        [timed(1, 20e-6), timed(2, 20e-6), timed(3, 20e-6), timed(4, 20e-6, "n32 c64 bf16")],
        [timed(1, 21e-6, seed=2), timed(2, 24e-6, seed=2), timed(3, 20e-6, seed=2)],
    )
    return project


def test_the_worst_comes_first_with_its_reproducer_and_the_same_is_folded(written):
    _, out, _ = written.run_tool("previous", "last")
    lines = [line for line in out.splitlines() if line.startswith(("SLOW", "MISSING", "SAME"))]
    assert [line.split()[0] for line in lines] == ["SLOW", "SLOW", "MISSING"]
    assert lines[0].endswith("./ladder compare --live aaaaaaaaaa toy/fprop --version 2 --problem 'n32 c64 bf16'"), (
        lines[0]
    )
    assert "4 kernels: 2 SLOW, 1 MISSING, 1 SAME" in out
    assert "geometric mean of B / A over 3 kernels: 1.0" in out
    assert "\033" not in out
    assert "SAME" in written.run_tool("--all")[1].split("geometric")[0]


def test_changes_of_the_environment_are_noted(written):
    written.record("newer.json", [timed(1, 20e-6)], day=3, commit="c" * 40, compiler="nvcc 14")
    assert "note: compiler nvcc 13 in A, nvcc 14 in B for 1 of 3 kernels\n" in written.run_tool()[1]
    assert "note: compiler nvcc 13 in A, nvcc 14 in B\n" in written.run_tool("--version", "1")[1]
    written.record("newest.json", [timed(2, 20e-6)], day=4, commit="d" * 40, compiler="nvcc 15")
    assert "note: compiler differs for 2 of 3 kernels\n" in written.run_tool()[1]


def test_exit_codes(written):
    assert written.run_tool()[0] == 0
    assert written.run_tool("--fail-on", "slow")[0] == 3
    assert written.run_tool("--fail-on", "missing")[0] == 0  # what was measured once is left out
    assert written.run_tool("previous", "--fail-on", "missing")[0] == 3
    assert written.run_tool("--fail-on", "untrusted,ambiguous")[0] == 0
    assert written.run_tool("--version", "3", "--fail-on", "slow,missing,untrusted,ambiguous")[0] == 0


def test_json(written):
    file = written.root / "out.json"
    written.run_tool("previous", "last", "--json", str(file))
    report = json.loads(file.read_text())
    assert (report["schema"], report["mode"], report["a"]["commit"]) == ("ladder.comparison/1", "records", OLD)
    assert report["counts"] == {"SLOW": 2, "UNTRUSTED": 0, "MISSING": 1, "AMBIGUOUS": 0, "FAST": 0, "SAME": 1}
    worst, missing = report["comparisons"][0], report["comparisons"][2]
    assert worst["ratio"] == pytest.approx(1.2, abs=0.002)
    assert (missing["ratio"], missing["b_seconds"], missing["reason"]) == (None, None, "not in B")
    assert [path.name for path in written.root.iterdir()] == ["results", "out.json"]  # nothing left aside


def test_junit(written):
    file = written.root / "junit.xml"
    written.run_tool("previous", "last", "--junit", str(file), "--fail-on", "slow")
    suites = ElementTree.parse(file).getroot()
    (suite,) = suites
    assert (suites.tag, suite.tag) == ("testsuites", "testsuite")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "2", "0", "1"]
    outcome = {case.get("classname"): [child.tag for child in case] for case in suite}
    assert outcome == {
        "h200.toy.fprop.v02": ["failure"],
        "h200.toy.fprop.v01": ["failure"],
        "h200.toy.fprop.v04": ["skipped"],
        "h200.toy.fprop.v03": [],
    }
    for case in suite:
        assert case.get("name") == "n32 c64 bf16"
        assert float(case.get("time")) >= 0
    assert "--live" in suite[0][0].text
    written.run_tool("previous", "--junit", str(file), "--fail-on", "missing")
    assert ElementTree.parse(file).getroot().get("failures") == "3"


def test_wrong_usage_is_one_line(written):
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
        written.refused(UsageError, *arguments)
    assert "folder does not exist" in written.refused(Failure, "--json", str(written.root / "no" / "x.json"))


def test_an_unwritable_file_is_one_line(written):
    (written.root / "taken").mkdir()
    assert "cannot write" in written.refused(Failure, "--json", str(written.root / "taken"))
    assert sorted(path.name for path in written.root.iterdir()) == ["results", "taken"]


def test_the_records_of_this_tree_compare_with_themselves():
    there, bad = record_files.load_all(ROOT / "results")
    assert bad == []
    devices = [record.device for record in there]
    most = max(devices, key=devices.count)
    whole = records.merge([record for record in there if record.device == most])
    comparisons = records.compare(whole, whole)
    assert len(comparisons) > 100
    called = [comparison.label for comparison in comparisons if comparison.verdict.status in ("SLOW", "FAST")]
    assert called == []
