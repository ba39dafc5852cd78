"""`./ladder bench <layer>[/<pass>] [flags]`: the layer's bench program, built if need be.

Its flags are the program's own (bench/options.cpp), which are known here too, so that help and every error about them
come before anything is fetched or built.
"""

import argparse
import os
import re
import subprocess

from registry import listing, selection

from . import build, device, paths, say, setup, tools
from .errors import Failure, UsageError
from .options import Parser, filled

_EXAMPLES = """\
examples (on a GPU; without one everything is checked on the emulator and nothing is timed):
  ./ladder bench conv3x3 --version 7                    check and time one version on the U-Net's shapes
  ./ladder bench conv3x3/dgrad --version 5-7 --dtype bf16
  ./ladder bench conv3x3 --version wmma --problem res64
  ./ladder bench conv3x3 --version 7 --problem 'n1 h8 w8 c16 k16 bf16' --check
  ./ladder bench conv3x3 --version best --record results/mine.json
Google Benchmark's own flags (--benchmark_filter, --benchmark_repetitions, --benchmark_out=FILE, ...) work as well."""

# Google Benchmark's flags; those with a list take one of its words.
_BENCHMARK_FLAGS = {
    "color": None,
    "context": None,
    "counters_tabular": None,
    "display_aggregates_only": None,
    "dry_run": None,
    "enable_random_interleaving": None,
    "filter": None,
    "format": ("console", "json", "csv"),
    "list_tests": None,
    "min_time": None,
    "min_warmup_time": None,
    "out": None,
    "out_format": ("console", "json", "csv"),
    "perf_counters": None,
    "repetitions": None,
    "report_aggregates_only": None,
    "time_unit": ("ns", "us", "ms", "s"),
}
_SCHEDULE = re.compile(r"asc|desc|(random|greedy)(:\d+)?")


def main(arguments):
    options, own = _parse(arguments)
    there = listing.read(paths.ROOT)
    if not options.target:
        layers = ", ".join(layer.name for layer in there.layers)
        raise UsageError(f"bench needs a layer; there are: {layers or 'none yet'}")
    a_pass = selection.one_pass(there, options.target, options.pass_)
    _check(options, there, a_pass)
    choice = device.choose(options.device)
    say.line(choice)
    program = f"bench_{a_pass.layer}"
    missing = ready(choice.preset, [program], keep_going=True)
    missing = {broken.number: broken for broken in missing if broken.path == a_pass.path}
    command = [str(build.folder(choice.preset) / program), "--pass", a_pass.name, *own]
    if not missing:
        os.execve(command[0], command, tools.environment())
    return _without(missing, command, a_pass, options)


def ready(preset, programs, keep_going=False):
    """Fetches what is missing and builds `programs`; the versions that did not compile, where that is to stop no other."""
    if setup.ensure(preset):
        build.forget(preset)
    return build.build(preset, targets=programs, keep_going=keep_going)


def _without(missing, command, a_pass, options):
    """Runs what is asked for but the `missing` versions, and names those at the end."""
    wanted = selection.versions(a_pass, options.version)
    absent = [missing[version.number] for version in wanted if version.number in missing]
    if absent and len(absent) == len(wanted):
        raise Failure(absent[0].line)
    if absent and selection.names_each(options.version):
        left = [str(version.number) for version in wanted if version.number not in missing]
        command = _with_version(command, ",".join(left))
    status = subprocess.run(command, env=tools.environment()).returncode
    for broken in absent or missing.values():
        say.line(f"missing: {broken.line}")
    return status or (1 if absent else 0)


def _with_version(command, text):
    at = next(at for at, word in enumerate(command) if word == "--version" or word.startswith("--version="))
    behind = at + (2 if command[at] == "--version" else 1)
    return [*command[:at], "--version", text, *command[behind:]]


def flags():
    """Those of the program."""
    return [flag for action in _parser()._actions for flag in action.option_strings if flag.startswith("--")]


def _parse(arguments):
    """(options, the words that go to the program)."""
    parser = _parser()
    options, more = parser.parse_known_args(arguments)
    for word in more:
        _check_foreign(parser, word)
    return options, _without_target(arguments, options.target)


