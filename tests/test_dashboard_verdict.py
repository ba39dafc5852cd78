"""The top of the dashboard: what the newest comparison says."""

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
        raw = dashboard_records.record(f"2026-03-{day:02d}T00:00:00Z", f"{day:040x}", [
            dashboard_records.result(version, problem, time, rng) for version, time in seconds.items()])
        raw["environment"]["device"]["uuid"] = uuid
        dashboard_records.write(self.root, f"2026-03-{day:02d}.json", raw)

    def live(self, day, **counts):
        sides = {name: {"name": name, "commit": name * 40, "dirty": name == "b"} for name in "ab"}
        raw = {"schema": "ladder.comparison/1", "mode": "live", "counts": counts, **sides,
               "comparisons": [{"path": "toy/fprop"}]}
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
        self.assertIn("15 kernels compared (live, bbbbbbb+ beside aaaaaaa in turn, toy/fprop): 2 slower than before, "
                      "8 unchanged, 5 too noisy to tell.", self.text())
        self.assertNotIn("<ul class=\"strip\">", self.text())
        broken = self.root / "results" / "h200" / "2026-03-05_b_compare-live.json"
        broken.write_text('{"schema": "ladder.comparison/1"}')
        self.assertIn("not a live comparison", self.built()["bad"][0]["reason"])


if __name__ == "__main__":
    unittest.main()
