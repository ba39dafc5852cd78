"""tools/dev/launch_nvcc.py: which architectures a source is compiled for, and where ptxas's report goes."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from dev import launch_nvcc  # noqa: E402

OLD = "--generate-code=arch=compute_80,code=[compute_80,sm_80]"
NEW = "--generate-code=arch=compute_90a,code=[sm_90a]"
NEEDS_90 = "LADDER_VERSION(Forward, {.launch = launch, .min_arch = 90})"


class Architectures(unittest.TestCase):
    def test_older_ones_than_the_version_needs_are_left_out(self):
        self.assertEqual(
            launch_nvcc.for_source(["nvcc", OLD, NEW, "-c", "a.cu"], NEEDS_90), ["nvcc", NEW, "-c", "a.cu"]
        )

    def test_a_version_for_older_ones_gets_all(self):
        command = ["nvcc", OLD, NEW, "-c", "a.cu"]
        self.assertEqual(launch_nvcc.for_source(command, ".min_arch = 80"), command)
        self.assertEqual(launch_nvcc.for_source(command, "no version at all"), command)

    def test_a_build_for_older_ones_alone_still_compiles(self):
        command = ["nvcc", OLD, "-c", "a.cu"]
        self.assertEqual(launch_nvcc.for_source(command, NEEDS_90), command)

    def test_every_version_that_says_so_is_found(self):
        found = [path for path in ROOT.glob("dev/*/*/v*.cu") if ".min_arch = 90" in path.read_text(encoding="utf-8")]
        self.assertGreater(len(found), 10)
        for path in found:
            with self.subTest(path=path.name):
                self.assertNotIn(OLD, launch_nvcc.for_source([OLD, NEW], path.read_text(encoding="utf-8")))


class Report(unittest.TestCase):
    COMPILER = """import sys
print("ptxas info    : Used 40 registers")
print("a.cu(3): warning: something")
open(sys.argv[sys.argv.index("-o") + 1], "w").close()
sys.exit("--fail" in sys.argv)
"""

    def run_compiler(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "compiler.py").write_text(self.COMPILER, encoding="utf-8")
            (folder / "a.cu").write_text(NEEDS_90, encoding="utf-8")
            code = launch_nvcc.main(
                [
                    sys.executable,
                    str(folder / "compiler.py"),
                    "-c",
                    str(folder / "a.cu"),
                    "-o",
                    str(folder / "a.o"),
                    *options,
                ]
            )
            report = folder / "a.o.ptxas"
            return code, report.read_text(encoding="utf-8") if report.exists() else None

    def test_what_ptxas_says_is_kept_beside_the_object(self):
        self.assertEqual(self.run_compiler(), (0, "ptxas info    : Used 40 registers\n"))

    def test_a_failed_compilation_fails_and_leaves_no_report(self):
        self.assertEqual(self.run_compiler("--fail"), (1, None))


if __name__ == "__main__":
    unittest.main()
