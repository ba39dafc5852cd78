"""./ladder compare --live with a fake benchmark: interleaving, confirmation, interruption; worktrees."""

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli import device, paths, say
from cli.errors import Failure, UsageError
from compare import live as compare_live
from compare import main as compare_main
from compare import sides, trees
from registry import listing

ROOT = Path(__file__).resolve().parents[2]

PROBLEMS = ["n32 c64 bf16", "n32 c8 bf16"]

# Fake benchmark of one side. `behaviour.json` in the side's folder sets its times and failures. The number of the call
# seeds the noise, so that a test gives the same result every time.
BENCH = """#!{python} -SE
import json, pathlib, random, sys
sys.path.insert(0, {path!r})
import made_records

arguments = sys.argv[1:]
here = pathlib.Path({folder!r})
behaviour = json.loads((here / "behaviour.json").read_text())
if "--help" in arguments:
    flags = {{"ancient": "", "renamed": " --unchecked --handicap --opponent"}}
    print("--check --once" + flags.get(behaviour.get("age"), " --unchecked --inject-slowdown --baseline"))
    sys.exit(0)
if behaviour.get("age") == "renamed" and {{"--inject-slowdown", "--baseline"}} & set(arguments):
    print("bench_toy: not expected", file=sys.stderr)
    sys.exit(2)
calls = here / "calls"
with open(calls, "a") as file:
    file.write(json.dumps(arguments) + "\\n")
call = len(calls.read_text().splitlines())
with open(here.parent / "order", "a") as file:
    file.write(here.name)
if call in behaviour.get("dies_at", []):
    print("bench_toy: out of memory", file=sys.stderr)
    sys.exit(1)
value = lambda flag: arguments[arguments.index(flag) + 1] if flag in arguments else None
checked = "--check" in arguments
wanted = None if value("--version") == "all" else set(map(int, value("--version").split(",")))
problems = [arguments[at + 1] for at, word in enumerate(arguments) if word == "--problem"] or behaviour["problems"]
rng = random.Random(1000 * behaviour["seed"] + call)
results, failed = [], False
for version, seconds in behaviour["seconds"].items():
    if wanted and int(version) not in wanted:
        continue
    for problem in problems:
        scale = rng.gauss(1, behaviour.get("noise", 0.001)) * behaviour.get("factor", {{}}).get(version, 1.0)
        if call in behaviour.get("slow_at", []):
            scale *= 1.1
        samples = [seconds * scale * rng.gauss(1, 0.002) for _ in range(int(value("--samples") or 1))]
        fails = version in behaviour.get("fails", [])
        failed |= fails
        skips = version in behaviour.get("skips", [])
        status = "SKIP" if skips else ("FAIL" if fails else "PASS") if checked else "UNCHECKED"
        digest = f"d{{call}}" if version in behaviour.get("unsteady", []) else "d1"
        reason = "too wide" if skips else "3 elements are wrong" if fails else ""
        times = None if checked or skips else made_records.times(samples)
        results.append(made_records.result(int(version), times, problem, None, status, reason, idea="naive",
                                       digest=digest))
failure = "a spin is read wrongly" if call in behaviour.get("timer_fails_at", []) else ""
made_records.write(pathlib.Path(value("--record")), made_records.record(results, calibration={{"failure": failure}}))
sys.exit(1 if failed and checked else 0)
"""


