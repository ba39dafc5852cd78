"""`./ladder bench <layer>[/<pass>] [flags]`: the layer's bench program, built if need be.

What to run is understood here (registry/selection.py): the program is told numbers and lines. Its other flags come from
bench/flags.json, so that help and every error about them come before anything is fetched or built.
"""

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

from records import record_files, sheet
from registry import listing, selection, sweep

from . import build, device, files, flags, partial, paths, run, say, tools, watch, wheels
from .errors import Failure, UsageError
from .options import Parser, filled

_EXAMPLES = """\
examples (on a GPU; without one everything is checked on the emulator and nothing is timed):
  ./ladder bench conv3x3 --version 7                    check and time one version on three shapes, in one dtype
  ./ladder bench conv3x3 --version 7 --set unet         ... on the U-Net's shapes, in every dtype that it has
  ./ladder bench conv3x3/dgrad --version 5-7 --dtype bf16
  ./ladder bench conv3x3 --version wmma --problem res64
  ./ladder bench conv3x3 --version 7 --problem 'n1 h8 w8 c16 k16 bf16' --check
  ./ladder bench gemm --problem 'm256 n{128..8192*2} k256 {fp32,bf16}' --csv sweep.csv --plot
  ./ladder bench silu --version 2 --baseline mine.py    beside functions of your own in PyTorch
  ./ladder bench conv3x3 --version best --record results/mine.json
Google Benchmark's own flags (--benchmark_filter, --benchmark_repetitions, --benchmark_out=FILE, ...) work as well."""

# Google Benchmark's flags, and the words that some of them take.
_BENCHMARK_FLAGS = (
    "color context counters_tabular display_aggregates_only dry_run enable_random_interleaving filter format list_tests "
    "min_time min_warmup_time out out_format perf_counters repetitions report_aggregates_only time_unit"
).split()
_BENCHMARK_WORDS = {
    "format": ("console", "json", "csv"),
    "out_format": ("console", "json", "csv"),
    "time_unit": ("ns", "us", "ms", "s"),
}
_UNDERSTOOD_HERE = ("--version", "--promoted", "--pass", "--problem", "--set", "--dtype", "--device")


def main(arguments, in_place=True, preset=None):
    """The program's exit status; `in_place` of this process it ends that too. `preset` takes the place of the device's."""
    options, own, foreign = _parse(arguments)
    there = listing.read(paths.ROOT)
    if not options.target:
        layers = ", ".join(layer.name for layer in there.layers)
        raise UsageError(f"bench needs a layer; there are: {layers or 'none yet'}")
    a_pass = selection.one_pass(there, options.target, options.pass_)
    layer = there.layer(a_pass.layer)
    dtypes = selection.dtypes(options.dtype) if options.dtype else []
    lines = _lines(options, layer, dtypes)
    chosen = selection.versions(a_pass, options.version)
    _refuse_without_dtype(options.version, chosen, dtypes)
    choice = device.choose(options.device)
    if preset:
        choice.preset = preset
    if options.plot and choice.preset not in paths.CUDA_PRESETS:
        raise UsageError("--plot draws times, which need a GPU; --csv FILE has what the emulator finds")
    if options.watch:
        return watch.repeated("bench", arguments)
    say.line(choice)
    if options.baseline and options.baseline.endswith(".py") and choice.preset not in paths.CUDA_PRESETS:
        say.line(f"{options.baseline} is not run: a baseline needs a GPU")
    program = f"bench_{layer.name}"
    part = partial.of(program, {a_pass.path: chosen}, options.version)
    missing = build.build(choice.preset, targets=[program], keep_going=True, part=part)
    numbers = [version.number for version in (chosen if part else a_pass.versions)]
    missing = {broken.number: broken for broken in missing if broken.path == a_pass.path and broken.number in numbers}
    absent = [missing[version.number] for version in chosen if version.number in missing]
    if absent and len(absent) == len(chosen):
        raise Failure(absent[0].line)
    command = [str(build.program(choice.preset, program, part)), "--pass", a_pass.name]
    command += selection.program_words(layer, a_pass, options.version, lines, options.set, dtypes, missing)
    command += ["--dtype", ",".join(dtypes) or "all"] if options.dtype else []
    command += [*own, *foreign]
    shown = options.csv or options.plot
    if in_place and not missing and not shown:
        os.execve(command[0], command, tools.environment())
    status = _shown(command, options) if shown else subprocess.run(command, env=tools.environment()).returncode
    for broken in absent or missing.values():
        say.line(f"missing: {broken.line}")
    return status or (1 if absent else 0)


