"""`./ladder <verb> ...`"""

import importlib
import json
import subprocess
import sys

from registry import listing, selection

from . import build, device, new, options, paths, say, setup, suite, version
from .errors import Failure, UsageError
from .options import Parser

HELP = """\
Ladder: CUDA kernels, climbed version by version, checked and timed.

  ./ladder bench <layer>[/<pass>] [flags]
                                     build, check and time versions: ./ladder bench conv3x3 --version 7
  ./ladder test [<layer>[/<pass>]] [--version V] [flags]
                                     build, and test what changed, or some versions; --full, --sanitize, --preset NAME
  ./ladder list [<layer>[/<pass>]] [--json]
                                     layers, passes, versions and named problems
  ./ladder new <layer>/<pass> <idea> --from N
                                     the next version's file, made from version N
  ./ladder build [--preset NAME] [--werror] [targets...]
                                     build only; presets: emulator, clang, cuda, profile, sanitize, tsan
  ./ladder setup [--preset NAME]     fetch what is missing, and nothing else; --dev: clang, clang-format, clang-tidy too
  ./ladder prepare DIR               a folder of pictures as one file to train on; --emoji: the sample set
  ./ladder train [--config C] [flags]
                                     train the U-Net with the promoted kernels; --config tiny: without a GPU
  ./ladder sample RUN [flags]        images from a checkpoint of a training
  ./ladder table [--check]           the tables and pictures of the READMEs, from results/
  ./ladder record [<layer>[/<pass>]...]
                                     check and time versions, into results/<device>/<date>_<commit>.json; --missing:
                                     those that have no record yet, --missing --list only names them
  ./ladder compare [A [B]]           which kernels became slower or faster; --fail-on slow, --live REF
  ./ladder promote [--check]         runtime/promoted/<device>.txt: which version the trainer runs for each problem
  ./ladder dashboard                 results/index.html, made of the records
  ./ladder profile <layer>[/<pass>] --version V
                                     Nsight Compute on one launch, the dozen figures that matter
  ./ladder sanitize [<layer>[/<pass>]...]
                                     compute-sanitizer's four tools, each first shown a fault that it must find
  ./ladder resources                 registers, shared memory and spills of every kernel
  ./ladder format [--check]          clang-format over the tree

What to run is said in the same way everywhere:
  <layer>[/<pass>]                   conv3x3/dgrad; conv3x3 alone is all of its passes, to bench and profile its default
  --version V                        7, v07, 5-9, 7,9, a word of the idea (wmma), all, or best
  --problem P                        a line ('n1 h8 w8 c16 k16 bf16'), or a name that tables and list show (res64)
  --dtype D, --set NAME              bf16,fp16; a set of dev/<layer>/shapes.txt

./ladder <verb> --help says the rest, ./ladder --version which ladder this is. Both, list and every complaint about a
command line need nothing but Python. The GPU build is used where there is a GPU, else the emulator; --device
gpu|emulator decides otherwise. What is missing is fetched: with apt-get as root, else into .ladder/ (remove that folder
to undo it)."""


def main(arguments):
    if not arguments:
        print(HELP)
        return 2
    verb, rest = arguments[0], arguments[1:]
    if verb in ("-h", "--help", "help"):
        if not rest:
            print(HELP)
            return 0
        verb, rest = rest[0], ["--help"]
    if verb in ("--version", "version"):
        print(version.text())
        return 0
    if verb not in VERBS:
        raise UsageError(f"no verb '{verb}'; there are: {', '.join(VERBS)}")
    return VERBS[verb](rest)


def list_versions(arguments):
    parser = Parser("list", description="Layers, passes, versions and named problems, read from the tree.")
    parser.add_argument("target", nargs="?", help=selection.HELP["target"] + " (default: all)")
    parser.add_argument("--json", action="store_true", help="for programs: schema ladder.listing/1, results/SCHEMA.md")
    chosen = parser.parse_args(arguments)
    there = listing.read(paths.ROOT)
    if not there.layers:
        raise Failure("no version yet: dev/ has no <layer>/<pass>/vNN_<idea>.cu")
    target = [chosen.target] if chosen.target else []
    passes = selection.passes(there, target)
    if chosen.json:
        print(json.dumps(there.json(passes), indent=1))
    else:
        print("\n".join(there.lines(passes, closely=bool(target))))
    return 0