def _parser():
    parser = Parser(
        "bench",
        description="Checks and times versions of a layer against the reference and the baseline.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", help=selection.HELP["target"] + "; a layer is its default pass")
    own = parser.add_argument_group("what to run")
    for name, default in (("version", "all"), ("pass", None), ("set", None), ("dtype", None)):
        help_text = selection.HELP.get(name, "as in <layer>/<pass>")
        own.add_argument(
            f"--{name}",
            dest="pass_" if name == "pass" else name,
            type=filled(name),
            default=default,
            help=f"{help_text} (default: all)" if default else help_text,
        )
    own.add_argument("--problem", action="append", default=[], help=selection.HELP["problem"] + "; may be repeated")
    how = parser.add_argument_group("how")
    how.add_argument("--device", type=filled("device"), help="gpu or emulator (default: the GPU where there is one)")
    how.add_argument("--check", action="store_true", help="check only")
    how.add_argument("--time", action="store_true", help="check and time: the default on a GPU")
    how.add_argument(
        "--unchecked",
        action="store_true",
        help="cold samples and a digest of the output, without reference or baseline: for comparing two builds",
    )
    how.add_argument(
        "--inject-slowdown",
        type=_percent,
        metavar="PERCENT",
        help="with --unchecked: a kernel behind each "
        "sample's own spins for so many percent of it, to show what a comparison can see",
    )
    how.add_argument("--once", action="store_true", help="exactly one launch, in an NVTX range, for a profiler")
    how.add_argument("--list", action="store_true", help="list the versions and leave")
    how.add_argument(
        "--environment", action="store_true", help="print what a record would say of this machine and build"
    )
    how.add_argument("--seed", type=selection.seed, help="of the inputs (default: another one every run)")
    how.add_argument(
        "--schedule",
        type=filled("schedule"),
        help="in which order the emulator runs threads: asc, desc, random:7, greedy:7",
    )
    how.add_argument("--record", type=filled("record"), metavar="FILE", help="write everything measured as JSON")
    how.add_argument("--resume", action="store_true", help="go on with the --record that was interrupted")
    how.add_argument("--samples", type=_samples, help="cold samples a version (default: 30)")
    how.add_argument(
        "--baseline", choices=("all", "listed", "heuristic", "none"), help="how far to look for the library's best plan"
    )
    return parser


def _without_target(arguments, target):
    """The first word that is `target` is not the program's; none of its flags' values can be a layer's name."""
    at = arguments.index(target) if target in arguments else len(arguments)
    return [*arguments[:at], *arguments[at + 1 :]]


def _check_foreign(parser, word):
    """Refuses what neither the program nor Google Benchmark knows."""
    flag, _, value = word.partition("=")
    if re.fullmatch(r"--v=\d+", word):
        return
    name = flag[len("--benchmark_") :] if flag.startswith("--benchmark_") else None
    if name not in _BENCHMARK_FLAGS:
        raise UsageError(f"{parser.prog}: unknown argument '{word}'; ./ladder bench --help shows what there is")
    values = _BENCHMARK_FLAGS[name]
    if values and value not in values:
        raise UsageError(f"{flag}={value}: {', '.join(values)}")


def _check(options, there, a_pass):
    layer = there.layer(a_pass.layer)
    chosen = selection.versions(a_pass, options.version)
    if options.problem and options.set:
        raise UsageError("--problem and --set exclude each other")
    if options.set:
        selection.set_name([layer], options.set)
    dtypes = selection.dtypes(options.dtype) if options.dtype else []
    for problem in options.problem:
        own = selection.dtype_of(selection.problem(layer, problem))
        if own and dtypes and own not in dtypes:
            raise UsageError(f"--dtype {options.dtype} contradicts the problem '{problem}'")
    if selection.names_each(options.version):
        for version in chosen:
            if dtypes and version.dtypes and not set(dtypes) & set(version.dtypes):
                raise UsageError(f"{version.label} has no {' or '.join(dtypes)}: it has {', '.join(version.dtypes)}")
    if options.schedule and not _SCHEDULE.fullmatch(options.schedule):
        raise UsageError(f"--schedule '{options.schedule}': asc, desc, random:7 or greedy:7")
    if options.check + options.time + options.unchecked + options.once > 1:
        raise UsageError("--check, --time, --unchecked and --once exclude each other")
    if options.inject_slowdown is not None and not options.unchecked:
        raise UsageError("--inject-slowdown makes no figure: it needs --unchecked")
    if options.resume and not options.record:
        raise UsageError("--resume needs the --record FILE to go on with")


def _samples(text):
    if not re.fullmatch(r"[0-9]+", text) or not 1 <= int(text) <= 100000:
        raise UsageError(f"--samples '{text}': a whole number from 1 to 100000")
    return int(text)


def _percent(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1000:
        raise UsageError(f"--inject-slowdown '{text}': percent, from 0 to 1000")
    return value
