"""`./ladder debug <layer>/<pass> --version N --problem P`: one version under gdb (cuda-gdb on a GPU), stopped in one
thread at the beginning of its kernel. Recompiles that version's file alone, with all symbols."""

import argparse
import os
import re
import shutil

from registry import listing, selection

from . import build, device, digests, files, partial, paths, run, say, setup, tools
from .errors import Failure, UsageError
from .options import Parser

_EXAMPLES = """\
examples:
  ./ladder debug conv3x3 --version 7 --problem 'n1 h8 w8 c16 k16 bf16'
  ./ladder debug conv3x3 --version 7 --problem square --block 1,0,0 --thread 5
  ./ladder debug silu/forward --version 1 --problem odd -- --batch -ex 'print threadIdx.x' -ex backtrace"""

_KERNEL = re.compile(
    r"__global__\s+(?:\w+\s*(?:\((?:[^()]|\([^()]*\))*\))?\s+)*?void\s+(?:__launch_bounds__\s*\([^;{]*?\)\s*)?(\w+)\s*\("
)
# Expressions for the running thread's block and thread index, valid before the debugger knows a kernel's macros.
_CURRENT = {"emulator": "ladder::simt::detail::current->{0}_idx", "cuda": "{0}Idx"}
_SCRIPT = """\
set breakpoint pending off
set debuginfod enabled off
set print thread-events off
directory {root}
{breaks}
run
if !$_isvoid($_exitcode)
  echo no kernel of it ran in block {block}, thread {thread}\\n
  {end}
end
"""


def main(arguments):
    ours, gdbs = _split(arguments)
    chosen = _parse(ours)
    there = listing.read(paths.ROOT)
    a_pass = selection.one_pass(there, chosen.target)
    if not chosen.version or not chosen.problem:
        raise UsageError("debug needs --version and --problem")
    version, *more = selection.versions(a_pass, chosen.version)
    if more:
        raise UsageError(f"--version '{chosen.version}' is several, and debug takes one")
    line = selection.problem(there.layer(a_pass.layer), chosen.problem)
    choice = device.choose(chosen.device)
    say.line(choice)
    debugger = _debugger(choice.preset)
    part = partial.debugged(f"bench_{a_pass.layer}", a_pass, version)
    build.build(choice.preset, part=part)
    folder = build.folder(choice.preset)
    breaks = _breaks(choice.preset, _kernels(version.file, folder / part.debugged_object), chosen)
    script = (folder / part.target).with_suffix(".gdb")
    end = "quit 1" if {"-batch", "--batch"} & set(gdbs) else ""
    block, thread = _shown(chosen.block), _shown(chosen.thread)
    files.replace(script, _SCRIPT.format(root=paths.ROOT, breaks=breaks, block=block, thread=thread, end=end))
    program = [folder / part.target, "--pass", a_pass.name, "--version", version.number, "--problem", line, "--once"]
    program += ["--dtype", chosen.dtype] if chosen.dtype else []
    os.environ["LADDER_WATCHDOG_SECONDS"] = "0"  # a thread stopped by the debugger does not hang
    run.handed_over([debugger, "-q", "-x", script, *gdbs, "--args", *program])


def _split(arguments):
    """(arguments before "--", arguments after it); the latter go to the debugger."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def _parse(arguments):
    parser = Parser(
        "debug",
        description="One version under gdb, its file compiled with all symbols, stopped in one thread at the beginning of its "
        "kernel. On a GPU the debugger is cuda-gdb. Words after -- are the debugger's.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", help=selection.HELP["target"] + "; a layer is its default pass")
    parser.add_selection("version", "problem", "dtype")
    for name in ("block", "thread"):
        parser.add_argument(f"--{name}", type=_index, default=(0, 0, 0), metavar="X[,Y[,Z]]", help="default: 0,0,0")
    parser.add_device()
    return parser.parse_args(arguments)


def _index(text):
    """Parses a block or thread index: "5" is (5, 0, 0)."""
    if not re.fullmatch(r"\d+(,\d+){0,2}", text):
        raise argparse.ArgumentTypeError(f"'{text}': one to three numbers, with commas between")
    numbers = [int(word) for word in text.split(",")]
    return tuple(numbers + [0, 0, 0])[:3]


def _shown(index):
    return f"({','.join(map(str, index))})"


def _debugger(preset):
    if preset == "emulator":
        return setup.program("gdb", "gdb")
    found = shutil.which("cuda-gdb", path=f"{os.environ.get('PATH')}:/usr/local/cuda/bin:/opt/cuda/bin")
    if not found:
        raise Failure("no cuda-gdb: it comes with the CUDA toolkit; --device emulator debugs with gdb")
    return found


def _kernels(source, compiled):
    """Names of the kernels in the object file `compiled` that `source` or its headers in dev/ define."""
    names = {
        name for file in digests.with_includes({source}) for name in _KERNEL.findall(file.read_text(encoding="utf-8"))
    }
    symbols = tools.captured("nm", "-C", compiled).stdout
    found = sorted(name for name in names if re.search(rf"\b{name}\b", symbols))
    if not found:
        raise Failure(
            f"{files.shown(source)} has no kernel of its own to stop at: debug the version that does its work"
        )
    return found


def _breaks(preset, kernels, chosen):
    current = [_CURRENT[preset].format(name) for name in ("block", "thread")]
    where = " && ".join(
        f"{name}.{axis} == {number}"
        for name, index in zip(current, (chosen.block, chosen.thread))
        for axis, number in zip("xyz", index)
    )
    # cuda-gdb resolves threadIdx only after the kernel is loaded.
    force, first = ("-force-condition ", "set cuda api_failures ignore\n") if preset == "cuda" else ("", "")
    return first + "\n".join(f"tbreak {kernel} {force}if {where}" for kernel in kernels)
