"""The top of the dashboard: what the newest comparison says, and how the promoted versions stand beside the library."""

import json
import random
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import dashboard_records  # noqa: E402
from dashboard import model  # noqa: E402

TOP, LOW, LOW_FP32 = dashboard_records.PROBLEMS


class Top(dashboard_records.Tree):
    def text(self):
        self.assertEqual(self.run_tool()[0], 0)
        return (self.root / "results" / "index.html").read_text()

    def headline(self):
        return re.search(r"<h1>(.*?)</h1>", self.text())[1]

    def measure(self, day, seconds, uuid="GPU-1", problem=TOP):
        """A record of {version: its time}."""
        rng = random.Random(day)
        raw = dashboard_records.record(
            f"2026-03-{day:02d}T00:00:00Z",
            f"{day:040x}",
            [dashboard_records.result(version, problem, time, rng) for version, time in seconds.items()],
        )
        raw["environment"]["device"]["uuid"] = uuid
        dashboard_records.write(self.root, f"2026-03-{day:02d}.json", raw)

    def live(self, day, **counts):
        sides = {name: {"name": name, "commit": name * 40, "dirty": name == "b"} for name in "ab"}
        raw = {
            "schema": "ladder.comparison/1",
            "mode": "live",
            "counts": counts,
            **sides,
            "comparisons": [{"path": "toy/fprop"}],
        }
        (self.root / "results" / "h200" / f"2026-03-{day:02d}_b_compare-live.json").write_text(json.dumps(raw))


class NewestComparison(Top):
    def test_newest_against_the_one_before(self):
        self.grown(10)
        data = self.built()
        slow = self.series(3, LOW, data)
        self.assertEqual(slow["verdict"]["status"], "SLOW")
        self.assertAlmostEqual(slow["verdict"]["ratio"], 1.08, delta=0.01)
        self.assertEqual(self.series(2, TOP, data)["verdict"]["status"], "SAME")
        self.assertEqual(self.series(3, LOW_FP32, data)["verdict"]["status"], model.UNTIMED)
        self.assertEqual(self.headline(), "1 kernel became slower on 2026-01-10.")
        self.assertIn("8 kernels compared (records): 1 slower than before, 7 unchanged.", self.text())

    def test_one_record_is_compared_with_nothing(self):
        self.grown(1)
        self.assertEqual({one["verdict"]["status"] for one in self.built()["series"]}, {model.FIRST})
        self.assertEqual(self.headline(), "Nothing to compare yet: no kernel has two records of one card.")

    def test_another_card_is_no_regression(self):
        self.grown(0)
        self.measure(1, {1: 1e-5})
        self.measure(2, {1: 2e-5}, uuid="GPU-2")
        self.assertEqual(self.series(1, TOP)["verdict"]["status"], model.FIRST)
        self.measure(3, {1: 1e-5})
        back = self.series(1, TOP)
        self.assertEqual((back["verdict"]["status"], back["timed"]), ("SAME", [0, 2]))

    def test_older_comparisons_are_no_news(self):
        self.grown(0)
        self.measure(1, {1: 1e-5, 2: 1e-5})
        self.measure(2, {1: 2e-5})
        self.assertEqual(self.headline(), "1 kernel became slower on 2026-03-02.")
        self.measure(3, {2: 1e-5})
        self.assertEqual(self.headline(), "No kernel became slower on 2026-03-03.")
        older = self.series(1, TOP)["verdict"]
        self.assertEqual((older["status"], older["reason"]), (model.OLDER, "SLOW on 2026-03-02"))

    def test_a_live_comparison_counts_where_it_is_the_newest(self):
        self.grown(0)
        self.measure(1, {1: 1e-5})
        self.measure(3, {1: 2e-5})
        self.live(2, SLOW=0, AMBIGUOUS=5)
        self.assertEqual(self.headline(), "1 kernel became slower on 2026-03-03.")
        self.live(4, SLOW=2, SAME=8, AMBIGUOUS=5)
        self.assertEqual(self.headline(), "2 kernels became slower on 2026-03-04.")
        self.assertIn(
            "15 kernels compared (live, bbbbbbb+ beside aaaaaaa in turn, toy/fprop): 2 slower than before, "
            "8 unchanged, 5 too noisy to tell.",
            self.text(),
        )
        self.assertNotIn('<ul class="strip">', self.text())
        broken = self.root / "results" / "h200" / "2026-03-05_b_compare-live.json"
        broken.write_text('{"schema": "ladder.comparison/1"}')
        self.assertIn("not a live comparison", self.built()["bad"][0]["reason"])


