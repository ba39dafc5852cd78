"""./ladder record with a bench program that is a script: parts, interruption, resumption, what is never overwritten, and
which versions have no record."""

import contextlib
import copy
import io
import json
import os
import re
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import made_records  # noqa: E402
from cli import device, record  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402
from records import record_files  # noqa: E402
from registry import listing  # noqa: E402

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
def word(flag, otherwise=None):
    return words[words.index(flag) + 1] if flag in words else otherwise
if word("--set") == "ci":
    print("bench: unknown set: ci", file=sys.stderr)
    sys.exit(2)
results = [r for r in made["results"] if word("--dtype") in (None, r["dtype"]) and word("--pass") == r["pass"]
           and word("--version") in ("all", str(r["version"]))]
if "--benchmark_list_tests" in words:
    for r in results:
        print(f"toy/{{r['pass']}}/v{{r['version']:02d}}_{{r['idea']}}/{{r['problem']}}/iterations:1/manual_time")
    sys.exit(0)
file = Path(word("--record"))
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


SHAPES = """\
[ci]
small: n1 c16
[perf]
top:   n32 c64
[unet]
res64: n32 c64
"""


class Toy(unittest.TestCase):
    """A tree with the layer toy, whose pass fprop has v01 to v03."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.results = self.root / "results"
        for number in (1, 2, 3):
            self.add_version("fprop", number)
        (self.root / "dev" / "toy" / "shapes.txt").write_text(SHAPES)
        self.bench = self.root / "build" / "bench_toy"
        self.bench.parent.mkdir()
        self.bench.write_text(textwrap.dedent(BENCH).format(python=sys.executable))
        self.bench.chmod(0o755)
        self.set_up(
            [
                made_records.result(1, 200e-6),
                made_records.result(2, 50e-6),
                made_records.result(1, 300e-6, "n32 c64 fp32"),
            ]
        )

    def add_version(self, pass_name, number, dtypes=("f32", "bf16")):
        file = self.root / "dev" / "toy" / pass_name / f"v{number:02d}_idea_{number}.cu"
        file.parent.mkdir(parents=True, exist_ok=True)
        named = ", ".join(f"ladder::Dtype::{dtype}" for dtype in dtypes)
        file.write_text(f"LADDER_VERSION(toy::Pass, {{.launch = launch, .dtypes = {{{named}}}}})\n")

    def set_up(self, results, patience=99, **fields):
        made_records.write(self.bench.parent / "record.json", made_records.record(results, **fields))
        self.set_patience(patience)

    def set_patience(self, patience):
        (self.bench.parent / "patience").write_text(str(patience))

    def calls(self):
        return [json.loads(line) for line in (self.bench.parent / "calls").read_text().splitlines()]

    def files(self):
        return sorted(file.name for file in (self.results / "h200").iterdir())

    def only_record(self):
        (name,) = self.files()
        return record_files.load(self.results / "h200" / name)


class Recording(Toy):
    def record(self, *arguments):
        """(exit status, stdout)"""
        options = record._parse([*arguments, "--results", str(self.results)])
        there = listing.read(self.root)
        parts = record._parts(options, there, record._chosen(options, there))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            recording = record.Recording(
                options,
                parts,
                {"toy/fprop": self.bench},
                self.results,
                [{"registers": 1}],
                lambda: {"temperature.gpu": "40"},
            )
            status = recording.run()
        return status, out.getvalue()

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
        self.set_patience(99)
        self.assertEqual(self.record("--resume")[0], 0)
        self.assertEqual([result.version for result in self.only_record().results], [1, 2, 3])
        measured = [call for call in self.calls() if "--record" in call]
        self.assertEqual(
            [("--resume" in call, call[call.index("--seed") + 1]) for call in measured], [(False, "7"), (True, "7")]
        )

    def test_parts_that_were_whole_are_not_measured_again(self):
        self.set_up(
            [
                made_records.result(1, 200e-6),
                made_records.result(1, 300e-6, "n32 c64 fp32"),
                made_records.result(2, 300e-6, "n32 c64 fp32"),
            ],
            patience=1,
        )
        with self.assertRaises(Failure):
            self.record("--dtype", "bf16,fp32")
        self.set_patience(99)
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
        with self.assertRaisesRegex(UsageError, "unknown set: ci"):
            self.record("--set", "ci")
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


class Missing(Toy):
    """--missing as a user calls it, on a machine without a GPU or with one."""

    def setUp(self):
        super().setUp()
        self.add_version("dgrad", 1, ("f32",))
        self.built = []
        self.on_gpu(None)
        for patch in (
            mock.patch.object(record.paths, "ROOT", self.root),
            mock.patch.object(record.setup, "ensure", lambda preset: False),
            mock.patch.object(record.build, "folder", lambda preset: self.bench.parent),
            mock.patch.object(record.build, "build", lambda preset, targets: self.built.append(targets)),
            mock.patch.object(record.resources, "collect", lambda folder: ([], None)),
            mock.patch.object(record, "read_machine", lambda: None),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def on_gpu(self, model):
        found = (device._Gpu(model, 90), "") if model else (None, "no GPU: for a test")
        patch = mock.patch.object(device, "_first", lambda: found)
        patch.start()
        self.addCleanup(patch.stop)

    def recorded(self, *results, folder="h200", name="a.json", **fields):
        made_records.write(self.results / folder / name, made_records.record(list(results), **fields))

    def ladder(self, *arguments):
        """(exit status, lines of stdout, lines of stderr)"""
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            status = record.main([*arguments, "--results", str(self.results)])
        return status, out.getvalue().splitlines(), said.getvalue().splitlines()

    def list(self, *arguments):
        """{pass: the other cells of its row} and the last line"""
        status, out, said = self.ladder("--missing", "--list", *arguments)
        self.assertEqual((status, said, self.built), (0, [], []))
        return {row[0]: row[1:] for row in (re.split(r" {2,}", line) for line in out[1:-2])}, out[-1]

    def refused(self, says, *arguments):
        with self.assertRaises(UsageError) as caught:
            self.ladder(*arguments)
        self.assertEqual(len(str(caught.exception).splitlines()), 1)
        self.assertIn(says, str(caught.exception))

    def measured(self):
        """Of each run that measured: its pass, version, set or problem, and dtype."""

        def word(call, flag):
            return call[call.index(flag) + 1] if flag in call else None

        return [
            (
                word(call, "--pass"),
                word(call, "--version"),
                word(call, "--set") or word(call, "--problem"),
                word(call, "--dtype"),
            )
            for call in self.calls()
            if "--record" in call
        ]

    def test_the_list_is_a_line_a_pass_and_one_of_counts(self):
        self.recorded(made_records.result(2, 50e-6))
        status, out, said = self.ladder("--missing", "--list")
        self.assertEqual((status, said), (0, []))
        self.assertEqual(
            out[:-1],
            [
                "pass       recorded  not recorded  recorded, but not in",
                "toy/dgrad  0 of 1    v01           -",
                "toy/fprop  1 of 3    v01 v03       fp32 v02",
                "",
            ],
        )
        self.assertEqual(
            out[-1],
            "3 of 4 versions have no record on h200; run ./ladder record --missing --results "
            f"{self.results}; recorded, but not in a dtype of theirs: 1 (--dtype fp32)",
        )
        self.assertEqual([file.name for file in self.results.rglob("*.json*")], ["a.json"])

    def test_only_what_passed_on_that_gpu_is_a_record(self):
        self.recorded(
            made_records.result(1, None, status="FAIL", reason="wrong"),
            made_records.result(2, None, status="SKIP", reason="odd"),
            made_records.result(3, 50e-6),
        )
        self.recorded(made_records.result(1, 50e-6), folder="h100")
        self.recorded(made_records.result(1, 50e-6), kind="emulator", name="b.json")
        self.recorded(made_records.result(1, 50e-6), kind="emulator", folder="emulator")
        self.assertEqual(self.list("toy/fprop", "--device", "h200")[0]["toy/fprop"][:2], ["1 of 3", "v01 v02"])
        self.assertEqual(self.list("toy/fprop", "--device", "h100")[0]["toy/fprop"][:2], ["1 of 3", "v02 v03"])

    def test_one_result_that_passed_is_enough(self):
        self.recorded(made_records.result(1, None, "n1 c1 bf16", status="FAIL"), made_records.result(1, 50e-6))
        self.recorded(made_records.result(1, None, status="FAIL"), name="b.json", created="2026-02-01T00:00:00Z")
        self.assertEqual(self.list("toy/fprop")[0]["toy/fprop"][1], "v02 v03")

    def test_a_record_that_contradicts_itself_is_named_and_does_not_count(self):
        self.recorded(made_records.result(1, 50e-6))
        self.recorded(made_records.result(2, 50e-6), name="b.json", sha256="0" * 64)
        _, out, said = self.ladder("--missing", "--list", "toy/fprop")
        self.assertRegex("\n".join(said), r"^ladder: not counted: .*b\.json: changed since it was written[^\n]*$")
        self.assertIn("v02 v03", out[1])

    def test_each_dtype_is_asked_about_by_itself(self):
        self.recorded(made_records.result(1, 50e-6), made_records.result(2, 50e-6, "n32 c64 fp32"))
        rows, last = self.list("--dtype", "bf16,fp32")
        self.assertEqual(
            rows, {"toy/dgrad": ["-", "-", "0 of 1", "v01"], "toy/fprop": ["1 of 3", "v02 v03", "1 of 3", "v01 v03"]}
        )
        self.assertIn(
            "5 of 7 versions, counted in each dtype, have no record on h200 in bf16, fp32; run ./ladder record "
            "--missing --dtype bf16,fp32 ",
            last,
        )
        self.assertNotIn("recorded, but", last)
        self.assertIn("v02 v03", self.list("toy/fprop", "--problem", "n1 c1 bf16")[0]["toy/fprop"])
        self.refused("no version that was asked for has fp16", "--missing", "--list", "--dtype", "fp16")

    def test_a_version_that_names_no_dtypes_may_have_any(self):
        self.add_version("fprop", 4, ())
        self.recorded(*(made_records.result(version, 50e-6) for version in (1, 2, 3)))
        self.assertEqual(self.list("toy/fprop", "--dtype", "bf16")[0]["toy/fprop"], ["3 of 4", "v04"])
        self.assertEqual(self.list("toy/fprop", "--version", "4")[0]["toy/fprop"], ["0 of 1", "v04", "-"])

    def test_where_nothing_is_missing_a_line_says_so_without_a_gpu(self):
        self.recorded(*(made_records.result(version, 50e-6) for version in (1, 2, 3)))
        self.assertEqual(
            self.ladder("--missing", "toy/fprop"),
            (
                0,
                [],
                [
                    "ladder: nothing to record: none of 3 versions lacks a record on h200; recorded, but not "
                    "in a dtype of theirs: 3 (--dtype fp32)"
                ],
            ),
        )
        self.assertEqual(
            self.list("toy/fprop", "--dtype", "bf16"),
            ({"toy/fprop": ["3 of 3", "-"]}, "none of 3 versions lacks a record on h200 in bf16"),
        )
        self.assertEqual((self.built, self.files()), ([], ["a.json"]))
        with self.assertRaisesRegex(Failure, "record needs a GPU: no GPU: for a test"):
            self.ladder("--missing")

    def test_what_is_missing_is_recorded_and_nothing_else(self):
        self.on_gpu("NVIDIA H200")
        self.recorded(made_records.result(2, 50e-6), made_records.result(3, 50e-6))
        self.set_up(
            [
                made_records.result(1, 200e-6),
                made_records.result(2, 50e-6),
                made_records.result(3, 50e-6),
                made_records.result(1, 300e-6, "n32 c64 fp32", **{"pass": "dgrad"}),
            ]
        )
        self.assertEqual(self.ladder("--missing")[0], 0)
        self.assertEqual(self.built, [["bench_toy"]])
        self.assertEqual(self.measured(), [("dgrad", "1", "perf", None), ("fprop", "1", "perf", None)])
        (self.results / "h200" / "a.json").unlink()
        self.assertEqual(
            [(result.path, result.version) for result in self.only_record().results],
            [("toy/dgrad", 1), ("toy/fprop", 1)],
        )

    def parts(self, *arguments):
        """Of what would be recorded: pass, dtype, version, and which problems."""
        options = record._parse(["--missing", *arguments, "--results", str(self.results)])
        there = listing.read(self.root)
        chosen = record._chosen(options, there)
        parts = record._parts(options, there, chosen, record._gaps(options, there, chosen, "h200"))
        return [(path, dtype, words[1], *words[2:4]) for path, dtype, words in parts]

    def test_which_problems_and_dtypes_are_run(self):
        self.recorded(made_records.result(2, 50e-6), made_records.result(3, 50e-6, "n32 c64 fp32"))
        self.assertEqual(self.parts("toy/fprop"), [("toy/fprop", None, "1", "--set", "perf")])
        self.assertEqual(self.parts("toy/fprop", "--version", "2-3"), [])
        self.assertEqual(self.parts("toy/fprop", "--set", "unet"), [("toy/fprop", None, "1", "--set", "unet")])
        self.assertEqual(
            self.parts("toy/fprop", "--problem", "n1 c1"), [("toy/fprop", None, "1", "--problem", "n1 c1")]
        )
        self.assertEqual(
            self.parts("--problem", "n1 c1 bf16"), [("toy/fprop", "bf16", "1,3", "--problem", "n1 c1 bf16")]
        )
        self.assertEqual(
            self.parts("--dtype", "bf16,fp32"),
            [
                ("toy/dgrad", "fp32", "1", "--set", "perf"),
                ("toy/fprop", "bf16", "1,3", "--set", "perf"),
                ("toy/fprop", "fp32", "1,2", "--set", "perf"),
            ],
        )
        (self.root / "dev" / "toy" / "shapes.txt").write_text("[unet]\nres64: n32 c64\n")
        self.assertEqual(self.parts("toy/fprop"), [("toy/fprop", None, "1", "--set", "unet")])

    def test_an_interrupted_one_goes_on_with_what_it_had_planned(self):
        self.on_gpu("NVIDIA H200")
        self.set_up(
            [
                made_records.result(1, 200e-6),
                made_records.result(2, 50e-6),
                made_records.result(2, 90e-6, "n32 c64 fp32"),
                made_records.result(1, 300e-6, "n32 c64 fp32", **{"pass": "dgrad"}),
            ],
            patience=1,
        )
        self.recorded(made_records.result(1, 50e-6), made_records.result(3, 50e-6))
        with self.assertRaisesRegex(Failure, "2 of 3 results kept, go on with ./ladder record --resume"):
            self.ladder("--missing")
        (plan,) = self.results.glob("h200/*.partial/plan.json")
        self.assertEqual(
            [[path, dtype, words[:4]] for path, dtype, words in json.loads(plan.read_text())["parts"]],
            [
                ["toy/dgrad", None, ["--version", "1", "--set", "perf"]],
                ["toy/fprop", None, ["--version", "2", "--set", "perf"]],
            ],
        )
        self.recorded(
            made_records.result(2, 50e-6),
            made_records.result(1, 50e-6, "n32 c64 fp32", **{"pass": "dgrad"}),
            name="b.json",
        )
        self.set_patience(99)
        self.assertEqual(self.ladder("--missing", "--resume")[0], 0)
        self.assertEqual(
            self.measured(), [("dgrad", "1", "perf", None), ("fprop", "2", "perf", None), ("fprop", "2", "perf", None)]
        )

    def test_whose_records_count(self):
        self.refused("no GPU here, and ", "--missing", "--list")
        self.recorded(made_records.result(1, 50e-6))
        self.recorded(made_records.result(1, None), kind="emulator", folder="emulator")
        self.assertIn(" on h200;", self.list()[1])
        self.refused(
            "--device h300: no record of it; there are those of: h200", "--missing", "--list", "--device", "h300"
        )
        self.recorded(made_records.result(2, 50e-6), folder="rtx-4090")
        self.refused("records of several GPUs (h200, rtx-4090): choose with --device", "--missing", "--list")
        self.assertIn(" on rtx-4090;", self.list("--device", "rtx-4090")[1])
        self.on_gpu("NVIDIA GeForce RTX 4090")
        self.assertIn(" on rtx-4090;", self.list()[1])
        self.refused("--device h200: the GPU here is rtx-4090", "--missing", "--device", "h200")
        self.on_gpu("NVIDIA H100 PCIe")
        self.assertIn("4 of 4 versions have no record on h100-pcie;", self.list()[1])

    def test_slugs_are_those_of_the_programs(self):
        models = ("NVIDIA H200", "NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-16GB", "NVIDIA A100 80GB PCIe")
        self.assertEqual(
            [device.slug_of(model) for model in models], ["h200", "rtx-4090", "v100-sxm2-16gb", "a100-80gb-pcie"]
        )

    def test_wrong_usage(self):
        self.recorded(made_records.result(1, 50e-6))
        self.refused("--list needs --missing", "--list")
        self.refused("--device needs --missing", "--device", "h200")
        self.refused("--version best exclude each other", "--missing", "--version", "best")
        self.refused("--list and --resume exclude each other", "--missing", "--list", "--resume")
        self.refused("no layer 'tpy'", "--missing", "--list", "tpy")
        self.refused("--set 'prf': toy has ci, perf, unet", "--missing", "--set", "prf")


@unittest.skipUnless((ROOT / "build" / "emulator" / "bench_conv3x3").exists(), "no emulator build")
class WithTheRealBench(unittest.TestCase):
    def test_its_partial_files_and_names_are_understood(self):
        with tempfile.TemporaryDirectory() as folder:
            options = record._parse(["--set", "ci", "--version", "1", "--dtype", "fp32,bf16", "--results", folder])
            there = listing.read(ROOT)
            parts = record._parts(options, there, {"conv3x3/fprop": there.find("conv3x3/fprop").versions})
            programs = {"conv3x3/fprop": ROOT / "build" / "emulator" / "bench_conv3x3"}
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                status = record.Recording(options, parts, programs, Path(folder), [], lambda: None).run()
            self.assertEqual(status, 0)
            (file,) = (Path(folder) / "emulator").glob("*.json")
            made = record_files.load(file)
            self.assertEqual({result.status for result in made.results}, {"PASS"})
            self.assertEqual({result.dtype for result in made.results}, {"fp32", "bf16"})


if __name__ == "__main__":
    unittest.main()
