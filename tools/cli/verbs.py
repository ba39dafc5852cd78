"""The short verbs: list, test, build, setup and table."""

import json
import subprocess

from registry import listing, selection

from . import build as builder
from . import device, docs_run, fuzz, package, partial, paths, say, suite, watch
from . import setup as setting_up
from .errors import Failure, UsageError
from .options import Parser, between


def list_(arguments):
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
    if arguments[:1] == ["docs"]:
        return docs_run.main(arguments[1:])
    parser = _parser("test", "Builds and runs every test, or those of some versions.")
    parser.add_argument(
        "targets",
        nargs="*",
        help=selection.HELP["target"]
        + "; python: the PyTorch package; docs: the documents' commands, with flags of its own (default: every test there is)",
    )
    parser.add_selection("version")
    parser.add_argument("--sanitize", action="store_true", help="the sanitize and order builds too")
    parser.add_argument(
        "--fuzz", action="store_true", help=f"alone: libFuzzer on every reader of files, {fuzz.SECONDS} s each (clang)"
    )
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    parser.add_argument("--full", action="store_true", help="everything, also what has a kept result")
    parser.add_argument("--resume", action="store_true", help="with --full: go on where the last one ended")
    parser.add_argument("--keep", action="store_true", help="write tests/kept_results.json, for other machines")
    parser.add_argument(
        "--stop-after",
        type=between(0, 1e6),
        metavar="MINUTES",
        help="fail where a version would begin later; sanitizers end by then",
    )
    parser.add_argument(
        "--allow-untested", action="store_true", help="with --stop-after: a version that is left out is no failure"
    )
    parser.add_watch()
    parser.epilog = "GoogleTest's own flags (--gtest_filter=..., --gtest_repeat=...) are handed on."
    chosen, gtest_flags = parser.parse_known_args(arguments)
    for flag in gtest_flags:
        if not flag.startswith("--gtest_"):
            raise UsageError(f"test: unknown argument '{flag}'; GoogleTest's flags begin with --gtest_")
    if chosen.fuzz:
        _check_alone("--fuzz", arguments, ("--fuzz", "--werror"))
        return fuzz.run(fuzz.SECONDS, _cmake_options(chosen))
    if "docs" in chosen.targets:
        raise UsageError("test: docs comes first, and alone: ./ladder test docs; its flags: ./ladder test docs --help")
    if chosen.targets == ["python"]:
        preset = _preset(chosen)
        totals = package.test(preset, _cmake_options(chosen))
        print(totals)
        return 1 if totals.failed else 0
    if chosen.resume and not chosen.full:
        raise UsageError("test: --resume goes on with a --full run: --full --resume")
    if chosen.keep and (chosen.targets or chosen.version or gtest_flags):
        raise UsageError("test: --keep is of everything, not of a layer, a version or a filter: ./ladder test --keep")
    versions = _versions_of(chosen, gtest_flags)
    if chosen.watch:
        return watch.repeated("test", arguments)
    if versions:
        gtest_flags.append(f"--gtest_filter={selection.gtest_filter(versions)}")
    layers = sorted({path.split("/")[0] for path in versions})
    part = partial.of(f"test_versions_{layers[0]}", versions, chosen.version or "all") if len(layers) == 1 else None
    return suite.run(
        _preset(chosen),
        gtest_flags,
        sanitize=chosen.sanitize,
        full=chosen.full,
        resume=chosen.resume,
        keep=chosen.keep,
        allow_untested=chosen.allow_untested,
        stop_after=chosen.stop_after and chosen.stop_after * 60,
        cmake_options=_cmake_options(chosen),
        layers=layers,
        part=part,
    )


def _check_alone(flag, arguments, beside):
    wrong = [word for word in arguments if word not in beside]
    if wrong:
        raise UsageError(f"test: {flag} takes no other word than {', '.join(beside[1:])}: '{wrong[0]}'")


def _versions_of(chosen, gtest_flags):
    """{path: Versions} whose tests were asked for; none for all tests there are."""
    if not chosen.targets and not chosen.version:
        return {}
    if any(flag.startswith("--gtest_filter") for flag in gtest_flags):
        raise UsageError("test: a layer or --version and --gtest_filter exclude each other")
    there = listing.read(paths.ROOT)
    return selection.versions_of(selection.passes(there, chosen.targets), chosen.version or "all")


def build(arguments):
    parser = _parser("build", "Builds, and runs nothing.")
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help="a variable for CMake")
    parser.add_argument(
        "targets", nargs="*", help="all by default; bench_<layer> for one bench program, python for the PyTorch package"
    )
    chosen = parser.parse_args(arguments)
    layers = [layer.name for layer in listing.read(paths.ROOT).layers]
    for target in chosen.targets:
        if target.startswith("bench_") and target[len("bench_") :] not in layers:
            raise UsageError(f"no target '{target}'; there are: {', '.join(f'bench_{layer}' for layer in layers)}")
    preset = _preset(chosen)
    options = _cmake_options(chosen) + [f"-D{one}" for one in chosen.define]
    if "python" in chosen.targets:
        chosen.targets.remove("python")
        package.compile_into(preset, options)
    if chosen.targets or "python" not in arguments:
        builder.build(preset, options, chosen.targets)
    say.line(f"built: {builder.folder(preset)}")
    return 0


def setup(arguments):
    parser = _parser("setup", "Fetches what a build lacks, and nothing else.")
    parser.add_argument("--dev", action="store_true", help="what the checks of the sources need as well")
    parser.add_argument("--torch", action="store_true", help="PyTorch for the tests of python/ as well (4.8 GB)")
    chosen = parser.parse_args(arguments)
    preset = _preset(chosen)
    if setting_up.ensure(preset, again=True):
        builder.forget(preset)
    if chosen.dev:
        setting_up.ensure_dev_tools()
    if chosen.torch:
        package.fetch_torch()
    say.line(f"ready to build {preset}")
    return 0


def table(arguments):
    from readme import ladder_table

    if ladder_table.parse(arguments).check:
        return ladder_table.main(arguments)
    from . import wheels  # matplotlib, which draws the pictures, lives in the private environment

    python = wheels.python_with(wheels.MATPLOTLIB, paths.SETUP_LOG)
    return subprocess.run([python, paths.ROOT / "tools" / "readme" / "ladder_table.py", *arguments]).returncode


def _parser(verb, description):
    parser = Parser(verb, description=description)
    parser.add_device()
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