def _shown(command, options):
    """The program's exit status, once what it recorded is a table and a picture too."""
    with tempfile.TemporaryDirectory() as aside:
        record = Path(options.record or f"{aside}/bench.json")
        kept = [] if options.record else [f"--record={record}"]
        status = run.passed_on([*command, *kept], None if options.record else f"record: {record}")
        if not record.exists():
            return status
        if options.csv:
            files.replace(options.csv, sheet.text(record_files.load(record)))
        if options.plot:
            python = wheels.python_with(wheels.MATPLOTLIB if options.plot.name else wheels.PLOTEXT, paths.SETUP_LOG)
            drawn = [options.plot] if options.plot.name else []
            status = subprocess.run([python, Path(__file__).with_name("plot.py"), record, *drawn]).returncode or status
    return status


def _parse(arguments):
    """(options, words for the program's own flags, words for Google Benchmark)."""
    parser = Parser(
        "bench",
        description="Checks and times versions of a layer against the reference and the baseline.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", help=selection.HELP["target"] + "; a layer is its default pass")
    parser.add_selection("version", "set", "dtype", version="all")
    parser.add_argument(
        "--problem",
        action="append",
        default=[],
        help=selection.HELP["problem"] + "; braces make several of it; may be repeated",
    )
    parser.add_argument("--pass", dest="pass_", metavar="PASS", type=filled("pass"), help="as in <layer>/<pass>")
    parser.add_device()
    parser.add_argument("--csv", type=_file(".csv"), metavar="FILE.csv", help="the results, a line each")
    parser.add_argument(
        "--plot",
        nargs="?",
        const=Path(),
        type=_file(".svg"),
        metavar="FILE.svg",
        help="a picture of the times, in the terminal where no file is named",
    )
    parser.add_watch()
    own = flags.Flags(parser, "bench/flags.json", without=_UNDERSTOOD_HERE)
    options, foreign = parser.parse_known_args(arguments)
    for word in foreign:
        _check_foreign(parser, word)
    own.check(options)
    for flag in ("once", "list", "environment"):
        if (options.csv or options.plot) and getattr(options, flag):
            raise UsageError(f"--{flag} measures nothing for {'--csv' if options.csv else '--plot'}")
    if options.baseline and options.baseline.endswith(".py") and not Path(options.baseline).is_file():
        raise UsageError(f"--baseline {options.baseline}: no such file")
    if options.seed:
        selection.seed(options.seed)
    return options, own.words(options), foreign


def _file(suffix):
    """The type of an option that names a file to be written."""

    def path(text):
        file = Path(text)
        if file.suffix != suffix:
            raise argparse.ArgumentTypeError(f"'{text}' does not end in {suffix}")
        if not file.absolute().parent.is_dir():
            raise argparse.ArgumentTypeError(f"no folder {file.parent}")
        return file

    return path


def _lines(options, layer, dtypes):
    """The problems of --problem, as lines."""
    if options.problem and options.set:
        raise UsageError("--problem and --set exclude each other")
    if options.set:
        selection.set_name([layer], options.set)
    texts = [text for words in options.problem for text in sweep.expand(words)]
    lines = [selection.problem(layer, text) for text in texts]
    for text, line in zip(texts, lines):
        own = selection.dtype_of(line)
        if own and dtypes and own not in dtypes:
            raise UsageError(f"--dtype {options.dtype} contradicts the problem '{text}'")
    return lines


def _refuse_without_dtype(text, chosen, dtypes):
    if selection.names_each(text):
        for version in chosen:
            if not selection.having([version], dtypes):
                raise UsageError(f"{version.label} has no {' or '.join(dtypes)}: it has {', '.join(version.dtypes)}")


def _check_foreign(parser, word):
    """Refuses what neither the program nor Google Benchmark knows."""
    flag, _, value = word.partition("=")
    if re.fullmatch(r"--v=\d+", word):
        return
    name = flag[len("--benchmark_") :] if flag.startswith("--benchmark_") else None
    if name not in _BENCHMARK_FLAGS:
        raise UsageError(f"{parser.prog}: unknown argument '{word}'; ./ladder bench --help shows what there is")
    values = _BENCHMARK_WORDS.get(name)
    if values and value not in values:
        raise UsageError(f"{flag}={value}: {', '.join(values)}")
