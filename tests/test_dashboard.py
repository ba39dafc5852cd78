"""The dashboard without a browser: steps, packing, what is shown of good and bad records, and the command line."""

import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import dashboard_records  # noqa: E402
from cli.errors import Failure, UsageError  # noqa: E402
from dashboard import ideas, library, pack  # noqa: E402
from records import record_files  # noqa: E402
from registry import listing  # noqa: E402

MOST_BYTES = 2_000_000


class Pack(unittest.TestCase):
    def test_times_are_within_the_promise(self):
        rng = random.Random(1)
        for _ in range(2000):
            time = 10 ** rng.uniform(-9, 2)
            self.assertLess(abs(pack.seconds(pack.step(time)) / time - 1), 0.00025)
        self.assertIsNone(pack.seconds(pack.step(None)))

    def test_json_has_no_word_for_nan(self):
        with self.assertRaises(ValueError):
            pack.text({"time": float("nan")})


class Ideas(unittest.TestCase):
    def test_header(self):
        fields = listing.header(
            "// Idea:   one thing\n//         and more.\n// Parent: v05.\n// Why:    it helps.\n\n// Idea: not this\n"
        )
        self.assertEqual(fields, {"idea": "one thing and more.", "parent": 5, "why": "it helps."})
        self.assertEqual(listing.header("// Parent: none.\n"), {"parent": None})

    def test_a_path_is_a_layer_and_a_pass(self):
        for path in ("../../etc", "a/../../b", "/etc/x", "conv3x3"):
            self.assertEqual(ideas.of_ladder(ROOT, path), {})
            self.assertEqual(ideas.shapes(ROOT, path.rsplit("/", 1)[0] if path.count("/") > 1 else ".."), {})

    def test_every_version_says_its_idea(self):
        for file in ROOT.glob("dev/*/*/v*.cu"):
            fields = listing.header(file.read_text(encoding="utf-8"))
            self.assertTrue(fields.get("idea") and fields.get("why") and "parent" in fields, file)


