"""The dashboard in Chromium: what the window's width does to its tables, and how many changes it names."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import dashboard_records  # noqa: E402
import test_dashboard_browser  # noqa: E402

VERSIONS = range(1, 14)


class Layout(test_dashboard_browser.Browser):
    """Thirteen versions on two problems, of which a second record makes 14 kernels slower and 3 faster."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        root = dashboard_records.tree(folder.name, 0)
        for day in (1, 2):
            rng = random.Random(day)
            changes = iter([1.3] * 14 + [0.7] * 3 + [1] * 9)
            results = [
                dashboard_records.result(version, problem, 1e-5 * (next(changes) if day == 2 else 1), rng)
                for problem in dashboard_records.PROBLEMS[:2]
                for version in VERSIONS
            ]
            dashboard_records.write(
                root, f"{day}.json", dashboard_records.record(f"2026-01-0{day}T00:00:00Z", f"{day:040x}", results)
            )
        dashboard_records.with_norm(root, baseline={"library": None, "reason": "there is none"})
        cls.page = test_dashboard_browser.make_page(root)

    def at_width(self, width):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.addCleanup(self.driver.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
        self.open()

    def columns_in_sight(self, table):
        """Whole cells of the first row, its heading aside."""
        return self.driver.execute_script(
            "const table = document.querySelector(arguments[0]);"
            "const right = table.closest('.scroll').getBoundingClientRect().right;"
            "return [...table.tBodies[0].rows[0].cells].slice(1)"
            ".filter((cell) => cell.getBoundingClientRect().right <= right + 1).length",
            table,
        )

    def test_a_wide_window_has_all_versions(self):
        self.at_width(1400)
        self.assertEqual(self.columns_in_sight(".heat"), len(VERSIONS))

    def test_a_narrow_window_has_several_columns(self):
        self.at_width(390)
        self.assertGreaterEqual(self.columns_in_sight(".heat"), 3)
        self.assertGreaterEqual(self.columns_in_sight(".standing"), 3)
        self.assertEqual(self.driver.execute_script("return document.documentElement.scrollWidth"), 390)

    def test_shares_stay_in_their_cells(self):
        self.at_width(1400)
        wider = self.driver.execute_script(
            "return [...document.querySelectorAll('.heat a')].filter((cell) => {"
            "const words = document.createRange(); words.selectNodeContents(cell);"
            "const [of, within] = [words, cell].map((one) => one.getBoundingClientRect());"
            "return of.left < within.left || of.right > within.right || of.top < within.top"
            " || of.bottom > within.bottom;"
            "}).map((cell) => cell.textContent)"
        )
        self.assertIn("25 % of copy", [cell.text.replace("\n", " ") for cell in self.all(".heat a")])
        self.assertEqual(wider, [])

    def test_what_is_not_named_is_counted_by_verdict(self):
        self.open()
        items = self.all("#called li")
        self.assertEqual(len(items), 13)
        self.assertEqual(items[-1].text, "and 2 SLOW, 3 FAST more, in the table of results")


if __name__ == "__main__":
    unittest.main()