def test(arguments):
    parser = _parser("test", "Builds and runs every test, or those of some versions.", device=True, preset=True)
    parser.add_argument("targets", nargs="*", help=selection.HELP["target"] + " (default: every test there is)")
    parser.add_selection("version")
    parser.add_argument("--sanitize", action="store_true", help="the sanitize and tsan builds too")
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    parser.add_argument("--full", action="store_true", help="everything, whatever changed, and the digests of it")
    parser.add_argument("--resume", action="store_true", help="with --full: go on where the last one ended")
    parser.add_argument("--stop-after", type=float, metavar="MINUTES", help="take up no version after that")
    parser.epilog = "GoogleTest's own flags (--gtest_filter=..., --gtest_repeat=...) are handed on."
    chosen, gtest_flags = parser.parse_known_args(arguments)
    for flag in gtest_flags:
        if not flag.startswith("--gtest_"):
            raise UsageError(f"test: unknown argument '{flag}'; GoogleTest's flags begin with --gtest_")
    versions = _versions_of(chosen, gtest_flags)
    if versions:
        gtest_flags.append(f"--gtest_filter={selection.gtest_filter(versions)}")
    return suite.run(
        _preset(chosen),
        gtest_flags,
        sanitize=chosen.sanitize,
        full=chosen.full,
        resume=chosen.resume,
        stop_after=chosen.stop_after and chosen.stop_after * 60,
        cmake_options=_cmake_options(chosen),
        layers=sorted({path.split("/")[0] for path in versions}),
    )


def _versions_of(chosen, gtest_flags):
    """{path: Versions} whose tests were asked for; none for all tests there are."""
    if not chosen.targets and not chosen.version:
        return {}
    if any(flag.startswith("--gtest_filter") for flag in gtest_flags):
        raise UsageError("test: a layer or --version and --gtest_filter exclude each other")
    there = listing.read(paths.ROOT)
    return selection.versions_of(selection.passes(there, chosen.targets), chosen.version or "all")


def build_only(arguments):
    parser = _parser("build", "Builds, and runs nothing.", device=True, preset=True)
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help="a variable for CMake")
    parser.add_argument("targets", nargs="*", help="all by default; bench_<layer> for one bench program")
    chosen = parser.parse_args(arguments)
    layers = [layer.name for layer in listing.read(paths.ROOT).layers]
    for target in chosen.targets:
        if target.startswith("bench_") and target[len("bench_") :] not in layers:
            raise UsageError(f"no target '{target}'; there are: {', '.join(f'bench_{layer}' for layer in layers)}")
    preset = _preset(chosen)
    if setup.ensure(preset):
        build.forget(preset)
    build.build(preset, _cmake_options(chosen) + [f"-D{one}" for one in chosen.define], chosen.targets)
    say.line(f"built: {build.folder(preset)}")
    return 0


def setup_only(arguments):
    parser = _parser("setup", "Fetches what a build lacks, and nothing else.", device=True, preset=True)
    parser.add_argument("--dev", action="store_true", help="what the checks of the sources need as well")
    chosen = parser.parse_args(arguments)
    preset = _preset(chosen)
    if setup.ensure(preset, again=True):
        build.forget(preset)
    if chosen.dev:
        setup.ensure_dev_tools()
    say.line(f"ready to build {preset}")
    return 0


def table(arguments):
    from readme import ladder_table

    if ladder_table.parse(arguments).check:
        return ladder_table.main(arguments)
    from . import wheels  # matplotlib, which draws the pictures, lives in the private environment

    python = wheels.python_with(wheels.MATPLOTLIB, setup.LOG)
    return subprocess.run([python, paths.ROOT / "tools" / "readme" / "ladder_table.py", *arguments]).returncode


def _lazily(module):
    """A verb that lives in a module of its own, loaded when asked for."""
    return lambda arguments: importlib.import_module(module).main(arguments)


VERBS = {
    "bench": _lazily("cli.bench"),
    "test": test,
    "list": list_versions,
    "new": new.main,
    "build": build_only,
    "setup": setup_only,
    "prepare": _lazily("cli.prepare"),
    "train": _lazily("cli.train"),
    "sample": _lazily("cli.sample"),
    "table": table,
    "record": _lazily("cli.record"),
    "compare": _lazily("compare.main"),
    "promote": _lazily("cli.promote"),
    "dashboard": _lazily("dashboard.main"),
    "profile": _lazily("profiling.profile"),
    "sanitize": _lazily("profiling.sanitize"),
    "resources": _lazily("dev.resources"),
    "format": _lazily("dev.format"),
}


def _parser(verb, description, device=False, preset=False):
    parser = Parser(verb, description=description)
    if device:
        parser.add_argument("--device", choices=("gpu", "emulator"), help="default: the GPU where there is one")
    if preset:
        parser.add_argument("--preset", choices=paths.PRESETS, help="of CMakePresets.json, instead of --device")
    return parser


def _preset(chosen):
    if chosen.preset:
        say.line(f"{chosen.preset} build (--preset)")
        return chosen.preset
    choice = device.choose(chosen.device)
    say.line(choice)
    return choice.preset


def _cmake_options(chosen):
    return ["-DLADDER_WERROR=ON"] if chosen.werror else []


if __name__ == "__main__":
    sys.exit(options.run(main))
