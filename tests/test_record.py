"""./ladder record with a bench program that is a script: parts, interruption, resumption, and what is never overwritten."""

import contextlib
import copy
import io
import json
import os
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import ladder_records  # noqa: E402
import made_records  # noqa: E402
from cli import record  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402

# Behaves as bench_<layer> does towards the verb. It dies after as many new results as the file `patience` says.
BENCH = """\
#!{python}
import json, os, sys
from pathlib import Path
here = Path(__file__).parent
made = json.loads((here / "record.json").read_text())
words = sys.argv[1:]
if "--environment" in words:
    print(json.dumps(made["environment"]))
    sys.exit(0)
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if "--set" in words and words[words.index("--set") + 1] != "unet":
    print("bench: unknown set: unet", file=sys.stderr)
    sys.exit(2)
dtype = words[words.index("--dtype") + 1] if "--dtype" in words else None
results = [r for r in made["results"] if dtype in (None, r["dtype"])]
if "--benchmark_list_tests" in words:
    for r in results:
        print(f"toy/fprop/v{{r['version']:02d}}_{{r['idea']}}/{{r['problem']}}/iterations:1/manual_time")
    sys.exit(0)
file = Path(words[words.index("--record") + 1])
partial = Path(str(file) + ".partial")
assert partial.exists() == ("--resume" in words)
if not partial.exists():
    partial.write_text(json.dumps({{"environment": made["environment"]}}) + "\\n")
done = partial.read_text().count("\\n") - 1
patience = int((here / "patience").read_text())
for r in results[done:]:
    if patience == 0:
        print("the machine went away", file=sys.stderr)
        sys.exit(137)
    patience -= 1
    with open(partial, "a") as out:
        out.write(json.dumps(r) + "\\n")
partial.unlink()
made["results"] = results
file.write_text(json.dumps(made))
sys.exit(1 if any(r["verdict"]["status"] == "FAIL" for r in results) else 0)
"""