class Live:
    """Both sides are folders with a fake benchmark. The functions that would build them are replaced."""

    def __init__(self, tmp_path, monkeypatch, capsys):
        self.root, self.capsys = tmp_path, capsys
        self.sides = [self.side("A", "a" * 40, seed=1), self.side("B", "b" * 40, seed=2)]
        self.words = []
        monkeypatch.setattr(paths, "ROOT", self.root / "B")
        monkeypatch.setattr(paths, "PRIVATE", self.root / "private")
        monkeypatch.setattr(trees, "find", lambda root, ref: trees.Source(ref, ref, "a" * 40, False))
        monkeypatch.setattr(device, "gpu", lambda: ("NVIDIA H200", ""))
        monkeypatch.setattr(say, "progress", self.words.append)
        monkeypatch.setattr(sides, "built", lambda source, layers, percent: tuple(self.sides))

    def side(self, name, commit, seed):
        tree = self.root / name
        for version in (1, 2):
            file = tree / "dev" / "toy" / "fprop" / f"v{version:02d}_naive.cu"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        (tree / "dev" / "toy" / "shapes.txt").write_text("[ci]\nwide: n32  c64\n")
        program = tree / "bench_toy"
        program.write_text(BENCH.format(python=sys.executable, folder=str(tree), path=str(ROOT / "tests" / "python")))
        program.chmod(0o755)
        (tree / "behaviour.json").write_text(
            json.dumps({"seed": seed, "seconds": {"1": 20e-6, "2": 50e-6}, "problems": PROBLEMS})
        )
        return sides.Side(name, commit[:10], commit, False, f"sources of {name}", tree, {"toy": program})

    def behave(self, at, **more):
        file = self.sides[at].tree / "behaviour.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **more}))

    def calls(self, at):
        file = self.sides[at].tree / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def run_tool(self, *arguments):
        try:
            status = compare_main.main(["--live", "REF", *arguments])
        finally:
            out, self.errors = self.capsys.readouterr()
        return status, out

    def compare(self, *arguments):
        """Returns {(version, problem): (status, reason)} and the report."""
        file = self.root / "out.json"
        self.status, self.text = self.run_tool("--json", str(file), *arguments)
        report = json.loads(file.read_text())
        found = {(each["version"], each["problem"]): (each["status"], each["reason"]) for each in report["comparisons"]}
        return found, report


@pytest.fixture
def live(tmp_path, monkeypatch, capsys):
    return Live(tmp_path, monkeypatch, capsys)


def test_a_slowed_version_is_slow_and_the_other_the_same(live):
    live.behave(1, factor={"2": 1.03})
    verdicts, report = live.compare("--fail-on", "slow")
    assert [status for status, _ in verdicts.values()] == ["SLOW", "SLOW", "SAME", "SAME"]
    assert {version for version, _ in list(verdicts)[:2]} == {2}
    assert (live.status, report["mode"]) == (3, "live")
    assert "./ladder compare --live aaaaaaaaaa toy/fprop --version 2 --problem 'n32 c64 bf16'" in live.text


def test_the_set_is_named_though_it_is_the_default(live):
    for shapes, expected in (
        ("[ci]\na: n1 c4\n[unet]\nb: n32 c64\n", "unet"),
        ("[ci]\na: n1 c4\n[perf]\nb: n32 c64\n", "perf"),
    ):
        (live.sides[1].tree / "dev" / "toy" / "shapes.txt").write_text(shapes)
        live.compare("--no-check")
        assert all(call[call.index("--set") + 1] == expected for call in (live.calls(0)[-1], live.calls(1)[-1]))


def test_the_flags_and_the_order_of_the_processes(live):
    live.compare("--no-check", "--set", "ci", "--samples", "7", "--seed", "3")
    a, b = live.calls(0), live.calls(1)
    assert (len(a), len(b)) == (9, 9)
    assert (
        a[0][:-1]
        == "--pass fprop --version all --set ci --unchecked --samples 7 --baseline none --seed 3 --record".split()
    )
    assert "".join((live.root / "order").read_text()[:8]) == "ABBAABBA"


def test_checks_come_first_and_a_failed_one_is_untrusted(live):
    live.behave(1, fails=["1"])
    verdicts, _ = live.compare()
    assert verdicts[1, PROBLEMS[0]] == ("UNTRUSTED", "FAIL in B: 3 elements are wrong")
    assert verdicts[2, PROBLEMS[0]][0] == "SAME"
    assert "--check" in live.calls(0)[0]
    assert sum("--check" in call for call in live.calls(1)) == 1


def test_an_output_that_changes_is_untrusted(live):
    live.behave(0, unsteady=["2"])
    verdicts, _ = live.compare()
    assert verdicts[2, PROBLEMS[0]] == ("UNTRUSTED", "its output differs between repetitions of A")


def test_a_version_of_one_side_only_is_missing(live):
    (live.sides[0].tree / "dev/toy/fprop/v02_naive.cu").unlink()
    live.behave(0, seconds={"1": 20e-6})
    verdicts, _ = live.compare()
    assert verdicts[2, PROBLEMS[0]] == ("MISSING", "not in A")
    assert verdicts[1, PROBLEMS[0]][0] == "SAME"
    only_new, _ = live.compare("--version", "2")
    assert {status for status, _ in only_new.values()} == {"MISSING"}


