"""The CLI: its help, its errors, and the file that `./ladder new` writes. Run by tools/run_python_tests.py."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from cli import device, lock, new, setup  # noqa: E402
from cli.errors import UsageError  # noqa: E402

PARENT = """\
// Idea:   tiles in shared memory.
// Parent: v01.
// Why:    each input was read nine times.
// Needs:  nothing; 16-byte loads where
//         a row is a multiple of them.
// Spills: none of importance.

#include "dev/toy/toy.h"

__global__ void toy_fprop_v02_kernel(int v02x, int sv02) {}

// as in v02, and v021 is another
void launch() { ladder::launch(toy_fprop_v02_kernel); }

LADDER_VERSION(toy::Fprop, {.launch = launch});
"""


def ladder(*arguments, cwd=ROOT, root=ROOT):
    return subprocess.run([root / "ladder", *arguments], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


class Tree(unittest.TestCase):
    """A copy of the CLI beside a toy layer of two versions."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        shutil.copy(ROOT / "ladder", self.root / "ladder")
        shutil.copytree(ROOT / "tools", self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        self.versions = self.root / "dev" / "toy" / "fprop"
        self.versions.mkdir(parents=True)
        (self.versions / "v01_naive.cu").write_text("// Idea:   one thread an output.\n\nvoid toy_fprop_v01_kernel();\n")
        (self.versions / "v02_smem_tile.cu").write_text(PARENT)

    def new(self, *arguments):
        return ladder("new", *arguments, root=self.root, cwd="/")

    def refuses(self, *arguments, says):
        before = sorted(self.versions.iterdir())
        done = self.new(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(sorted(self.versions.iterdir()), before)


class Help(unittest.TestCase):
    def test_alone_it_prints_help_and_exits_2(self):
        done = ladder()
        self.assertEqual(done.returncode, 2)
        self.assertIn("./ladder bench <layer>", done.stdout)

    def test_help_names_every_verb_from_any_folder(self):
        done = ladder("--help", cwd="/")
        self.assertEqual(done.returncode, 0)
        for verb in ("bench", "test", "list", "new", "build", "setup", "table", "resources", "format"):
            self.assertIn(f"./ladder {verb}", done.stdout)

    def wrong(self, *arguments, says):
        done = ladder(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(says, done.stderr)

    def test_wrong_usage_is_one_line_and_exit_2(self):
        self.wrong("climb", says="no verb 'climb'; there are: bench, test")
        self.wrong("bench", says="bench needs a layer")
        self.wrong("bench", "conv4x4", "--version", "7", says="no layer 'conv4x4'; there are: conv3x3")
        self.wrong("bench", "conv3x3", "--device", "tpu", says="--device tpu: gpu or emulator")
        self.wrong("build", "--preset", "debug", says="emulator")
        self.wrong("test", "--filter", "x", says="unknown argument '--filter'")

    def test_a_gpu_that_is_not_there_is_wrong_usage(self):
        if device.gpu()[0] is not None:
            self.skipTest("this machine has a GPU")
        self.wrong("bench", "conv3x3", "--device", "gpu", says="--device gpu: no GPU")


class New(Tree):
    def test_it_writes_the_next_version_renumbered(self):
        done = self.new("toy/fprop", "cp_async", "--from", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.versions / "v03_cp_async.cu").read_text()
        self.assertTrue(text.startswith("// Idea:   cp async.\n// Parent: v02.\n// Why:    "), text)
        self.assertIn("// Needs:  nothing; 16-byte loads where\n//         a row is a multiple of them.\n", text)
        self.assertNotIn("Spills:", text)
        self.assertIn("__global__ void toy_fprop_v03_kernel(int v02x, int sv02) {}", text)
        self.assertIn("launch(toy_fprop_v03_kernel)", text)
        self.assertIn("// as in v02, and v021 is another\n", text)
        self.assertTrue(text.endswith("LADDER_VERSION(toy::Fprop, {.launch = launch});\n"))
        self.assertEqual((self.versions / "v02_smem_tile.cu").read_text(), PARENT)
        self.assertEqual(len(list(self.versions.iterdir())), 3)

    def test_the_number_is_the_next_free_one_whatever_the_parent(self):
        self.assertEqual(self.new("toy/fprop", "vector_loads", "--from=v01").returncode, 0)
        self.assertIn("toy_fprop_v03_kernel", (self.versions / "v03_vector_loads.cu").read_text())

    def test_refusals(self):
        self.refuses(says="--from N")
        self.refuses("toy/fprop", "cp_async", says="--from N")
        self.refuses("toy/fprop", "cp_async", "--from", "two", says="--from 'two'")
        self.refuses("toy/fprop", "cp_async", "--from", "7", says="no version 7; there are: 1, 2")
        self.refuses("toy/dgrad", "cp_async", "--from", "1", says="no pass 'toy/dgrad'; there are: toy/fprop")
        self.refuses("toy", "cp_async", "--from", "1", says="no pass 'toy'")
        self.refuses("../dev/toy/fprop", "cp_async", "--from", "1", says="no pass")
        self.refuses("toy/fprop", "smem_tile", "--from", "1", says="has 'smem_tile' already")
        for idea in ("fast", "new_tile", "final", "even_faster"):
            self.refuses("toy/fprop", idea, "--from", "1", says="says nothing of the change")
        for idea in ("SplitK", "split-k", "_split", "split__k", "2stage", "a/b", ""):
            self.refuses("toy/fprop", idea, "--from", "1", says="snake_case")

    def test_it_never_writes_over_a_file(self):
        taken = self.versions / "v03_cp_async.cu"
        taken.write_text("mine")
        with self.assertRaises(UsageError):
            new._write_new(taken, "other")
        self.assertEqual(taken.read_text(), "mine")
        self.assertEqual([path.name for path in self.versions.iterdir() if path.name.startswith(".")], [])

    def test_every_real_version_renumbers_without_a_trace_of_its_parent(self):
        sources = sorted((ROOT / "dev").glob("*/*/v*.cu"))
        self.assertTrue(sources)
        for source in sources:
            number = int(source.name[1:3])
            before = source.read_text()
            text = new.renumber(before, number, 99, "other_idea")
            self.assertEqual("_v99_" in text, f"_v{number:02d}_" in before, source)  # a file without kernels names none
            self.assertNotIn(f"_v{number:02d}_", text, source)


class Lock(unittest.TestCase):
    def test_two_doors_wait_for_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            path, log = Path(folder) / "lock", Path(folder) / "log"
            script = ("import sys, time; from pathlib import Path; from cli import lock\n"
                      "with lock.held(Path(sys.argv[1])):\n"
                      "    file = open(sys.argv[2], 'a'); file.write('in\\n'); file.flush()\n"
                      "    time.sleep(0.3); file.write('out\\n'); file.flush()\n")
            env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
            clients = [subprocess.Popen([sys.executable, "-c", script, path, log], env=env, stderr=subprocess.DEVNULL)
                     for _ in range(3)]
            self.assertEqual([client.wait() for client in clients], [0, 0, 0])
            self.assertEqual(log.read_text().split(), ["in", "out"] * 3)


class Setup(unittest.TestCase):
    def test_a_hidden_toolkit_is_not_found(self):
        before = os.environ.get("LADDER_NO_SYSTEM_CUDA")
        os.environ["LADDER_NO_SYSTEM_CUDA"] = "1"
        try:
            self.assertIsNone(setup._system_nvcc())
            self.assertIsNone(setup._system_cuda_file("include/cuda_bf16.h"))
        finally:
            del os.environ["LADDER_NO_SYSTEM_CUDA"]
            if before is not None:
                os.environ["LADDER_NO_SYSTEM_CUDA"] = before

    def test_the_probe_sees_a_missing_library(self):
        real = dict(setup._LIBRARIES)
        self.addCleanup(setup._LIBRARIES.update, real)
        self.addCleanup(setup._LIBRARIES.clear)
        setup._LIBRARIES["no/such/header.h"] = "libno-such-dev"
        self.assertIn("libno-such-dev", setup._missing_libraries())
        del setup._LIBRARIES["no/such/header.h"]
        setup._LIBRARIES.update({"vector": "libstdc++-dev"})
        self.assertNotIn("libstdc++-dev", setup._missing_libraries())


if __name__ == "__main__":
    unittest.main()