class Model(dashboard_records.Tree):
    def test_steps_and_changes(self):
        self.grown(10)
        stepped = self.series(2, dashboard_records.PROBLEMS[0])
        self.assertEqual([record for record, _, _ in stepped["steps"]], [5])
        self.assertEqual(
            [(record, breaks, names) for record, breaks, names, _ in stepped["changes"]], [(7, True, "driver")]
        )
        self.assertEqual(stepped["changes"][0][3], "driver 13.0 → 13.1")

    def test_no_step_across_another_driver(self):
        self.grown(0)
        for day in range(8):
            raw = dashboard_records.record(
                f"2026-01-0{day + 1}T00:00:00Z",
                f"{day:040x}",
                [
                    dashboard_records.result(
                        1, dashboard_records.PROBLEMS[0], 1e-5 if day < 4 else 2e-5, random.Random(day)
                    )
                ],
                driver="13.0" if day < 4 else "13.1",
            )
            dashboard_records.write(self.root, f"{day}.json", raw)
        self.assertEqual(self.built()["series"][0]["steps"], [])

    def test_what_was_not_judged_is_not_shown(self):
        self.grown(2)
        problem, rng = dashboard_records.PROBLEMS[0], random.Random(1)
        unchecked = dashboard_records.result(1, problem, 1e-9, rng)
        unchecked["verdict"]["status"] = "UNCHECKED"
        only_checked = dashboard_records.result(2, problem, 1e-5, rng, times=None)
        raw = dashboard_records.record("2026-02-01T00:00:00Z", "f" * 40, [unchecked, only_checked])
        dashboard_records.write(self.root, "later.json", raw)
        data = self.built()
        for version in (1, 2):
            self.assertEqual(self.series(version, problem, data)["record"], 1)
            self.assertIsNotNone(self.series(version, problem, data)["times"])

    def test_a_later_failure_takes_the_time_away(self):
        self.grown(2)
        failed = dashboard_records.result(
            1, dashboard_records.PROBLEMS[0], 0, random.Random(1), status="FAIL", reason="wrong"
        )
        dashboard_records.write(
            self.root, "later.json", dashboard_records.record("2026-02-01T00:00:00Z", "f" * 40, [failed])
        )
        series = self.series(1, dashboard_records.PROBLEMS[0])
        self.assertEqual((series["status"], series["times"], series["verdict"]["status"]), ("FAIL", None, "MISSING"))

    def test_registers_come_from_the_record(self):
        self.grown(1)
        self.assertEqual(
            self.series(2, dashboard_records.PROBLEMS[0])["kernels"], {"registers": 62, "smem": 2048, "spills": 0}
        )

    def test_a_pass_waits_for_memory_by_its_arithmetic(self):
        """Never by its name, and not for a few of its shapes."""
        problems = [f"n{at} c64 bf16" for at in range(1, 11)]
        moving, size, rng = 4.8e6 / 4.8e12, {"min_read_bytes": 2.4e6, "min_write_bytes": 2.4e6}, random.Random(1)
        for path, rooflines, bound in (
            (dashboard_records.NORM, 10 * [2 * moving], False),
            ("conv3x3/fprop", 10 * [moving], True),
            ("conv3x3/fprop", 9 * [moving] + [2 * moving], True),
            ("conv3x3/fprop", 8 * [moving] + 2 * [2 * moving], False),
            ("conv3x3/fprop", 10 * [0], False),
            ("conv3x3/fprop", [moving] + 9 * [0], True),
        ):
            with self.subTest(path=path, rooflines=rooflines):
                raw = dashboard_records.record(
                    "2026-01-01T00:00:00Z",
                    "a" * 40,
                    [
                        dashboard_records.result(1, problem, 1e-5, rng, path=path, roofline_seconds=roofline, **size)
                        for problem, roofline in zip(problems, rooflines)
                    ],
                )
                dashboard_records.write(self.root, "a.json", raw)
                self.assertEqual({one["memoryBound"] for one in self.built()["series"]}, {bound})

    def test_passes_are_judged_one_by_one(self):
        dashboard_records.with_norm(self.grown(2))
        data = self.built()
        self.assertEqual({one["path"] for one in data["series"] if one["memoryBound"]}, {dashboard_records.NORM})
        self.assertEqual(self.series(2, next(iter(dashboard_records.NORM_BYTES)), data)["streaming"], 9.6e-6)

    def test_libraries_are_named_once(self):
        self.grown(0)
        rng = random.Random(1)
        results = [
            dashboard_records.moving(1, next(iter(dashboard_records.NORM_BYTES)), 1e12, rng),
            dashboard_records.result(1, dashboard_records.PROBLEMS[0], 1e-5, rng),
        ]
        dashboard_records.write(
            self.root, "a.json", dashboard_records.record("2026-01-01T00:00:00Z", "a" * 40, results)
        )
        self.assertEqual(self.built()["records"][0]["library"], "PyTorch 2.11.0, cuDNN 9.19.0")

    def test_profiles(self):
        self.grown(1)
        folder = self.root / "results" / "h200" / "profiles"
        folder.mkdir()
        (folder / "good.json").write_text(json.dumps(dashboard_records.PROFILE))
        (folder / "cut.json").write_text(json.dumps(dashboard_records.PROFILE)[:200])
        (folder / "other.json").write_text(json.dumps({**dashboard_records.PROFILE, "schema": "ladder.profile/9"}))
        data = self.built()
        self.assertEqual([profile["path"] for profile in data["profiles"]], ["toy/fprop"])
        self.assertEqual(data["profiles"][0]["total"]["duration"]["value"], 16.25e-6)
        self.assertEqual(data["profiles"][0]["kernels"][0]["grid"], "132")
        self.assertEqual(
            [entry["file"] for entry in data["bad"]], ["h200/profiles/cut.json", "h200/profiles/other.json"]
        )


class BadRecords(dashboard_records.Tree):
    def setUp(self):
        super().setUp()
        self.grown(3)
        self.newest = sorted((self.root / "results" / "h200").glob("*.json"))[-1]

    def reasons(self):
        data = self.built()
        self.assertEqual({one["record"] for one in data["series"]}, {1})  # the one before the broken one
        return [(entry["file"], entry["reason"]) for entry in data["bad"]]

    def test_truncated(self):
        self.newest.write_text(self.newest.read_text()[:5000])
        ((file, reason),) = self.reasons()
        self.assertEqual(file, f"h200/{self.newest.name}")
        self.assertIn("not a record", reason)

    def test_tampered(self):
        self.newest.write_text(self.newest.read_text().replace('"dirty":false', '"dirty":true'))
        ((_, reason),) = self.reasons()
        self.assertIn("checksum", reason)

    def test_a_median_of_other_samples(self):
        raw = json.loads(self.newest.read_text())
        raw["results"][0]["times"]["cold_seconds"]["median"] *= 0.5
        self.newest.write_text(record_files.text_of(raw))  # with a checksum that fits
        ((_, reason),) = self.reasons()
        self.assertIn("samples say", reason)

    def test_it_is_said_and_shown(self):
        self.newest.write_text("{")
        status, said = self.run_tool()
        self.assertEqual(status, 0)
        self.assertIn(f"not shown: h200/{self.newest.name}: ", said)
        text = (self.root / "results" / "index.html").read_text()
        self.assertIn('<aside class="bad"', text)
        self.assertIn("1 record is not shown", text)
        self.assertEqual(self.run_tool("--strict")[0], 1)