def test_what_neither_side_can_do_is_not_compared(live):
    for at in (0, 1):
        live.behave(at, skips=["2"])
    verdicts, _ = live.compare()
    assert {version for version, _ in verdicts} == {1}
    live.behave(0, skips=[])
    verdicts, _ = live.compare()
    assert verdicts[2, PROBLEMS[0]] == ("MISSING", "SKIP in B: too wide")


def test_a_call_that_a_second_run_does_not_confirm_is_ambiguous(live):
    live.behave(1, slow_at=list(range(2, 11)))  # the first run's nine processes, after the check
    verdicts, _ = live.compare()
    for status, reason in verdicts.values():
        assert status == "AMBIGUOUS"
        assert "not confirmed: +" in reason


def test_the_second_run_is_only_of_what_is_open(live):
    live.behave(1, factor={"2": 1.05}, problems=PROBLEMS[:1], seconds={"1": 20e-6, "2": 50e-6, "3": 1e-5})
    live.behave(0, problems=PROBLEMS[:1], seconds={"1": 20e-6, "2": 50e-6, "3": 1e-5})
    live.compare("--no-check")
    assert len(live.calls(1)) == 18
    again = live.calls(1)[-1]
    assert again[2:6] == ["--version", "2", "--problem", PROBLEMS[0]]


def test_an_a_a_run_counts_its_false_calls(live):
    live.sides[1] = replace(live.sides[1], fingerprint=live.sides[0].fingerprint)
    _, report = live.compare()
    assert report["notes"] == [
        "A/A: the same sources on both sides, 4 comparisons, 0 false calls (0 before the second run)"
    ]
    assert "4 comparisons, 0 false calls" in live.text


def test_an_injected_slowdown_counts_what_was_seen(live):
    live.behave(1, factor={"1": 1.05, "2": 1.05})
    _, report = live.compare("--inject-slowdown", "5")
    (note,) = report["notes"]
    assert re.search(
        r"^injected slowdown: every sample of B lasts 5 % longer on purpose \(the middle of what was "
        r"measured: \+(4\.9|5\.0|5\.1) %\); 4 of 4 kernels are called SLOW$",
        note,
    )
    assert [calls[-1][calls[-1].index("--inject-slowdown") + 1] for calls in (live.calls(0), live.calls(1))] == [
        "0",
        "5",
    ]
    assert "--live aaaaaaaaaa --inject-slowdown 5 toy" in report["comparisons"][0]["reproduce"]


def test_keep_holds_every_sample(live):
    file = live.root / "kept.json"
    live.run_tool("--keep", str(file))
    kept = json.loads(file.read_text())
    for entry in kept["comparisons"]:
        for side in "ab":
            samples = [len(repetition["seconds"]) for repetition in entry["repetitions"][side]]
            assert samples == [30] * 9


def test_too_few_repetitions_are_ambiguous(live):
    verdicts, _ = live.compare("--repetitions", "3")
    assert "too few repetitions" in verdicts[1, PROBLEMS[0]][1]


def test_a_process_whose_timer_failed_runs_again(live):
    live.behave(0, timer_fails_at=[3])
    verdicts, _ = live.compare("--no-check")
    assert (len(live.calls(0)), len(live.calls(1))) == (10, 9)
    assert {status for status, _ in verdicts.values()} == {"SAME"}


def test_progress_has_a_bar_and_an_estimate(live):
    live.compare("--no-check")
    assert len(live.words) == 18
    assert re.search(r"\[#{12}\.{12}\] first run, repetition 5 of 9, process 9 of 18, \d+ s left", live.words[8])


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(live):
    live.behave(1, dies_at=[5])
    with pytest.raises(Failure) as caught:
        live.run_tool("--no-check")
    assert str(caught.value) == "B: B_bench_toy, exit status 1: bench_toy: out of memory"
    (folder,) = (live.root / "private" / "comparisons").iterdir()
    assert f"--resume {folder}" in live.errors
    before = len(live.calls(0)), len(live.calls(1))
    live.behave(1, dies_at=[])
    with pytest.raises(UsageError):
        live.run_tool("--no-check", "--resume", str(folder), "--samples", "3")
    verdicts, _ = live.compare("--no-check", "--resume", str(folder))
    assert {status for status, _ in verdicts.values()} == {"SAME"}
    assert before == (5, 5)
    assert (len(live.calls(0)), len(live.calls(1))) == (10, 10)  # four whole pairs were kept
    assert not folder.exists()


