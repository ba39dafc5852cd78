"""The CLI: its help, its errors, and the file that `./ladder new` writes."""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from cli import bench, build, clangd, device, new, setup, verbs
from cli.errors import Failure, UsageError

ROOT = Path(__file__).resolve().parents[2]

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
    return subprocess.run(
        [root / "ladder", *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


class Tree(unittest.TestCase):
    """A copy of the CLI with a toy layer of two versions."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        shutil.copy(ROOT / "ladder", self.root / "ladder")
        shutil.copytree(ROOT / "tools", self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        self.versions = self.root / "dev" / "toy" / "fprop"
        self.versions.mkdir(parents=True)
        (self.versions / "v01_naive.cu").write_text(
            "// Idea:   one thread an output.\n\nvoid toy_fprop_v01_kernel();\n"
        )
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
        self.wrong("climb", says="no verb 'climb'; there are: check, bench, test, debug")
        self.wrong("bench", says="bench needs a layer")
        self.wrong("bench", "conv4x4", "--version", "7", says="no layer 'conv4x4'; there are: add, attention, concat, ")
        self.wrong("bench", "conv3x3", "--device", "tpu", says="--device: invalid choice: 'tpu' (choose from")
        self.wrong("bench", "conv3x3", "--set", "unte", says="did you mean 'unet'?")
        self.wrong("build", "--preset", "debug", says="emulator")
        self.wrong("test", "--filter", "x", says="unknown argument '--filter'")

    def test_a_gpu_that_is_not_there_is_wrong_usage(self):
        if device.gpu()[0] is not None:
            self.skipTest("this machine has a GPU")
        self.wrong("bench", "conv3x3", "--device", "gpu", says="--device gpu: no GPU")


VERBS = (
    "check",
    "bench",
    "debug",
    "clangd",
    "test",
    "list",
    "new",
    "build",
    "setup",
    "table",
    "record",
    "compare",
    "promote",
    "tree",
    "promote-candidate",
    "dashboard",
    "profile",
    "diff",
    "sanitize",
    "resources",
    "format",
    "prepare",
    "train",
    "sample",
    "denoise",
)


class BareClone(unittest.TestCase):
    """Python and nothing else: no compiler, no CMake, no git, no network, no folder of our own."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name) / "ladder"
        cls.root.mkdir()
        for name in ("ladder", "CMakeLists.txt", "CMakePresets.json"):
            shutil.copy(ROOT / name, cls.root / name)
        for name in ("tools", "dev", "bench", "train", "policy"):
            shutil.copytree(ROOT / name, cls.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        cls.programs = Path(folder.name) / "bin"
        cls.programs.mkdir()
        (cls.programs / "python3").symlink_to(sys.executable)
        for name in ("env", "bash", "readlink", "dirname"):
            (cls.programs / name).symlink_to(shutil.which(name))

    def ladder(self, *arguments, status=0):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [self.root / "ladder", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={"PATH": str(self.programs)},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(done.returncode, status, (arguments, done.stderr))
        self.assertLess(after.ru_utime - before.ru_utime, 1, arguments)
        self.assertFalse((self.root / ".ladder").exists() or (self.root / "build").exists(), arguments)
        return done

    def test_help(self):
        for arguments in ([], ["-h"], ["--help"], ["help"]):
            self.assertIn("./ladder bench <layer>", self.ladder(*arguments, status=0 if arguments else 2).stdout)
        for verb in VERBS:
            for arguments in ([verb, "--help"], [verb, "-h"], ["help", verb]):
                out = self.ladder(*arguments).stdout
                self.assertIn(f"usage: ./ladder {verb}", out)
        self.assertIn("--dtype", self.ladder("bench", "conv3x3", "--version", "7", "--help").stdout)

    def test_version(self):
        self.assertRegex(self.ladder("--version").stdout, r"^ladder \d+\.\d+\.\d+\n$")

    def test_list(self):
        out = self.ladder("list").stdout
        self.assertIn("conv3x3/fprop (default)\n", out)
        self.assertRegex(out, r"\n  v07_wmma_double_buffer +tf32 bf16 fp16 +sm_80\n")
        out = self.ladder("list", "conv3x3/dgrad").stdout
        self.assertNotIn("conv3x3/fprop", out)
        self.assertRegex(out, r"\n      Idea: \S")
        self.assertRegex(out, r"\n    res64 +n32 h64 w64 c64 k64\n")
        listed = json.loads(self.ladder("list", "conv3x3/dgrad", "--json").stdout)
        self.assertEqual(
            (listed["schema"], [each["path"] for each in listed["layers"][0]["passes"]]),
            ("ladder.listing/1", ["conv3x3/dgrad"]),
        )

    def wrong(self, says, *arguments):
        done = self.ladder(*arguments, status=2)
        self.assertEqual((len(done.stderr.strip().splitlines()), done.stdout), (1, ""), done.stderr)
        self.assertIn(says, done.stderr)

    def test_wrong_usage(self):
        for says, *arguments in (
            ("did you mean 'list'?", "lsit"),
            ("no verb 'climb'", "help", "climb"),
            ("no layer 'conv4x4'", "list", "conv4x4"),
            ("no pass 'conv3x3/wgard'", "list", "conv3x3/wgard"),
            ("bench needs a layer", "bench"),
            ("no layer 'conv4x4'", "bench", "conv4x4"),
            (
                "'/tmp/kernel.cu' is a file; its kernel is judged by ./ladder try <layer>/<pass> ",
                "bench",
                "/tmp/kernel.cu",
            ),
            ("it has: fprop, dgrad, wgrad", "bench", "conv3x3/forward"),
            ("no version '70'", "bench", "conv3x3", "--version", "70"),
            ("'1,'", "bench", "conv3x3", "--version", "1,"),
            ("did you mean 'res64'?", "bench", "conv3x3", "--problem", "res46"),
            ("needs h, w, c, k", "bench", "conv3x3", "--problem", "n1 x2"),
            ("v05_implicit_gemm has no bf16: it has fp32", "bench", "conv3x3", "--version", "5", "--dtype", "bf16"),
            ("a brace without its other one", "bench", "conv3x3", "--problem", "n{1,2 h8 w8 c16 k16"),
            ("contradicts the problem", "bench", "conv3x3", "--dtype", "bf16", "--problem", "n1 h8 w8 c16 k16 fp32"),
            ("--seed '-1'", "bench", "conv3x3", "--seed", "-1"),
            ("--seed '-1'", "bench", "conv3x3", "--seed=-1"),
            ("--seed '99999999999999999999'", "bench", "conv3x3", "--seed", "99999999999999999999"),
            ("--seed: it is empty", "bench", "conv3x3", "--seed", ""),
            ("--set: it is empty", "bench", "conv3x3", "--set", ""),
            ("--dtype: it is empty", "bench", "conv3x3", "--dtype", ""),
            ("--schedule: it is empty", "bench", "conv3x3", "--schedule", ""),
            ("--device: invalid choice: ''", "bench", "conv3x3", "--device", ""),
            ("late:7, not 'sideways'", "bench", "conv3x3", "--schedule", "sideways"),
            ("--benchmark_format=yaml: console, json, csv", "bench", "conv3x3", "--benchmark_format=yaml"),
            ("unknown argument '--benchmark_velocity=1'", "bench", "conv3x3", "--benchmark_velocity=1"),
            ("unknown argument '--velocity'", "bench", "conv3x3", "--velocity"),
            ("exclude each other", "bench", "conv3x3", "--check", "--once"),
            ("--baseline nowhere.py: no such file", "bench", "conv3x3", "--baseline", "nowhere.py"),
            ("FILE.py with functions of your own", "bench", "conv3x3", "--baseline", "cuDNN"),
            ("of your own is for ./ladder bench", "record", "conv3x3", "--baseline", "mine.py"),
            ("--resume needs --record", "bench", "conv3x3", "--resume"),
            ("no version '70'", "bench", "conv3x3", "--version", "70", "--watch"),
            ("no version '70'", "test", "conv3x3", "--version", "70", "--watch"),
            ("no version '70'", "check", "conv3x3", "--version", "70", "--watch"),
            ("check needs --version; conv3x3/fprop has v01_naive", "check", "conv3x3"),
            ("no layer 'conv4x4'", "check", "conv4x4", "--version", "7"),
            ("no version '70'", "check", "conv3x3", "--version", "70"),
            ("required: target", "check", "--version", "7"),
            ("invalid choice: 'order'", "clangd", "order"),
            ("debug needs --version and --problem", "debug", "conv3x3", "--version", "7"),
            ("'7,8' is several", "debug", "conv3x3", "--version", "7,8", "--problem", "res64"),
            ("did you mean 'res64'?", "debug", "conv3x3", "--version", "7", "--problem", "res46"),
            ("--thread: '-1': one to three numbers", "debug", "conv3x3", "--thread=-1"),
            ("unrecognized", "debug", "conv3x3", "--batch"),
            ("no version '70'", "test", "conv3x3", "--version", "70"),
            ("exclude each other", "test", "conv3x3", "--gtest_filter=*"),
            ("unknown argument '-x'", "test", "-x"),
            ("bench_conv3x3", "build", "bench_conv4x4"),
            ("--preset", "build", "--preset", "debug"),
            ("--preset", "setup", "--preset", "debug"),
            ("unrecognized", "table", "--chek"),
            ("--set 'unte'", "record", "--set", "unte"),
            ("--dtype 'int8'", "record", "--dtype", "int8"),
            ("no version '70'", "record", "conv3x3/dgrad", "--version", "70"),
            ("--samples", "record", "--samples", "0"),
            ("--list needs --missing or --stale", "record", "--list"),
            ("--device needs --missing or --stale", "record", "--device", "h200"),
            ("--version best exclude", "record", "--stale", "--version", "best"),
            ("no record of it; there are those of: none yet", "record", "--missing", "--list", "--device", "nowhere"),
            ("compare takes A and B", "compare", "a", "b", "c"),
            ("unrecognized", "compare", "--velocity"),
            ("no layer 'conv4x4'", "compare", "--live", "HEAD", "conv4x4"),
            ("profile needs a layer", "profile", "--version", "7"),
            ("no version '70'", "profile", "conv3x3", "--version", "70"),
            ("arguments are required: B", "diff", "silu", "1"),
            ("no version '70'", "diff", "conv3x3", "7", "70"),
            ("no tool 'valgrind'", "sanitize", "--tool", "valgrind"),
            ("--set 'cii'", "sanitize", "--set", "cii"),
            ("unrecognized", "resources", "--velocity"),
            ("no layer 'conv4x4'", "resources", "conv4x4"),
            ("unrecognized", "format", "--velocity"),
            ("prepare needs a folder", "prepare"),
            ("no folder 'nowhere'", "prepare", "nowhere"),
            ("--size 2: from 4", "prepare", "/", "--size", "2"),
            ("exclude", "prepare", "/", "--emoji"),
            ("--batch: a whole number of at least 1, not '0'", "train", "--batch", "0"),
            ("no file 'nowhere'", "train", "--data", "nowhere"),
            ("no run with a checkpoint", "train", "--resume"),
            ("sample needs a run's folder", "sample"),
            ("no folder 'nowhere'", "sample", "nowhere"),
            ("denoise needs a policy's file or folder, or --config tiny", "denoise"),
            ("unrecognized", "dashboard", "--velocity"),
            ("unrecognized", "list", "--velocity"),
            ("--problem 'm n' --tensors 'x[m,n] -> y[m,n]'", "new", "softmin/forward", "--layer"),
        ):
            with self.subTest(arguments=arguments):
                self.wrong(says, *arguments)

    def test_a_reader_that_has_enough(self):
        process = subprocess.Popen(
            [self.root / "ladder", "list"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": str(self.programs)},
        )
        process.stdout.close()
        self.assertEqual(process.stderr.read(), "")
        self.assertEqual(process.wait(), 0)
        process.stderr.close()


class BenchVerb(unittest.TestCase):
    """The bench verb around its program, which a script replaces."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        program = self.folder / "bench_conv3x3"
        program.write_text(f'#!/bin/sh\necho "$@" > {self.folder}/words\nexit 0\n')
        program.chmod(0o755)
        self.broken = []
        for patch in (
            mock.patch.object(bench.build, "folder", lambda preset: self.folder),
            mock.patch.object(bench.build, "build", self.build),
            mock.patch.object(bench.device, "choose", lambda wanted: device.Choice("emulator", "for a test")),
            mock.patch.object(bench.os, "execve", self.execve),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def build(self, preset, targets, keep_going, part):
        self.program = part.target if part else targets[0]
        target = self.folder / self.program
        if not target.exists():
            target.parent.mkdir(parents=True)
            target.symlink_to(self.folder / "bench_conv3x3")
        return self.broken

    def execve(self, program, command, environment):
        self.executed = True
        subprocess.run(command, env=environment, check=True)

    def bench(self, *arguments):
        self.executed = False
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = bench.main(list(arguments))
        words = self.folder / "words"
        return status, words.read_text().split() if words.exists() else None, said.getvalue()

    def test_the_pass_comes_from_the_target_and_the_rest_is_handed_on(self):
        self.assertEqual(self.bench("conv3x3", "--version", "7")[1], ["--pass", "fprop", "--version", "7"])
        self.assertEqual(
            self.bench("--version=5-7", "conv3x3/dgrad", "--benchmark_format=json", "--dtype", "bf16,fp16")[1],
            ["--pass", "dgrad", "--version", "5,6,7", "--dtype", "bf16,fp16", "--benchmark_format=json"],
        )
        self.assertEqual(
            self.bench("conv3x3", "--version", "best", "--problem", "res64", "--samples", "9", "--check")[1],
            "--pass fprop --promoted --problem n32 h64 w64 c64 k64 --check --samples=9".split(),
        )
        self.assertTrue(self.executed)
        words = self.bench("conv3x3", "--version", "3", "--dtype", "all")[1]
        self.assertEqual(words, "--pass fprop --version 3 --dtype all".split())
        words = self.bench("conv3x3", "--problem", "n1 h8 w8 c{16..32*2} k16 bf16")[1]
        self.assertEqual(" ".join(words[4:]), "--problem n1 h8 w8 c16 k16 bf16 --problem n1 h8 w8 c32 k16 bf16")

    def test_the_program_has_the_asked_versions_and_where_a_problem_decides_all(self):
        for version, program in (
            ("7", "partial/fprop-7/bench_conv3x3"),
            ("9,1-2", "partial/fprop-1-2-9/bench_conv3x3"),
            ("all", "bench_conv3x3"),
            ("best", "bench_conv3x3"),
        ):
            self.bench("conv3x3", "--version", version)
            self.assertEqual(self.program, program)

    def test_a_version_that_does_not_compile_is_named_and_the_others_run(self):
        self.broken = [
            build.Broken("conv3x3/fprop", 7, "conv3x3/fprop v07 does not compile: a.cu:1: no"),
            build.Broken("conv3x3/dgrad", 5, "another pass"),
        ]
        status, words, said = self.bench("conv3x3", "--version", "7,1", "--check")
        self.assertEqual((status, words), (1, ["--pass", "fprop", "--version", "1", "--check"]))
        self.assertIn("missing: conv3x3/fprop v07 does not compile: a.cu:1: no", said)
        self.assertNotIn("another pass", said)
        for version, told in (("all", "all"), ("wmma", "6"), ("5-9", "5,6,8,9")):
            status, words, said = self.bench("conv3x3", "--version", version)
            self.assertEqual((status, words), (1, ["--pass", "fprop", "--version", told]))
            self.assertIn("missing: conv3x3/fprop v07", said)
        status, words, said = self.bench("conv3x3", "--version", "1")
        self.assertEqual((status, "v07" in said), (0, False))
        (self.folder / "words").unlink()
        with self.assertRaisesRegex(Failure, "^conv3x3/fprop v07 does not compile: a.cu:1: no$"):
            self.bench("conv3x3", "--version", "v07")
        self.assertFalse((self.folder / "words").exists())


class Build(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        patch = mock.patch.object(build, "BUILD", self.folder)
        patch.start()
        self.addCleanup(patch.stop)
        (self.folder / "cuda").mkdir()

    def test_another_architecture_configures_anew(self):
        cache = self.folder / "cuda" / "CMakeCache.txt"
        self.assertFalse(build._cached("cuda", ["-DCMAKE_CUDA_ARCHITECTURES=90a-real"]))
        cache.write_text("// words\nCMAKE_CUDA_ARCHITECTURES:UNINITIALIZED=90a-real\nLADDER_WERROR:BOOL=OFF\n")
        self.assertTrue(build._cached("cuda", ["-DCMAKE_CUDA_ARCHITECTURES=90a-real"]))
        self.assertTrue(build._cached("cuda", []))
        self.assertFalse(build._cached("cuda", ["-DCMAKE_CUDA_ARCHITECTURES=80-real"]))
        self.assertFalse(build._cached("cuda", ["-DCMAKE_CUDA_ARCHITECTURES=90a-real", "-DLADDER_WERROR=ON"]))

    def test_a_machine_with_a_gpu_compiles_for_it_alone(self):
        self.assertEqual(
            [device.cmake_architecture(arch) for arch in (80, 89, 90, 120)],
            ["80-real", "89-real", "90a-real", "120-real"],
        )
        without = {name: value for name, value in os.environ.items() if name != "CUDAARCHS"}
        with mock.patch.dict(os.environ, without, clear=True):
            with mock.patch.object(device, "architecture", lambda: "90a-real"):
                self.assertEqual(build._own_architecture("cuda"), ["-DCMAKE_CUDA_ARCHITECTURES=90a-real"])
                self.assertEqual(build._own_architecture("emulator"), [])
                os.environ["CUDAARCHS"] = "80;90a"
                self.assertEqual(build._own_architecture("cuda"), [])
            with mock.patch.object(device, "architecture", lambda: None):
                self.assertEqual(build._own_architecture("profile"), [])

    def test_an_editor_sees_the_first_build_until_another_is_picked(self):
        link = self.folder / "compile_commands.json"
        with (
            mock.patch.object(build, "COMMANDS", link),
            mock.patch.object(build.setup, "ensure", lambda preset: False),
            mock.patch.object(build.run, "logged", lambda *words: None),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            seen = []
            for step in (
                lambda: build._configure("order", []),
                lambda: build._configure("emulator", []),
                lambda: build._configure("cuda", []),
                lambda: clangd.main(["cuda"]),
                lambda: clangd.main(["emulator"]),
            ):
                step()
                seen.append(os.readlink(link).split("/")[1] if link.is_symlink() else None)
        self.assertEqual(seen, [None, "emulator", "emulator", "cuda", "emulator"])

    def ninja(self, script):
        program = self.folder / "ninja"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        said = io.StringIO()
        with mock.patch.object(build.tools, "ninja", lambda: str(program)), contextlib.redirect_stderr(said):
            build._ninja("cuda", ["bench_toy"], keep_going=False)
        return said.getvalue()

    def test_a_version_left_out_is_for_the_caller_to_name(self):
        said = self.ninja("echo 'toy/fprop v02 does not compile: v02.cu:1: no'; echo 'v03.cu:1: warning: odd'")
        self.assertEqual(said, "v03.cu:1: warning: odd\n")

    def test_an_interrupted_build_is_no_failed_one(self):
        with self.assertRaisesRegex(Failure, "the cuda build failed"):
            self.ninja("exit 1")
        for script in ("echo 'ninja: build stopped: interrupted by user.'; exit 2", "exit 130", "kill -INT $$"):
            with self.assertRaises(KeyboardInterrupt):
                self.ninja(script)

    def test_an_interrupted_ladder_interrupts_its_build(self):
        program = self.folder / "ninja"
        program.write_text(
            "#!/bin/sh\ntrap 'echo stopped > \"$0.stopped\"; exit 2' INT\necho '[1/9] begun'\n"
            "while :; do sleep 0.1; done\n"
        )
        program.chmod(0o755)
        script = (
            "import sys; from cli import build, options\n"
            "build.tools.ninja = lambda: sys.argv[1]\n"
            "build.say.progress = lambda text: print(text, flush=True)\n"
            "sys.exit(options.run(lambda words: build._ninja('cuda', [], False)))\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        )
        self.assertIn("building cuda: 1 of 9", process.stdout.readline())
        process.send_signal(signal.SIGINT)  # to this process alone; a terminal would signal its whole group
        said = process.communicate(timeout=60)[1]
        self.assertEqual((process.returncode, said), (130, "ladder: interrupted\n"))
        process.stdout.close()
        self.assertTrue((self.folder / "ninja.stopped").exists())

    def test_what_is_missing_is_known_until_its_file_is_gone(self):
        objects = self.folder / "cuda" / "CMakeFiles" / "dev"
        objects.mkdir(parents=True)
        for name in ("v07_wmma_double_buffer", "v98_gone"):
            (objects / f"{name}.cu.o.missing").write_text(
                json.dumps(
                    {
                        "source": f"dev/conv3x3/fprop/{name}.cu",
                        "path": "conv3x3/fprop",
                        "number": int(name[1:3]),
                        "line": name,
                    }
                )
            )
        self.assertEqual(build._broken("cuda"), [build.Broken("conv3x3/fprop", 7, "v07_wmma_double_buffer")])


class TestVerb(unittest.TestCase):
    def test_a_version_becomes_a_filter(self):
        ran = []
        with (
            mock.patch.object(
                verbs.suite,
                "run",
                lambda preset, flags, **rest: (
                    ran.append((flags, rest["layers"], rest["part"] and rest["part"].name)) or 0
                ),
            ),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            for arguments in (
                ["conv3x3/fprop", "--version", "7"],
                ["--gtest_repeat=2"],
                ["conv3x3", "--version", "winograd"],
            ):
                self.assertEqual(verbs.test([*arguments, "--preset", "emulator"]), 0)
        self.assertEqual(
            ran,
            [
                (["--gtest_filter=conv3x3_fprop_v07_wmma_double_buffer.*"], ["conv3x3"], "fprop-7"),
                (["--gtest_repeat=2"], [], None),
                (
                    [
                        "--gtest_filter=conv3x3_fprop_v10_winograd.*:conv3x3_dgrad_v08_flipped_winograd.*:"
                        "conv3x3_wgrad_v08_winograd.*"
                    ],
                    ["conv3x3"],
                    None,  # dgrad's version launches fprop's
                ),
            ],
        )

    def test_suites_are_named_as_the_filter_says(self):
        source = (ROOT / "tests" / "test_versions.cpp").read_text(encoding="utf-8")
        self.assertIn('fmt::format("{}_{}_{}", v.pass->layer, v.pass->name, v.label())', source)


class New(Tree):
    def test_it_writes_the_next_version_renumbered(self):
        done = self.new("toy/fprop", "cp_async", "--from", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.versions / "v03_cp_async.cu").read_text()
        self.assertTrue(text.startswith("// Idea:   cp async.\n// Parent: v02.\n// Why:    "), text)
        needs = "// Needs:  nothing; 16-byte loads where\n//         a row is a multiple of them.\n"
        self.assertIn(f"{needs}// Spills: as v02.\n\n#include", text)
        self.assertIn("__global__ void toy_fprop_v03_kernel(int v02x, int sv02) {}", text)
        self.assertIn("launch(toy_fprop_v03_kernel)", text)
        self.assertIn("// as in v02, and v021 is another\n", text)
        self.assertTrue(text.endswith("LADDER_VERSION(toy::Fprop, {.launch = launch});\n"))
        self.assertEqual((self.versions / "v02_smem_tile.cu").read_text(), PARENT)
        self.assertEqual(len(list(self.versions.iterdir())), 3)

    def test_the_number_is_the_next_free_one_whatever_the_parent(self):
        self.assertEqual(self.new("toy/fprop", "vector_loads", "--from=v01").returncode, 0)
        text = (self.versions / "v03_vector_loads.cu").read_text()
        self.assertIn("toy_fprop_v03_kernel", text)
        self.assertNotIn("Spills:", text)

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
            new.write_new(taken, "other")
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
    def test_two_clients_wait_for_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            path, log = Path(folder) / "lock", Path(folder) / "log"
            script = (
                "import sys, time; from pathlib import Path; from cli import lock\n"
                "with lock.held(Path(sys.argv[1])):\n"
                "    file = open(sys.argv[2], 'a'); file.write('in\\n'); file.flush()\n"
                "    time.sleep(0.3); file.write('out\\n'); file.flush()\n"
            )
            env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
            clients = [
                subprocess.Popen([sys.executable, "-c", script, path, log], env=env, stderr=subprocess.DEVNULL)
                for _ in range(3)
            ]
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

    def test_only_what_is_missing_of_cudnn_is_fetched(self):
        fetched = []
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(setup, "PRIVATE", Path(folder)),
            mock.patch.object(setup, "_needs_ensurepip", lambda: None),
            mock.patch.object(setup.wheels, "install", lambda what, pins, *more: fetched.append(pins)),
            mock.patch.object(setup.wheels, "unpack_headers", lambda pin, log: fetched.append(pin)),
        ):
            for there, expected in (
                ({"cudnn.h"}, [setup.wheels.CUDNN_FRONTEND]),
                ({"cudnn_frontend.h"}, [setup.wheels.CUDNN]),
                ({"cudnn.h", "cudnn_frontend.h"}, []),
                (set(), [setup.wheels.CUDNN, setup.wheels.CUDNN_FRONTEND]),
            ):
                fetched.clear()
                with mock.patch.object(setup, "_system_header", lambda name, there=there: name in there):
                    self.assertEqual(setup._baseline(), bool(expected))
                self.assertEqual(fetched, expected)

    @unittest.skipUnless(shutil.which("c++"), "no C++ compiler")
    def test_a_header_is_where_the_compiler_finds_it(self):
        without = {name: value for name, value in os.environ.items() if name != "LADDER_NO_SYSTEM_CUDA"}
        with mock.patch.dict(os.environ, without, clear=True):
            self.assertTrue(setup._system_header("vector"))
            self.assertFalse(setup._system_header("no/such/header.h"))

    def test_the_probe_sees_a_missing_library(self):
        asked = {"no/such/header.h": "libno-such-dev", "vector": "libstdc++-dev"}
        self.assertEqual(setup._missing_libraries(asked), {"libno-such-dev"})
