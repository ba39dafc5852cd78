"""./ladder compare --live with a fake benchmark: interleaving, confirmation, interruption; worktrees."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

from cli import device, paths, say  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402
from compare import main as compare_main  # noqa: E402
from compare import sides, trees  # noqa: E402

PROBLEMS = ["n32 c64 bf16", "n32 c8 bf16"]

# What a side's benchmark does: `behaviour.json` beside the tree says how fast it is and what goes wrong. The noise
# comes from the number of the call, so a test gives the same every time.
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


class Live(unittest.TestCase):
    """Both sides are folders with a fake benchmark; what builds them in earnest is replaced."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.sides = [self.side("A", "a" * 40, seed=1), self.side("B", "b" * 40, seed=2)]
        self.words = []
        for patch in (
            mock.patch.object(paths, "ROOT", self.root / "B"),
            mock.patch.object(paths, "PRIVATE", self.root / "private"),
            mock.patch.object(trees, "find", lambda root, ref: trees.Source(ref, ref, "a" * 40, False)),
            mock.patch.object(device, "gpu", lambda: ("NVIDIA H200", "")),
            mock.patch.object(say, "progress", self.words.append),
            mock.patch.object(sides, "built", lambda source, layers, percent: tuple(self.sides)),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def side(self, name, commit, seed):
        tree = self.root / name
        for version in (1, 2):
            file = tree / "dev" / "toy" / "fprop" / f"v{version:02d}_naive.cu"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        (tree / "dev" / "toy" / "shapes.txt").write_text("[ci]\nwide: n32  c64\n")
        program = tree / "bench_toy"
        program.write_text(BENCH.format(python=sys.executable, folder=str(tree), path=str(ROOT / "tests")))
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
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                status = compare_main.main(["--live", "REF", *arguments])
            finally:
                self.errors = errors.getvalue()
        return status, out.getvalue()

    def compare(self, *arguments):
        """{(version, problem): (status, reason)} and the report."""
        file = self.root / "out.json"
        self.status, self.text = self.run_tool("--json", str(file), *arguments)
        report = json.loads(file.read_text())
        return {
            (entry["version"], entry["problem"]): (entry["status"], entry["reason"]) for entry in report["comparisons"]
        }, report

    def test_a_slowed_version_is_slow_and_the_other_the_same(self):
        self.behave(1, factor={"2": 1.03})
        verdicts, report = self.compare("--fail-on", "slow")
        self.assertEqual([status for status, _ in verdicts.values()], ["SLOW", "SLOW", "SAME", "SAME"])
        self.assertEqual({version for version, _ in list(verdicts)[:2]}, {2})
        self.assertEqual((self.status, report["mode"]), (3, "live"))
        self.assertIn("./ladder compare --live aaaaaaaaaa toy/fprop --version 2 --problem 'n32 c64 bf16'", self.text)

    def test_the_flags_and_the_order_of_the_processes(self):
        self.compare("--no-check", "--set", "ci", "--samples", "7", "--seed", "3")
        a, b = self.calls(0), self.calls(1)
        self.assertEqual((len(a), len(b)), (9, 9))
        self.assertEqual(
            a[0][:-1],
            [
                "--pass",
                "fprop",
                "--version",
                "all",
                "--set",
                "ci",
                "--unchecked",
                "--samples",
                "7",
                "--baseline",
                "none",
                "--seed",
                "3",
                "--record",
            ],
        )
        self.assertEqual("".join((self.root / "order").read_text()[:8]), "ABBAABBA")

    def test_checks_come_first_and_a_failed_one_is_untrusted(self):
        self.behave(1, fails=["1"])
        verdicts, _ = self.compare()
        self.assertEqual(verdicts[1, PROBLEMS[0]], ("UNTRUSTED", "FAIL in B: 3 elements are wrong"))
        self.assertEqual(verdicts[2, PROBLEMS[0]][0], "SAME")
        self.assertIn("--check", self.calls(0)[0])
        self.assertEqual(sum("--check" in call for call in self.calls(1)), 1)

    def test_an_output_that_changes_is_untrusted(self):
        self.behave(0, unsteady=["2"])
        verdicts, _ = self.compare()
        self.assertEqual(verdicts[2, PROBLEMS[0]], ("UNTRUSTED", "its output differs between repetitions of A"))

    def test_a_version_of_one_side_only_is_missing(self):
        (self.sides[0].tree / "dev/toy/fprop/v02_naive.cu").unlink()
        self.behave(0, seconds={"1": 20e-6})
        verdicts, _ = self.compare()
        self.assertEqual(verdicts[2, PROBLEMS[0]], ("MISSING", "not in A"))
        self.assertEqual(verdicts[1, PROBLEMS[0]][0], "SAME")
        only_new, _ = self.compare("--version", "2")
        self.assertEqual({status for status, _ in only_new.values()}, {"MISSING"})

    def test_what_neither_side_can_do_is_not_compared(self):
        for at in (0, 1):
            self.behave(at, skips=["2"])
        verdicts, _ = self.compare()
        self.assertEqual({version for version, _ in verdicts}, {1})
        self.behave(0, skips=[])
        verdicts, _ = self.compare()
        self.assertEqual(verdicts[2, PROBLEMS[0]], ("MISSING", "SKIP in B: too wide"))

    def test_a_call_that_a_second_run_does_not_confirm_is_ambiguous(self):
        self.behave(1, slow_at=list(range(2, 11)))  # the first run's nine processes, after the check
        verdicts, _ = self.compare()
        for status, reason in verdicts.values():
            self.assertEqual(status, "AMBIGUOUS")
            self.assertIn("not confirmed: +", reason)

    def test_the_second_run_is_only_of_what_is_open(self):
        self.behave(1, factor={"2": 1.05}, problems=PROBLEMS[:1], seconds={"1": 20e-6, "2": 50e-6, "3": 1e-5})
        self.behave(0, problems=PROBLEMS[:1], seconds={"1": 20e-6, "2": 50e-6, "3": 1e-5})
        self.compare("--no-check")
        self.assertEqual(len(self.calls(1)), 18)
        again = self.calls(1)[-1]
        self.assertEqual(again[2:6], ["--version", "2", "--problem", PROBLEMS[0]])

    def test_an_a_a_run_counts_its_false_calls(self):
        self.sides[1] = replace(self.sides[1], fingerprint=self.sides[0].fingerprint)
        _, report = self.compare()
        self.assertEqual(
            report["notes"],
            ["A/A: the same sources on both sides, 4 comparisons, 0 false calls (0 before the second run)"],
        )
        self.assertIn("4 comparisons, 0 false calls", self.text)

    def test_an_injected_slowdown_counts_what_was_seen(self):
        self.behave(1, factor={"1": 1.05, "2": 1.05})
        _, report = self.compare("--inject-slowdown", "5")
        (note,) = report["notes"]
        self.assertRegex(
            note,
            r"^injected slowdown: every sample of B lasts 5 % longer on purpose \(the middle of what was "
            r"measured: \+(4\.9|5\.0|5\.1) %\); 4 of 4 kernels are called SLOW$",
        )
        self.assertEqual(
            [calls[-1][calls[-1].index("--inject-slowdown") + 1] for calls in (self.calls(0), self.calls(1))],
            ["0", "5"],
        )
        self.assertIn("--live aaaaaaaaaa --inject-slowdown 5 toy", report["comparisons"][0]["reproduce"])

    def test_keep_holds_every_sample(self):
        file = self.root / "kept.json"
        self.run_tool("--keep", str(file))
        kept = json.loads(file.read_text())
        for entry in kept["comparisons"]:
            for side in "ab":
                samples = [len(repetition["seconds"]) for repetition in entry["repetitions"][side]]
                self.assertEqual(samples, [30] * 9)

    def test_too_few_repetitions_are_ambiguous(self):
        verdicts, _ = self.compare("--repetitions", "3")
        self.assertIn("too few repetitions", verdicts[1, PROBLEMS[0]][1])

    def test_a_process_whose_timer_failed_runs_again(self):
        self.behave(0, timer_fails_at=[3])
        verdicts, _ = self.compare("--no-check")
        self.assertEqual((len(self.calls(0)), len(self.calls(1))), (10, 9))
        self.assertEqual({status for status, _ in verdicts.values()}, {"SAME"})

    def test_progress_has_a_bar_and_an_estimate(self):
        self.compare("--no-check")
        self.assertEqual(len(self.words), 18)
        self.assertRegex(self.words[8], r"\[#{12}\.{12}\] first run, repetition 5 of 9, process 9 of 18, \d+ s left")

    def test_an_interrupted_run_keeps_what_it_has_and_goes_on(self):
        self.behave(1, dies_at=[5])
        with self.assertRaises(Failure) as caught:
            self.run_tool("--no-check")
        self.assertEqual(str(caught.exception), "B: B_bench_toy, exit status 1: bench_toy: out of memory")
        (folder,) = (self.root / "private" / "comparisons").iterdir()
        self.assertIn(f"--resume {folder}", self.errors)
        before = len(self.calls(0)), len(self.calls(1))
        self.behave(1, dies_at=[])
        with self.assertRaises(UsageError):
            self.run_tool("--no-check", "--resume", str(folder), "--samples", "3")
        verdicts, _ = self.compare("--no-check", "--resume", str(folder))
        self.assertEqual({status for status, _ in verdicts.values()}, {"SAME"})
        self.assertEqual(before, (5, 5))
        self.assertEqual((len(self.calls(0)), len(self.calls(1))), (10, 10))  # four whole pairs were kept
        self.assertFalse(folder.exists())

    def test_a_rebuilt_program_does_not_go_on_with_another_ones_run(self):
        self.behave(1, dies_at=[5])
        with self.assertRaises(Failure):
            self.run_tool("--no-check")
        (folder,) = (self.root / "private" / "comparisons").iterdir()
        with open(self.sides[1].programs["toy"], "a") as file:
            file.write("# rebuilt\n")
        with self.assertRaisesRegex(UsageError, "no longer the program"):
            self.run_tool("--no-check", "--resume", str(folder))

    def test_a_commit_that_is_too_old_is_one_line(self):
        self.behave(0, age="ancient")
        with self.assertRaisesRegex(Failure, "^A is too old to be compared live: its bench_toy has no --unchecked$"):
            self.run_tool()

    def test_an_older_commit_is_told_its_own_flags(self):
        self.behave(0, age="renamed")
        verdicts, _ = self.compare("--inject-slowdown", "5")
        self.assertEqual({status for status, _ in verdicts.values()}, {"SAME"})
        old, new = self.calls(0)[-1], self.calls(1)[-1]
        self.assertEqual([old[old.index(flag) + 1] for flag in ("--handicap", "--opponent")], ["0", "none"])
        self.assertEqual([new[new.index(flag) + 1] for flag in ("--inject-slowdown", "--baseline")], ["5", "none"])

    def test_every_form_of_what_to_run_reaches_both_sides_as_numbers_lines_and_one_dtype(self):
        self.compare("--no-check", "toy/fprop", "--version", "naive", "--problem", "wide", "--dtype", "bf16,fp16")
        asked = [call[2:8] for call in self.calls(0)]
        for dtype in ("bf16", "fp16"):
            self.assertIn(["--version", "1,2", "--problem", "n32 c64", "--dtype", dtype], asked)

    def test_without_a_gpu(self):
        with mock.patch.object(device, "gpu", lambda: (None, "no GPU: none")):
            with self.assertRaisesRegex(Failure, "^--live needs a GPU: no GPU: none"):
                self.run_tool()

    def test_wrong_words(self):
        for arguments in (
            ("other_layer",),
            ("toy/dgrad",),
            ("--version", "3"),
            ("--resume", str(self.root)),
            ("--device", "h200"),
        ):
            with self.assertRaises(UsageError):
                self.run_tool(*arguments)


class Trees(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        # Where there is no git, these say what a build was made from.
        without = {name: value for name, value in os.environ.items() if name not in ("LADDER_COMMIT", "LADDER_DIRTY")}
        environment = mock.patch.dict(os.environ, without, clear=True)
        environment.start()
        self.addCleanup(environment.stop)
        self.root = Path(folder.name) / "checkout"
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

    def test_a_tree_is_that_commit_and_the_checkout_stays_as_it_is(self):
        self.kernel.write_text("edited")
        before = self.git("status", "--porcelain"), self.git("branch", "-a")
        tree = self.checkout(self.first)
        self.assertIn("old()", (tree / "dev/toy/v01.cu").read_text())
        self.assertEqual((tree / ".ladder/cuda/nvcc").read_text(), "a download")
        self.assertEqual((self.git("status", "--porcelain"), self.git("branch", "-a")), before)
        self.assertEqual(self.kernel.read_text(), "edited")
        self.assertEqual(self.state(self.root), (self.second, True))
        self.assertEqual(self.state(tree), (self.first, False))  # links to downloads do not make it dirty

    def test_a_tree_is_used_again_and_one_that_was_touched_is_made_anew(self):
        tree = self.checkout(self.first)
        (tree / "build").mkdir()
        self.assertEqual(self.checkout(self.first), tree)
        self.assertTrue((tree / "build").exists())
        (tree / "dev/toy/v01.cu").write_text("touched")
        self.checkout(self.first)
        self.assertIn("old()", (tree / "dev/toy/v01.cu").read_text())
        self.assertEqual((self.private / "cuda" / "nvcc").read_text(), "a download")  # removal follows no link

    def test_a_tree_whose_folder_was_removed_by_hand_comes_back(self):
        shutil.rmtree(self.checkout(self.first))
        self.assertTrue((self.checkout(self.first) / "dev").exists())

    def test_what_is_in_the_way_is_not_removed(self):
        stranger = self.private / "trees" / self.first[:12]
        stranger.mkdir(parents=True)
        (stranger / "precious").write_text("")
        with self.assertRaisesRegex(Failure, "in the way"):
            self.checkout(self.first)
        self.assertTrue((stranger / "precious").exists())

    def state(self, folder):
        source = trees.find(self.root, str(folder))
        return source.commit, source.dirty

    def test_a_folder_is_copied_and_what_stays_the_same_keeps_its_date(self):
        other = self.root.parent / "other"
        shutil.copytree(self.root, other, ignore=shutil.ignore_patterns(".git", ".ladder"))
        (other / "core").mkdir()
        (other / "core" / "a.h").write_text("old")
        source = trees.find(self.root, str(other))
        self.assertEqual((source.commit, source.dirty), ("unknown", True))
        tree = self.checkout(str(other))
        self.assertEqual(trees.fingerprint(tree), trees.fingerprint(other))
        self.assertEqual((tree / ".ladder/cuda/nvcc").read_text(), "a download")
        stamp = (tree / "dev/toy/v01.cu").stat().st_mtime_ns
        (other / "core" / "a.h").unlink()
        (other / "core" / "b.h").write_text("new")
        self.assertEqual(self.checkout(str(other)), tree)
        self.assertEqual(sorted(path.name for path in (tree / "core").iterdir()), ["b.h"])
        self.assertEqual((tree / "dev/toy/v01.cu").stat().st_mtime_ns, stamp)

    def test_this_very_tree_can_be_the_other_side(self):
        self.assertEqual(trees.fingerprint(self.checkout(str(self.root))), trees.fingerprint(self.root))

    def test_a_commit_has_the_fingerprint_of_its_sources(self):
        self.assertEqual(trees.fingerprint(self.checkout("HEAD")), trees.fingerprint(self.root))
        self.assertNotEqual(trees.fingerprint(self.checkout("HEAD~1")), trees.fingerprint(self.root))

    def test_names(self):
        source = trees.find(self.root, "HEAD~1")
        self.assertEqual((source.commit, source.ref), (self.first, self.first[:10]))
        for wrong in ("nowhere", "--help"):
            with self.assertRaises(UsageError):
                trees.find(self.root, wrong)
        with self.assertRaisesRegex(UsageError, "no git"):
            trees.find(self.root.parent, "HEAD")


if __name__ == "__main__":
    unittest.main()