def test_a_rebuilt_program_does_not_go_on_with_another_ones_run(live):
    live.behave(1, dies_at=[5])
    with pytest.raises(Failure):
        live.run_tool("--no-check")
    (folder,) = (live.root / "private" / "comparisons").iterdir()
    with open(live.sides[1].programs["toy"], "a") as file:
        file.write("# rebuilt\n")
    with pytest.raises(UsageError, match="no longer the program"):
        live.run_tool("--no-check", "--resume", str(folder))


def test_a_commit_that_is_too_old_is_one_line(live):
    live.behave(0, age="ancient")
    with pytest.raises(Failure, match="^A is too old to be compared live: its bench_toy has no --unchecked$"):
        live.run_tool()


def test_an_older_commit_is_told_its_own_flags(live):
    live.behave(0, age="renamed")
    verdicts, _ = live.compare("--inject-slowdown", "5")
    assert {status for status, _ in verdicts.values()} == {"SAME"}
    old, new = live.calls(0)[-1], live.calls(1)[-1]
    assert [old[old.index(flag) + 1] for flag in ("--handicap", "--opponent")] == ["0", "none"]
    assert [new[new.index(flag) + 1] for flag in ("--inject-slowdown", "--baseline")] == ["5", "none"]


def test_every_form_of_what_to_run_reaches_both_sides_as_numbers_lines_and_one_dtype(live):
    live.compare("--no-check", "toy/fprop", "--version", "naive", "--problem", "wide", "--dtype", "bf16,fp16")
    asked = [call[2:8] for call in live.calls(0)]
    for dtype in ("bf16", "fp16"):
        assert ["--version", "1,2", "--problem", "n32 c64", "--dtype", dtype] in asked


def test_two_versions_of_this_tree(live, monkeypatch):
    monkeypatch.setattr(compare_live.build, "build", lambda preset, targets: None)
    monkeypatch.setattr(compare_live.build, "folder", lambda preset: live.sides[1].tree)
    monkeypatch.setattr(trees, "fingerprint", lambda tree: "sources")
    parser = argparse.ArgumentParser()
    compare_main.add_timing(parser)
    options = parser.parse_args(["--no-check"])
    options.version, options.dtype, options.problem = "1,2", None, None
    options.chosen = compare_live.Chosen(("toy/fprop",), True, None, {}, ())
    made = compare_live.compare_versions("toy/fprop", listing.versions(live.sides[1].tree, "toy/fprop"), options)
    assert [call[3] for call in live.calls(1)] == [*"122112211221122112", *"122112211221122112"]
    assert [each.verdict.status for each in made.comparisons] == ["SLOW", "SLOW"]
    assert all(2.4 < each.verdict.ratio < 2.6 for each in made.comparisons)
    assert "./ladder diff toy/fprop 1 2 --problem 'n32 c64 bf16'" in made.text()


def test_without_a_gpu(live, monkeypatch):
    monkeypatch.setattr(device, "gpu", lambda: (None, "no GPU: none"))
    with pytest.raises(Failure, match="^--live needs a GPU: no GPU: none"):
        live.run_tool()


def test_wrong_words(live):
    for arguments in (
        ("other_layer",),
        ("toy/dgrad",),
        ("--version", "3"),
        ("--resume", str(live.root)),
        ("--device", "h200"),
    ):
        with pytest.raises(UsageError):
            live.run_tool(*arguments)


class Repository:
    def __init__(self, tmp_path, monkeypatch):
        # Clear the variables that name a build's commit where git knows none.
        for name in ("LADDER_COMMIT", "LADDER_DIRTY"):
            monkeypatch.delenv(name, raising=False)
        self.root = tmp_path / "checkout"
        self.private = self.root / ".ladder"
        (self.root / "dev" / "toy").mkdir(parents=True)
        (self.root / "results").mkdir()
        (self.private / "cuda").mkdir(parents=True)
        (self.private / "cuda" / "nvcc").write_text("a download")
        (self.root / "CMakePresets.json").write_text("{}")
        (self.root / ".gitignore").write_text("/.ladder/\n/build/\n")
        self.kernel = self.root / "dev" / "toy" / "v01.cu"
        self.kernel.write_text("__global__ void k() { old(); }\n")
        self.git("init", "-q", "-b", "main")
        self.first = self.commit()
        self.kernel.write_text("__global__ void k() { new(); }\n")
        self.second = self.commit()

    def git(self, *words):
        author = ["-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run(
            ["git", "-C", str(self.root), *author, *words], check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout.strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "one")
        return self.git("rev-parse", "HEAD")

    def checkout(self, ref):
        return trees.checkout(self.root, self.private, trees.find(self.root, ref))

    def state(self, folder):
        source = trees.find(self.root, str(folder))
        return source.commit, source.dirty


