"""`./ladder <verb> ...`"""

import importlib
import os
import subprocess
import sys

from . import build, device, new, paths, say, setup, suite, tools
from .errors import Failure, UsageError
from .options import Parser

HELP = """\
Ladder: CUDA kernels, climbed version by version, checked and timed.

  ./ladder bench <layer> [flags]     build, check and time versions; flags are the benchmark's own:
                                     ./ladder bench conv3x3 --version 7, ./ladder bench conv3x3 --help
  ./ladder test [flags]              build, and test what changed; --full, --sanitize, --preset NAME, GoogleTest's flags
  ./ladder list                      layers, passes and versions
  ./ladder new <layer>/<pass> <idea> --from N
                                     the next version's file, made from version N
  ./ladder build [--preset NAME] [--werror] [targets...]
                                     build only; presets: emulator, clang, cuda, profile, sanitize, tsan
  ./ladder setup [--preset NAME]     fetch what is missing, and nothing else; --dev: clang, clang-format, clang-tidy too
  ./ladder table [--check]           the tables and pictures of the READMEs, from results/
  ./ladder record [layers...]        check and time every version, into results/<device>/<date>_<commit>.json
  ./ladder compare [A [B]]           which kernels became slower or faster; --fail-on slow, --live REF
  ./ladder dashboard                 results/index.html, made of the records
  ./ladder profile <layer> --version N
                                     Nsight Compute on one launch, the dozen figures that matter
  ./ladder sanitize [layers...]      compute-sanitizer's four tools, each first shown a fault that it must find
  ./ladder resources                 registers, shared memory and spills of every kernel
  ./ladder format [--check]          clang-format over the tree

The GPU build is used where there is a GPU, else the emulator; --device gpu|emulator decides otherwise.
What is missing is fetched: with apt-get as root, else into .ladder/ (remove that folder to undo it)."""


def main(arguments):
    if not arguments:
        print(HELP)
        return 2
    verb, rest = arguments[0], arguments[1:]
    if verb in ("-h", "--help", "help"):
        print(HELP)
        return 0
    if verb not in VERBS:
        raise UsageError(f"no verb '{verb}'; there are: {', '.join(VERBS)}")
    return VERBS[verb](rest)


def bench(arguments):
    layers = paths.layers()
    if not arguments or arguments[0] not in layers:
        wrong = f"no layer '{arguments[0]}'" if arguments else "bench needs a layer"
        raise UsageError(f"{wrong}; there are: {', '.join(layers) or 'none yet'}")
    layer, flags = arguments[0], arguments[1:]
    choice = device.choose(_value_of("--device", flags))
    say.line(choice)
    program = _built(choice.preset, f"bench_{layer}")
    os.execve(program, [str(program), *flags], tools.environment())


def list_versions(arguments):
    options = _parser("list", device=True).parse_args(arguments)
    passes = new.passes()
    if not passes:
        raise Failure("no version yet: dev/ has no <layer>/<pass>/vNN_<idea>.cu")
    choice = device.choose(options.device)
    say.line(choice)
    worst = 0
    for layer, name in (path.split("/") for path in passes):
        program = _built(choice.preset, f"bench_{layer}")
        print(f"{layer}/{name}", flush=True)
        done = subprocess.run([program, "--pass", name, "--list"], env=tools.environment())
        worst = max(worst, done.returncode)
    return worst


