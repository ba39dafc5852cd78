"""What `./ladder test` runs: by content, against the digests of the last full run."""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from cli import digests, suite

_TREE = {
    "runtime/tape.cpp": "tape",
    "nn/models/unet2d.cpp": "model",
    "core/check/check.h": "checks",
    "CMakeLists.txt": "flags",
    "tests/test_versions.cpp": "tests",
    "dev/sum/sum.h": "the pass",
    "dev/sum/sum.cpp": "its host code",
    "dev/sum/tile.h": '#include "dev/ptx/copy.h"\n',
    "dev/sum/shapes.txt": "[ci]\na: n1\n",
    "dev/sum/forward/v01_naive.cu": '#include "dev/sum/sum.h"\n',
    "dev/sum/forward/v02_tile.cu": '#include "dev/sum/sum.h"\n#include "dev/sum/tile.h"\n',
    "dev/sum/backward/v01_handed_on.cu": "version_of<Forward>(2)\n",
    "dev/ptx/copy.h": "copies",
    "reference/sum_reference.cpp": "in double",
}


class SuiteTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, text in _TREE.items():
            self.write(name, text)
        self.versions = digests.versions(self.root)
        self.record()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def record(self):
        digests.write_last_run(
            "2026-01-02",
            digests.of_shared(self.root),
            {v.name: digests.of_version(v, self.root) for v in self.versions},
            {},
            self.root,
        )

    def selection(self):
        return suite.Selection.of_changes(
            digests.versions(self.root),
            digests.last_run(self.root),
            lambda v: digests.of_version(v, self.root),
            digests.of_shared(self.root),
        )

    def full(self):
        return [v.name for v in self.selection().full]

    def test_nothing_changed(self):
        found = self.selection()
        self.assertEqual((found.full, found.brief, found.shared_changed), ([], [], False))
        self.assertEqual(len(found.untouched), 3)
        self.assertEqual(found.last.date, "2026-01-02")

    def test_a_version_and_whoever_it_may_hand_its_work_to(self):
        self.write("dev/sum/forward/v01_naive.cu", "other")
        self.assertEqual(self.full(), ["sum/backward/v01_handed_on", "sum/forward/v01_naive"])

    def test_a_header_that_is_included_by_way_of_another(self):
        self.write("dev/ptx/copy.h", "copies more")
        self.assertEqual(self.full(), ["sum/backward/v01_handed_on", "sum/forward/v02_tile"])

    def test_what_a_whole_layer_rests_on(self):
        for name in ("dev/sum/shapes.txt", "dev/sum/sum.cpp", "reference/sum_reference.cpp"):
            with self.subTest(name):
                self.write(name, "other")
                self.assertEqual(len(self.full()), 3)
                self.write(name, _TREE[name])
                self.assertEqual(self.full(), [])

    def test_what_all_share_has_versions_tried_briefly(self):
        for name in (
            "core/check/check.h",
            "runtime/tape.cpp",
            "nn/models/unet2d.cpp",
            "CMakeLists.txt",
            "tests/test_versions.cpp",
        ):
            with self.subTest(name):
                self.write(name, "other")
                found = self.selection()
                self.assertEqual((found.full, len(found.brief), found.untouched), ([], 3, []))
                self.write(name, _TREE[name])

    def test_a_new_version_has_changed(self):
        self.write("dev/sum/forward/v03_new.cu", "new")
        self.assertIn("sum/forward/v03_new", self.full())

    def test_without_a_record_everything_has_changed(self):
        for text in ("", "{}", '{"schema": "another"}'):
            digests.record_path(self.root).write_text(text)
            self.assertEqual(len(self.full()), 3)
        digests.record_path(self.root).unlink()
        self.assertEqual(len(self.full()), 3)

    def test_a_full_run_leaves_out_versions_that_failed_and_nothing_else_may(self):
        def written(unit):
            session = suite._Session(False, float("inf"), ())
            session.of_shared, session.of_versions = "shared", {v.name: "now" for v in self.versions}
            session._keep(unit, suite.Totals(failed=1, broken=[unit.key]), 1.0)
            session.totals.add(suite.Totals(failed=1, broken=[unit.key]))
            with mock.patch.object(digests, "write_last_run") as write, mock.patch.object(suite.say, "line"):
                session.write_last_run(self.versions)
            return write.call_args and sorted(write.call_args.args[2])

        ended_badly = suite.Unit("sanitize", "test_versions_sum", "sum/forward/v01_naive")
        self.assertEqual(written(ended_badly), ["sum/backward/v01_handed_on", "sum/forward/v02_tile"])
        self.assertIsNone(written(suite.Unit("sanitize", "test_check")))

    def test_units_of_a_changed_version(self):
        self.write("dev/sum/forward/v01_naive.cu", '#include "dev/sum/sum.h"\n// other\n')
        self.write("core/check/check.h", "other")
        found = self.selection()
        programs = ["test_check", "test_simt", "test_versions_sum"]
        self.assertEqual(
            [unit.key for unit in suite.units("emulator", programs, found)],
            [
                "emulator test_check",
                "emulator test_simt",
                "emulator test_versions_sum sum/backward/v01_handed_on",
                "emulator test_versions_sum sum/forward/v01_naive",
                "emulator test_versions_sum sum/forward/v02_tile brief",
            ],
        )
        self.assertEqual(
            [unit.key for unit in suite.units("tsan", programs, found)],
            [
                "tsan test_simt",
                "tsan test_versions_sum sum/backward/v01_handed_on",
                "tsan test_versions_sum sum/forward/v01_naive",
            ],
        )
        brief = suite.units("emulator", programs, found)[-1]
        self.assertEqual(brief.gtest_flags(), ["--gtest_filter=sum_forward_v02_tile.ci_*"])

    def test_what_sanitizers_need_built(self):
        self.assertIsNone(suite.targets("tsan", self.selection()))
        self.write("dev/sum/forward/v01_naive.cu", "other")
        self.assertEqual(suite.targets("sanitize", self.selection()), ["test_versions_sum"])
        self.write("core/check/check.h", "other")
        self.assertEqual(suite.targets("tsan", self.selection()), ["test_versions_sum", "test_simt", "test_faults"])
        self.assertEqual(suite.targets("sanitize", self.selection()), ())
        self.assertEqual(suite.targets("emulator", self.selection()), ())


if __name__ == "__main__":
    unittest.main()
