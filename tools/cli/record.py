"""`./ladder record`: every version checked and timed on the GPU, into one new file of results/.

The results of each bench program lie in <name>.partial/ until all are there, so an interrupted recording goes on with
--resume. A record that exists is never written again. --missing and --stale record what has no record (record_missing.py).
"""

import argparse
import re
from pathlib import Path

from registry import listing, selection

from . import device, flags, paths, record_missing, say
from .device import read_machine
from .errors import Failure, UsageError
from .options import Parser, filled
from .recording import Recording, build_programs

_BASELINE = "all"  # promotions count no record without a full search


def main(arguments):
    options = _parse(arguments)
    there = listing.read(paths.ROOT)
    chosen = _chosen(options, there)
    if options.missing or options.stale:
        return record_missing.main(options, chosen, arguments)
    model, why = device.gpu()
    if model is None:
        raise Failure(f"record needs a GPU: {why}; ./ladder bench checks kernels without one")
    say.line(f"GPU build ({model})")
    programs, kernels, code = build_programs(chosen)
    parts = _parts(options, there, chosen)
    return Recording(options, parts, programs, options.results, kernels, code, read_machine).run()


def _parse(arguments):
    parser = Parser(
        "record",
        description="Checks and times versions on the GPU, "
        "beside the baseline, into results/<device>/<date>_<commit>.json.xz.",
    )
    parser.add_argument("layers", nargs="*", help=selection.HELP["target"] + " (default: all)")
    parser.add_selection("version", "set", "problem", version="all")
    parser.add_argument("--dtype", type=selection.dtypes, help=selection.HELP["dtype"] + " (default: all)")
    parser.add_argument("--seed", type=selection.seed, help="of the inputs (default: another one every run)")
    parser.add_argument("--tag", type=_tag, help="a word for the file's name, for a second record of the same commit")
    parser.add_argument("--results", type=Path, default=paths.ROOT / "results", help="folder of the records")
    parser.add_argument("--resume", action="store_true", help="go on with the recording that was interrupted")
    notes = {"--baseline": f"default: {_BASELINE}"}
    own = flags.Flags(parser, "bench/flags.json", notes, only=("--samples", "--baseline"))
    missing = parser.add_argument_group("what has no record yet")
    missing.add_argument("--missing", action="store_true", help="record only results that this GPU has no record of")
    missing.add_argument(
        "--stale",
        action="store_true",
        help="record only results that this GPU has no record of by today's machine code: first what is promoted or in the "
        "training step, then --set (default: perf) of all versions, then what was recorded before",
    )
    missing.add_argument("--list", action="store_true", help="only say what that is; needs no GPU, --stale a build")
    missing.add_argument("--minutes", type=_minutes, help="begin nothing that would end later than this")
    missing.add_argument(
        "--device",
        type=filled("device"),
        metavar="SLUG",
        help="whose records count, a folder of results/ (default: the GPU here, else the one with the newest record)",
    )
    options = parser.parse_args(arguments)
    if options.baseline and options.baseline.endswith(".py"):
        raise UsageError("records are kept beside the libraries; a baseline of your own is for ./ladder bench")
    options.baseline = options.baseline or _BASELINE
    options.own = own.words(options)
    given = [f"--{name}" for name in ("list", "minutes", "device") if getattr(options, name)]
    kinds = [f"--{name}" for name in ("missing", "stale") if getattr(options, name)]
    if given and not kinds:
        raise UsageError(f"{given[0]} needs --missing or --stale: ./ladder record --stale {given[0]}")
    if len(kinds) == 2:
        raise UsageError("--missing and --stale exclude each other: what is missing is stale too")
    if kinds and options.version == "best":
        raise UsageError(f"{kinds[0]} and --version best exclude each other: what is promoted comes first anyway")
    if kinds and options.resume:
        raise UsageError(f"{kinds[0]} and --resume exclude each other: {kinds[0]} goes on by itself")
    return options


def _minutes(text):
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not float(text) > 0:
        raise argparse.ArgumentTypeError(f"'{text}': a number above 0")
    return float(text)


def _tag(text):
    if not re.fullmatch(r"[A-Za-z0-9-]+", text):
        raise argparse.ArgumentTypeError(f"'{text}': letters, digits and dashes")
    return text


def _chosen(options, there):
    """{"layer/pass": Versions} of the asked passes that have what --version says."""
    chosen = selection.passes(there, options.layers)
    layers = selection.layers_of(there, chosen)
    if options.problem:
        problems = selection.problems_of(layers, options.problem)
        chosen = [a_pass for a_pass in chosen if a_pass.layer in problems]
    else:
        for layer in layers:
            selection.set_name([layer], _set(options, layer))
    return selection.versions_of(chosen, options.version)


def _parts(options, there, chosen):
    """The measurements of each run of a bench program: its "layer/pass", a dtype or None for all, and its other arguments."""
    wanted = [(path, dtype) for path in chosen for dtype in options.dtype or [None]]
    return [[path, dtype, _bench_arguments(options, there, path, dtype, options.version)] for path, dtype in wanted]


def _bench_arguments(options, there, path, dtype, version):
    layer = there.layer(path.split("/")[0])
    lines = [selection.problem(layer, options.problem)] if options.problem else []
    what = selection.program_words(
        layer, there.find(path), version, lines, None if lines else _set(options, layer), [dtype] if dtype else ()
    )
    return [*what, *options.own, *(["--seed", str(options.seed)] if options.seed is not None else [])]


def _set(options, layer):
    """The set to record of a layer: the U-Net's problems, or the few of perf where it is none of the U-Net's."""
    return options.set or ("unet" if "unet" in layer.sets else "perf")