@pytest.fixture
def repository(tmp_path, monkeypatch):
    return Repository(tmp_path, monkeypatch)


def test_a_tree_is_that_commit_and_the_checkout_stays_as_it_is(repository):
    repository.kernel.write_text("edited")
    before = repository.git("status", "--porcelain"), repository.git("branch", "-a")
    tree = repository.checkout(repository.first)
    assert "old()" in (tree / "dev/toy/v01.cu").read_text()
    assert (tree / ".ladder/cuda/nvcc").read_text() == "a download"
    assert (repository.git("status", "--porcelain"), repository.git("branch", "-a")) == before
    assert repository.kernel.read_text() == "edited"
    assert repository.state(repository.root) == (repository.second, True)
    assert repository.state(tree) == (repository.first, False)  # links to downloads do not make it dirty


def test_a_tree_is_used_again_and_one_that_was_touched_is_made_anew(repository):
    tree = repository.checkout(repository.first)
    (tree / "build").mkdir()
    assert repository.checkout(repository.first) == tree
    assert (tree / "build").exists()
    (tree / "dev/toy/v01.cu").write_text("touched")
    repository.checkout(repository.first)
    assert "old()" in (tree / "dev/toy/v01.cu").read_text()
    assert (repository.private / "cuda" / "nvcc").read_text() == "a download"  # removal follows no link


def test_a_tree_whose_folder_was_removed_by_hand_comes_back(repository):
    shutil.rmtree(repository.checkout(repository.first))
    assert (repository.checkout(repository.first) / "dev").exists()


def test_what_is_in_the_way_is_not_removed(repository):
    stranger = repository.private / "trees" / repository.first[:12]
    stranger.mkdir(parents=True)
    (stranger / "precious").write_text("")
    with pytest.raises(Failure, match="in the way"):
        repository.checkout(repository.first)
    assert (stranger / "precious").exists()


def test_a_folder_is_copied_and_what_stays_the_same_keeps_its_date(repository):
    other = repository.root.parent / "other"
    shutil.copytree(repository.root, other, ignore=shutil.ignore_patterns(".git", ".ladder"))
    (other / "core").mkdir()
    (other / "core" / "a.h").write_text("old")
    source = trees.find(repository.root, str(other))
    assert (source.commit, source.dirty) == ("unknown", True)
    tree = repository.checkout(str(other))
    assert trees.fingerprint(tree) == trees.fingerprint(other)
    assert (tree / ".ladder/cuda/nvcc").read_text() == "a download"
    stamp = (tree / "dev/toy/v01.cu").stat().st_mtime_ns
    (other / "core" / "a.h").unlink()
    (other / "core" / "b.h").write_text("new")
    assert repository.checkout(str(other)) == tree
    assert sorted(path.name for path in (tree / "core").iterdir()) == ["b.h"]
    assert (tree / "dev/toy/v01.cu").stat().st_mtime_ns == stamp


def test_this_very_tree_can_be_the_other_side(repository):
    assert trees.fingerprint(repository.checkout(str(repository.root))) == trees.fingerprint(repository.root)


def test_a_commit_has_the_fingerprint_of_its_sources(repository):
    assert trees.fingerprint(repository.checkout("HEAD")) == trees.fingerprint(repository.root)
    assert trees.fingerprint(repository.checkout("HEAD~1")) != trees.fingerprint(repository.root)


def test_names(repository):
    source = trees.find(repository.root, "HEAD~1")
    assert (source.commit, source.ref) == (repository.first, repository.first[:10])
    for wrong in ("nowhere", "--help"):
        with pytest.raises(UsageError):
            trees.find(repository.root, wrong)
    with pytest.raises(UsageError, match="git knows no commits here: "):
        trees.find(repository.root.parent, "HEAD")