class Standing(Top):
    def rows(self):
        """{"toy/fprop bf16": texts of its cells}"""
        found = {}
        for table in re.findall(r'<table class="standing">.*?<tbody>(.*?)</tbody>', self.text(), re.DOTALL):
            for row in re.findall(r"<tr .*?</tr>", table):
                name, *cells = (
                    " ".join(re.sub("<[^>]*>", " ", cell).split())
                    for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
                )
                found[name] = cells
        return found

    def promote(self, *lines):
        file = self.root / "runtime" / "promoted" / "h200.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"toy/fprop  {line}\n" for line in lines))

    def test_what_is_promoted_over_all_problems(self):
        self.grown(1)
        self.promote(
            f"{TOP}  v02_tiled  10.0 us warm  50.0 cold  cuDNN  60.0 warm  aaaaaaa",
            f"{LOW}  v03_wgmma  50.0 us warm  30.0 cold  PyTorch  30.0 cold  bbbbbbb",
            "n8 h8 w8 c256 k256 bf16  v01_naive  1.00 us warm  1.00 cold  cuDNN  99.0 warm  ccccccc",
            f"{LOW_FP32}  v01_naive  10.0 us warm  10.0 cold  -  -  ddddddd",
        )
        self.assertEqual(
            self.rows(),
            {
                "toy/fprop bf16": [
                    "2.25",
                    "1.00 to 6.00",
                    "2 of 2",
                    "40",
                    "90",
                    "1 × v02 tiled, 1 × v03 wgmma",
                    "PyTorch or cuDNN",
                    "aaaaaaa bbbbbbb",
                ],
                "toy/fprop fp32": ["1 × v01 naive"],
            },
        )

    def test_the_problem_of_the_unet_has_a_bias(self):
        self.grown(1)
        shapes = self.root / "dev" / "toy" / "shapes.txt"
        shapes.write_text(shapes.read_text() + "[unet_bias]\ntop_bias: n32 h64 w64 c64 k64 bias\n")
        bias = TOP.replace(" bf16", " bias bf16")
        without = f"{TOP}  v01_naive  20.0 us warm  20.0 cold  cuDNN  40.0 warm  aaaaaaa"
        self.promote(without, f"{bias}  v02_tiled  10.0 us warm  10.0 cold  cuDNN  50.0 warm  bbbbbbb")
        self.assertEqual(
            self.rows()["toy/fprop bf16"][:1] + self.rows()["toy/fprop bf16"][2:6],
            ["5.00", "1 of 1", "10", "50", "1 × v02 tiled"],
        )
        self.promote(without, f"{bias}  v02_tiled  10.0 us warm  10.0 cold  -  -  bbbbbbb")
        self.assertEqual(
            self.rows()["toy/fprop bf16"][:1] + self.rows()["toy/fprop bf16"][2:6],
            ["2.00", "1 of 1 without bias", "20", "40", "1 × v02 tiled"],
        )

    def test_a_few_problems_are_no_figure_of_a_ladder(self):
        self.grown(1)
        others = [f"n32 h{at} w8 c256 k256" for at in (9, 10)]
        shapes = self.root / "dev" / "toy" / "shapes.txt"
        shapes.write_text(shapes.read_text() + "".join(f"x{shape.split()[1]}: {shape}\n" for shape in others))
        self.promote(
            f"{TOP}  v03_wgmma  10.0 us warm  10.0 cold  cuDNN  90.0 warm  aaaaaaa",
            *(f"{shape} bf16  v03_wgmma  10.0 us warm  10.0 cold  -  -  aaaaaaa" for shape in others),
        )
        self.assertEqual(self.rows()["toy/fprop bf16"][:3], ["–", "9.00 to 9.00", "1 of 3"])

    def test_not_promoted_the_version_with_most_problems_stands(self):
        self.grown(1)
        dashboard_records.with_norm(self.root)
        for at in range(3):  # v09 is the fastest, of one problem; v03 has no fp32
            self.measure(1 + at, {3: 1.5e-5, 2: 4e-5}, problem=f"n32 h{9 + at} w8 c256 k256 bf16")
        self.measure(9, {9: 1e-6})
        rows = self.rows()
        ratio, span, *cells = rows["toy/fprop bf16"]
        self.assertEqual(cells[0], "5 of 5")
        self.assertEqual(cells[3:5], ["5 × v03 wgmma recorded, not promoted", "cuDNN 9.19.0"])
        self.assertAlmostEqual(float(ratio), 20 / 15, delta=0.05)
        self.assertIn("v02 tiled", rows["toy/fprop fp32"][5])
        self.assertEqual(
            rows[f"{dashboard_records.NORM} bf16"][5:7], ["3 × v02 one pass recorded, not promoted", "PyTorch 2.11.0"]
        )


if __name__ == "__main__":
    unittest.main()