class Recording(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.results = self.root / "results"
        self.bench = self.root / "bench_toy"
        self.bench.write_text(textwrap.dedent(BENCH).format(python=sys.executable))
        self.bench.chmod(0o755)
        self.set_up([made_records.result(1, 200e-6), made_records.result(2, 50e-6),
                     made_records.result(1, 300e-6, "n32 c64 fp32")])

    def set_up(self, results, patience=99, **fields):
        made_records.write(self.root / "record.json", made_records.record(results, **fields))
        (self.root / "patience").write_text(str(patience))

    def calls(self):
        return [json.loads(line) for line in (self.root / "calls").read_text().splitlines()]

    def record(self, *arguments):
        """(exit status, stdout)"""
        options = record._parse([*arguments, "--results", str(self.results)])
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            recording = record.Recording(options, {"toy/fprop": self.bench}, self.results, [{"registers": 1}],
                                         lambda: {"temperature.gpu": "40"})
            status = recording.run()
        return status, out.getvalue()

    def files(self):
        return sorted(file.name for file in (self.results / "h200").iterdir())

    def only_record(self):
        (name,) = self.files()
        return ladder_records.load(self.results / "h200" / name)

    def test_a_record_is_one_sealed_file_named_after_date_and_commit(self):
        status, out = self.record()
        self.assertEqual(status, 0)
        (name,) = self.files()
        self.assertRegex(name, r"^\d{4}-\d\d-\d\d_abcdef0\.json$")
        made = self.only_record()
        self.assertIn('"sha256"', made.file.read_text())
        self.assertEqual(len(made.results), 3)
        self.assertEqual((made.machine["after"], made.kernels), ({"temperature.gpu": "40"}, [{"registers": 1}]))
        self.assertIn("toy/fprop bf16, x baseline: v01 0.50, v02 2.00", out)
        self.assertIn("3 PASS", out)

    def test_parts_of_several_dtypes_are_joined(self):
        self.assertEqual(self.record("--dtype", "bf16,fp32")[0], 0)
        made = self.only_record()
        self.assertEqual([result.dtype for result in made.results], ["bf16", "bf16", "fp32"])
        self.assertEqual(len(made.programs["toy/fprop"]), 2)

    def test_parts_of_two_places_are_not_joined(self):
        one = made_records.record([])
        other = copy.deepcopy(one)
        other["environment"]["device"]["uuid"] = "GPU-2"
        with self.assertRaisesRegex(Failure, "differ in device"):
            record.joined(["toy/fprop"] * 2, [one, other])

    def test_a_record_is_never_changed(self):
        self.record()
        before = self.only_record().file.read_bytes()
        with self.assertRaisesRegex(UsageError, "never changed: --tag"):
            self.record()
        self.assertEqual(self.only_record().file.read_bytes(), before)
        self.assertEqual(self.record("--tag", "again")[0], 0)
        self.assertEqual([name[10:] for name in self.files()], ["_abcdef0.json", "_abcdef0_again.json"])
        with self.assertRaises(Failure):
            record.write_new(self.results / "h200" / self.files()[0], "other")

    def test_uncommitted_changes_show_in_the_name_and_the_record(self):
        self.set_up([made_records.result(1, 200e-6)], dirty=True)
        self.record()
        self.assertTrue(self.only_record().file.name.endswith("_abcdef0_dirty.json"))
        self.assertEqual(self.only_record().short, "abcdef0+")

    def test_an_interrupted_recording_keeps_what_it_has_and_goes_on(self):
        self.set_up([made_records.result(version, 200e-6) for version in (1, 2, 3)], patience=2)
        with self.assertRaisesRegex(Failure, "went away; 2 of 3 results kept, go on with ./ladder record --resume"):
            self.record("--seed", "7")
        (name,) = self.files()
        self.assertTrue(name.endswith(".partial"))
        with self.assertRaisesRegex(UsageError, "interrupted recording: go on with ./ladder record --resume"):
            self.record()
        (self.root / "patience").write_text("99")
        self.assertEqual(self.record("--resume")[0], 0)
        self.assertEqual([result.version for result in self.only_record().results], [1, 2, 3])
        measured = [call for call in self.calls() if "--record" in call]
        self.assertEqual([("--resume" in call, call[call.index("--seed") + 1]) for call in measured],
                         [(False, "7"), (True, "7")])

    def test_parts_that_were_whole_are_not_measured_again(self):
        self.set_up([made_records.result(1, 200e-6), made_records.result(1, 300e-6, "n32 c64 fp32"),
                     made_records.result(2, 300e-6, "n32 c64 fp32")], patience=1)
        with self.assertRaises(Failure):
            self.record("--dtype", "bf16,fp32")
        (self.root / "patience").write_text("99")
        self.assertEqual(self.record("--resume")[0], 0)
        measured = [call for call in self.calls() if "--record" in call]
        self.assertEqual([call[call.index("--dtype") + 1] for call in measured], ["bf16", "fp32", "fp32"])
        self.assertEqual(len(self.only_record().results), 3)

    def test_nothing_to_resume_is_said(self):
        with self.assertRaisesRegex(UsageError, "no interrupted recording of abcdef0"):
            self.record("--resume")

    def test_what_failed_is_recorded_and_is_the_exit_status(self):
        self.set_up([made_records.result(1, 200e-6), made_records.result(2, None, status="FAIL", reason="wrong")])
        status, out = self.record()
        self.assertEqual((status, "1 FAIL, 1 PASS" in out), (1, True))
        self.assertEqual([result.status for result in self.only_record().results], ["PASS", "FAIL"])

    def test_the_benchs_own_words_for_wrong_usage(self):
        with self.assertRaisesRegex(UsageError, "unknown set: unet"):
            self.record("--set", "nowhere")
        for wrong in (["--dtype", "int8"], ["--tag", "a b"], ["--velocity"]):
            with self.assertRaises(UsageError):
                record._parse(wrong)

    def test_the_estimate_is_what_the_last_record_took(self):
        names = {"part": ["a", "b", "c", "d"]}
        progress = record.Progress(names, {"a": 10, "b": 20, "c": 30})
        self.assertEqual(progress.forecast(), "about 1:20 by the last record")
        self.assertEqual(progress._expected(2), 50)
        self.assertEqual(record.Progress(names, {}).forecast(), "no estimate yet")

    def test_a_full_disk_leaves_no_half_a_record(self):
        file = self.results / "h200" / "a.json"
        file.parent.mkdir(parents=True)
        full = Path("/dev/full")
        if not full.exists():
            self.skipTest("no /dev/full")
        aside = file.with_name(f".a.json.{os.getpid()}")
        aside.symlink_to(full)
        with self.assertRaisesRegex(Failure, "was not written: No space left"):
            record.write_new(file, "x" * 100000)
        self.assertEqual(list(file.parent.iterdir()), [])


@unittest.skipUnless((ROOT / "build" / "emulator" / "bench_conv3x3").exists(), "no emulator build")
class WithTheRealBench(unittest.TestCase):
    def test_its_partial_files_and_names_are_understood(self):
        with tempfile.TemporaryDirectory() as folder:
            options = record._parse(["--set", "ci", "--version", "1", "--dtype", "fp32,bf16", "--results", folder])
            programs = {"conv3x3/fprop": ROOT / "build" / "emulator" / "bench_conv3x3"}
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                status = record.Recording(options, programs, Path(folder), [], lambda: None).run()
            self.assertEqual(status, 0)
            (file,) = (Path(folder) / "emulator").glob("*.json")
            made = ladder_records.load(file)
            self.assertEqual({result.status for result in made.results}, {"PASS"})
            self.assertEqual({result.dtype for result in made.results}, {"fp32", "bf16"})


if __name__ == "__main__":
    unittest.main()