def test(arguments):
    parser = _parser("test", device=True)
    parser.add_argument("--preset", choices=paths.PRESETS)
    parser.add_argument("--sanitize", action="store_true", help="the sanitize and tsan builds too")
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    parser.add_argument("--full", action="store_true", help="everything, whatever changed, and the digests of it")
    parser.add_argument("--resume", action="store_true", help="with --full: go on where the last one ended")
    parser.add_argument("--stop-after", type=float, metavar="MINUTES", help="take up no version after that")
    options, gtest_flags = parser.parse_known_args(arguments)
    for flag in gtest_flags:
        if not flag.startswith("--gtest_"):
            raise UsageError(f"test: unknown argument '{flag}'; GoogleTest's flags begin with --gtest_")
    if options.preset:
        say.line(f"{options.preset} build (--preset)")
        preset = options.preset
    else:
        choice = device.choose(options.device)
        say.line(choice)
        preset = choice.preset

    return suite.run(preset, gtest_flags, sanitize=options.sanitize, full=options.full, resume=options.resume,
                     stop_after=options.stop_after and options.stop_after * 60, cmake_options=_cmake_options(options))


def build_only(arguments):
    parser = _parser("build", device=True)
    parser.add_argument("--preset", choices=paths.PRESETS)
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help="a variable for CMake")
    parser.add_argument("targets", nargs="*", help="all by default")
    options = parser.parse_args(arguments)
    preset = _preset(options)
    _ready(preset)
    build.build(preset, _cmake_options(options) + [f"-D{one}" for one in options.define], options.targets)
    say.line(f"built: {build.folder(preset)}")
    return 0


def setup_only(arguments):
    parser = _parser("setup", device=True)
    parser.add_argument("--preset", choices=paths.PRESETS)
    parser.add_argument("--dev", action="store_true", help="what the checks of the sources need as well")
    options = parser.parse_args(arguments)
    preset = _preset(options)
    if setup.ensure(preset, again=True):
        build.forget(preset)
    if options.dev:
        setup.ensure_dev_tools()
    say.line(f"ready to build {preset}")
    return 0


def table(arguments):
    from . import wheels  # matplotlib lives in the private environment

    python = wheels.python_with(["matplotlib==3.9.4"], setup.LOG)
    return subprocess.run([python, paths.ROOT / "tools" / "ladder_table.py", *arguments]).returncode


def resources(arguments):
    return subprocess.run([sys.executable, paths.ROOT / "tools" / "resources.py", *arguments]).returncode


def format_tree(arguments):
    return subprocess.run([sys.executable, paths.ROOT / "tools" / "format.py", *arguments]).returncode


def _lazily(module):
    """A verb that lives in a module of its own, loaded when asked for."""
    return lambda arguments: importlib.import_module(module).main(arguments)


VERBS = {
    "bench": bench,
    "test": test,
    "list": list_versions,
    "new": new.main,
    "build": build_only,
    "setup": setup_only,
    "table": table,
    "record": _lazily("cli.record"),
    "compare": _lazily("compare.main"),
    "dashboard": _lazily("dashboard.main"),
    "profile": _lazily("profiling.profile"),
    "sanitize": _lazily("profiling.sanitize"),
    "resources": resources,
    "format": format_tree,
}


def _parser(verb, device=False):
    parser = Parser(prog=f"./ladder {verb}", allow_abbrev=False)
    if device:
        parser.add_argument("--device", choices=("gpu", "emulator"))
    return parser


def _value_of(flag, arguments):
    """The value of `--flag value` or `--flag=value` in another program's arguments."""
    for at, word in enumerate(arguments):
        if word == flag and at + 1 < len(arguments):
            return arguments[at + 1]
        if word.startswith(flag + "="):
            return word[len(flag) + 1 :]
    return None


def _preset(options):
    if options.preset:
        say.line(f"{options.preset} build (--preset)")
        return options.preset
    choice = device.choose(options.device)
    say.line(choice)
    return choice.preset


def _cmake_options(options):
    return ["-DLADDER_WERROR=ON"] if options.werror else []


def _ready(preset):
    if setup.ensure(preset):
        build.forget(preset)


def _built(preset, program):
    _ready(preset)
    build.build(preset, targets=[program])
    return build.folder(preset) / program


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        say.line(error)
        sys.exit(2)
    except Failure as error:
        say.line(error)
        sys.exit(1)
    except KeyboardInterrupt:
        say.line("interrupted")
        sys.exit(130)