class Page(dashboard_records.Tree):
    def text(self):
        self.assertEqual(self.run_tool()[0], 0)
        return (self.root / "results" / "index.html").read_text()

    def test_the_same_records_give_the_same_page(self):
        self.grown(3)
        first = self.text()
        for file in (self.root / "results").glob("*/*.json"):
            os.utime(file, (1, 1))
        self.assertEqual(self.text(), first)

    def test_nothing_is_loaded_from_outside(self):
        self.grown(2)
        text = self.text()
        own = text.replace(library.source(), "")
        self.assertEqual(re.findall(r"(?:src|action)\s*=|@import|url\(|<iframe|<object|import\(", own), [])
        targets = re.findall(r'href="([^"]*)"', own)
        self.assertEqual([target for target in targets if not target.startswith(("#", "data:,"))], [])
        self.assertIn("default-src 'none'", own)

    def test_the_table_is_there_without_scripts(self):
        self.grown(2)
        text = self.text()
        rows = re.search(r'<table id="table">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)[1]
        self.assertEqual(rows.count("<tr>"), 9)
        self.assertIn("<noscript>", text)
        self.assertIn("SKIP", rows)
        self.assertRegex(rows, r"<td class=n>6\.\d\d</td>|<td class=n>15\.\d</td>")

    def table(self):
        """[{heading: text}] of the table of results."""
        heads, rows = re.search(
            r'<table id="table">.*?<thead>(.*?)</thead>.*?<tbody>(.*?)</tbody>', self.text(), re.DOTALL
        ).groups()
        names = re.findall(r"<th[^>]*>(.*?)</th>", heads)
        found = []
        for row in re.findall(r"<tr>(.*?)</tr>", rows):
            cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            self.assertEqual(len(cells), len(names))
            found.append(dict(zip(names, cells)))
        return found

    def test_what_waits_for_memory_has_its_rate_in_bytes(self):
        dashboard_records.with_norm(self.grown(2))
        rows = self.table()
        norm = [row for row in rows if row["kernel"].startswith(dashboard_records.NORM)]
        conv = [row for row in rows if row not in norm]
        self.assertEqual([len(norm), len(conv)], [6, 9])
        for row in norm:
            v02 = "v02" in row["kernel"]
            self.assertAlmostEqual(float(row["GB/s"]), 3075 if v02 else 1025, delta=6)
            self.assertIn(row["copy, %"], ("74.9", "75.0", "75.1") if v02 else ("25.0", "25.1"))
            self.assertAlmostEqual(float(row["streaming, %"]), 100 * (3.075 if v02 else 1.025) / 3.5, delta=0.2)
            self.assertEqual(row["TFLOP/s"], "")
        for row in conv:
            self.assertEqual((row["GB/s"], row["copy, %"], row["streaming, %"]), ("", "", ""))
            self.assertEqual(row["TFLOP/s"] == "", row["check"] == "SKIP")

    def test_a_rate_that_no_kernel_has_is_no_column(self):
        self.grown(2)
        self.assertEqual({"TFLOP/s", "GB/s", "copy, %", "streaming, %"} & set(self.table()[0]), {"TFLOP/s"})
        self.assertNotIn("Streaming:", self.text())
        for file in (self.root / "results").glob("*/*.json"):
            file.unlink()
        dashboard_records.with_norm(self.root, streaming=None)  # as in an older record
        self.assertEqual({"TFLOP/s", "GB/s", "copy, %", "streaming, %"} & set(self.table()[0]), {"GB/s", "copy, %"})
        (file,) = (self.root / "results").glob("*/*.json")
        file.write_text(record_files.text_of({**json.loads(file.read_text()), "calibration": None}))
        self.assertEqual({"TFLOP/s", "GB/s", "copy, %", "streaming, %"} & set(self.table()[0]), {"GB/s"})

    def test_the_license_stays(self):
        self.grown(1)
        self.assertIn("Permission is hereby granted", self.text())

    def test_words_of_records_are_inert(self):
        self.grown(0)
        evil = "<script>alert(1)</script>"
        made = dashboard_records.result(1, f"n1 {evil} fp32", 1e-5, random.Random(1), idea=evil, command=evil)
        raw = dashboard_records.record("2026-01-01T00:00:00Z", evil, [made])
        raw["environment"]["device"]["name"] = evil
        dashboard_records.write(self.root, "a.json", raw)
        dashboard_records.write(self.root, f"{evil.replace('/', '')}.json", {"schema": "ladder.record/9"})
        text = self.text()
        self.assertNotIn("alert(1)</", text)
        self.assertIn("&lt;script&gt;", text)

    def test_without_records_it_says_how_to_make_one(self):
        self.grown(0)
        text = self.text()
        self.assertIn("No record yet", text)
        self.assertIn("./ladder record", text)

    def test_size_of_500_series_by_500_records(self):
        self.assertLess(len(dashboard_records.large_page().encode()), MOST_BYTES)


class CommandLine(dashboard_records.Tree):
    def test_check(self):
        self.grown(2)
        self.assertEqual(self.run_tool("--check")[0], 1)
        self.run_tool()
        self.assertEqual(self.run_tool("--check"), (0, ""))
        with self.subTest("another idea"):
            file = next((self.root / "dev").glob("*/*/v02*.cu"))
            before = file.read_text()
            file.write_text(before.replace("tiled", "other"))
            self.assertEqual(self.run_tool("--check")[0], 1)
            file.write_text(before + "// a comment below\n")
            self.assertEqual(self.run_tool("--check")[0], 0)
        with self.subTest("a version without a record"):
            (self.root / "dev" / "toy" / "fprop" / "v04_new.cu").write_text("// Idea: a new one\n")
            self.assertEqual(self.run_tool("--check")[0], 0)
        with self.subTest("another name of a shape"):
            file = self.root / "dev" / "toy" / "shapes.txt"
            before = file.read_text()
            file.write_text(before.replace("low:", "bottom:"))
            self.assertEqual(self.run_tool("--check")[0], 1)
            file.write_text(before)
        with self.subTest("another promotion"):
            file = self.root / "runtime" / "promoted" / "h200.txt"
            file.parent.mkdir(parents=True)
            file.write_text("# none\n")
            self.assertEqual(self.run_tool("--check")[0], 1)
            file.unlink()
            self.assertEqual(self.run_tool("--check")[0], 0)
        with self.subTest("another record"):
            dashboard_records.write(self.root, "later.json", dashboard_records.of_day(2, 3))
            status, said = self.run_tool("--check")
            self.assertEqual(status, 1)
            self.assertIn("run ./ladder dashboard", said)
        self.assertIn("ladder-inputs", (self.root / "results" / "index.html").read_text())

    def test_wrong_usage(self):
        self.grown(1)
        for arguments in (["--frobnicate"], ["--out", str(self.root / "no" / "such" / "folder.html")]):
            with self.assertRaises(UsageError) as raised:
                self.run_tool(*arguments)
            self.assertEqual(len(str(raised.exception).splitlines()), 1)

    def test_an_unfinished_page_replaces_nothing(self):
        self.grown(1)
        self.run_tool()
        out = self.root / "results" / "index.html"
        before = out.read_text()
        kept, library.source = library.source, self.no_library
        try:
            with self.assertRaises(Failure):
                self.run_tool()
        finally:
            library.source = kept
        self.assertEqual(out.read_text(), before)
        self.assertEqual([file.name for file in out.parent.iterdir() if file.name.startswith(".")], [])

    @staticmethod
    def no_library():
        raise Failure("no network")


class Library(unittest.TestCase):
    def test_only_the_pinned_file_is_taken(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertIsNone(library._checked(b"alert(1)"))
        self.assertIn("checksum", said.getvalue())

    def test_an_earlier_page_holds_it(self):
        text = library.source()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "index.html"
            file.write_text(f"<html>{library.embedded(text)}<script>more</script>", encoding="utf-8")
            self.assertEqual(library._out_of(file), text)


if __name__ == "__main__":
    unittest.main()
