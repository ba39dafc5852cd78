"""`./ladder diff <layer>/<pass> A B`: compares two versions of a pass: compiled code, errors against the reference and,
on a GPU, times.

The code comparison builds the object files of the two versions only, the errors a program with these versions only.
Times are measured like in compare --live, with versions in place of commits.
"""

import argparse
import difflib
import math
import pydoc
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cli import build, device, partial, paths, tools
from cli.columns import aligned
from cli.errors import Failure, UsageError
from cli.options import Parser
from compare import live
from compare import main as compare
from profiling import where
from records import record_files
from registry import listing, selection

from . import disassembly, resources

_EPILOG = """\
Occupancy is the most that registers, static shared memory and, where the kernel has launch bounds, the block's size
allow; dynamic shared memory is known at launch alone. Instructions are counted as they stand in the code, not as they run.
Errors are ||y - reference|| / ||reference||, the largest of a dtype's problems, on the GPU or else the emulator.
In --sass and --ptx registers have no numbers and jumps no targets, so that only what differs in kind is a difference."""

# {compute capability x 10: (warps, bytes of shared memory, blocks)} of an SM. All have 65,536 registers, allocated to a
# warp in units of 256.
_LIMITS = {
    "80": (64, 164 << 10, 32),
    "86": (48, 100 << 10, 16),
    "89": (48, 100 << 10, 24),
    **dict.fromkeys(("90", "100", "103"), (64, 228 << 10, 32)),
    "120": (48, 100 << 10, 24),
}


@dataclass(frozen=True)
class Kernel:
    name: str  # as in the source, without the version's number: "conv3x3_fprop_kernel<__half, 128>"
    resources: dict  # of resources.parse
    threads: int  # of a block at most; 0 without launch bounds
    mix: dict
    sass: tuple


def main(arguments):
    chosen = _parse(arguments)
    there = listing.read(paths.ROOT)
    a_pass = selection.one_pass(there, chosen.target)
    versions = [_one(a_pass, word) for word in (chosen.a, chosen.b)]
    layer = there.layer(a_pass.layer)
    chosen.chosen = _timed(chosen, layer, a_pass, versions)
    if not where.find("nvcc"):
        raise Failure("diff needs nvcc, which ./ladder setup --preset cuda fetches (1.5 GB)")
    objects = [resources.object_of(version.file, build.folder("cuda")) for version in versions]
    build.build("cuda", targets=[str(each.relative_to(build.folder("cuda"))) for each in objects])
    arch = _arch([_reports(each) for each in objects])
    words = (chosen.kernel[0], chosen.kernel[-1])
    sides = [_kernels(*each, arch) for each in zip(versions, objects, words)]
    pairs = paired(*sides)
    if not pairs:
        raise UsageError(f"no kernel of the two has {' or '.join(dict.fromkeys(words))} in its name")
    labels = [version.label for version in versions]
    if chosen.sass:
        pydoc.pager("\n".join(unified(pairs, labels, lambda kernel, _: kernel.sass)))
    elif chosen.ptx:
        code = [_ptx(version, each, arch) for version, each in zip(versions, objects)]
        pydoc.pager("\n".join(unified(pairs, labels, lambda kernel, at: code[at][kernel.name])))
    else:
        print(f"{a_pass.path} on {arch}, A: {labels[0]}, B: {labels[1]}\n")
        print("\n".join(table(pairs, arch)), flush=True)
        print("\n" + "\n".join(_errors(chosen, layer, a_pass, versions)), flush=True)
        if device.gpu()[0] is not None:
            print("\n" + live.compare_versions(a_pass.path, versions, chosen).text(everything=True), end="")
    return 0


def paired(a, b):
    """[(Kernel of A or None, Kernel of B or None)]. Pairs kernels of the same name first; then a single remaining
    kernel of a side with each kernel of the other side that has its first template argument (usually the dtype)."""
    names = {kernel.name: kernel for kernel in b}
    pairs = [(kernel, names[kernel.name]) for kernel in a if kernel.name in names]
    there = {kernel.name for kernel, _ in pairs}
    rest = [[kernel for kernel in side if kernel.name not in there] for side in (a, b)]
    if [len(side) for side in rest] == [1, 1]:
        return [*pairs, (rest[0][0], rest[1][0])]
    for first in dict.fromkeys(_first_argument(kernel) for side in rest for kernel in side):
        of_a, of_b = ([kernel for kernel in side if _first_argument(kernel) == first] for side in rest)
        if 1 in (len(of_a), len(of_b)) and of_a and of_b:
            pairs += [(one, other) for one in of_a for other in of_b]
        else:
            pairs += [*((kernel, None) for kernel in of_a), *((None, kernel) for kernel in of_b)]
    return pairs


def table(pairs, arch):
    """Lines of a table: a kernel's name, then a row per version. Omits classes of instructions that no kernel has."""
    kernels = [kernel for pair in pairs for kernel in pair if kernel]
    classes = [name for name in disassembly.CLASSES if any(kernel.mix[name] for kernel in kernels)]
    rows = [("", "registers", "static smem", "spilled bytes", "threads", "occupancy", "instructions", *classes)]
    for pair in pairs:
        rows += [_row(name, kernel, arch, classes) for name, kernel in zip("AB", pair) if kernel]
    lines = aligned(rows, right=range(1, len(rows[0])))
    shown, rest = lines[:1], iter(lines[1:])
    for pair in pairs:
        there = [kernel for kernel in pair if kernel]
        shown += [" and ".join(dict.fromkeys(kernel.name for kernel in there)), *(next(rest) for _ in there)]
    return shown


def error_table(results, versions, backend):
    """Lines of a table: the largest error per dtype, a row per version."""
    dtypes = [dtype for dtype in listing.DTYPES if any(result.dtype == dtype for result in results)]
    rows = [(f"largest error, set ci, {backend}", *dtypes)]
    for name, version in zip("AB", versions):
        of_version = [result for result in results if result.version == version.number]
        rows.append((name, *(_largest([one for one in of_version if one.dtype == dtype]) for dtype in dtypes)))
    return aligned(rows, right=range(1, len(rows[0])))


def _largest(results):
    errors = [result.error for result in results if math.isfinite(result.error)]
    failed = any(result.status == "FAIL" for result in results)
    return " ".join([*([f"{max(errors):.1e}"] if errors else []), *(["FAIL"] if failed else [])])


def unified(pairs, labels, code_of):
    """Yields a unified diff of each pair of kernels. `code_of(kernel, 0 or 1)`: the lines of A's or B's kernel."""
    both = [pair for pair in pairs if all(pair)]
    if not both:
        raise Failure("the versions have no kernel in common: --kernel names one of each")
    for a, b in both:
        code = [list(code_of(kernel, at)) for at, kernel in enumerate((a, b))]
        names = [f"{label} {kernel.name}" for label, kernel in zip(labels, (a, b))]
        lines = list(difflib.unified_diff(*code, *names, lineterm=""))
        yield from lines or [f"{names[0]}: the same in {labels[1]}"]


def occupancy(arch, registers, smem_bytes, threads):
    """Theoretical occupancy, 0 to 1; None for an unknown architecture. `threads` is the block size, 0 if unknown."""
    limits = _LIMITS.get(re.sub(r"\D", "", arch))
    if not limits or not registers:
        return None
    most_warps, most_smem, most_blocks = limits
    warps = -(-threads // 32) or 1
    by_registers = 65536 // (-(-registers * 32 // 256) * 256) // 4 * 4  # each of 4 SM partitions has a quarter of them
    blocks = min(by_registers // warps, most_warps // warps)
    if threads:
        blocks = min(blocks, most_blocks, most_smem // (smem_bytes + 1024))  # the driver reserves 1 KB per block
    return blocks * warps / most_warps


def _row(name, kernel, arch, classes):
    found = kernel.resources
    most = occupancy(arch, found["registers"], found["static_smem_bytes"], kernel.threads)
    figures = (
        found["registers"],
        found["static_smem_bytes"],
        found["spill_store_bytes"] + found["spill_load_bytes"],
        kernel.threads or "",
        "" if most is None else f"{100 * most:.0f} %",
        kernel.mix["all"],
        *(kernel.mix[each] for each in classes),
    )
    return (name, *map(str, figures))


def _errors(chosen, layer, a_pass, versions):
    """error_table() of the two versions on the set ci, run by a program with these versions only."""
    choice = device.choose()
    numbers = ",".join(str(version.number) for version in versions)
    program = f"bench_{layer.name}"
    part = partial.of(program, {a_pass.path: versions}, numbers)
    build.build(choice.preset, targets=[program], part=part)
    command = [build.program(choice.preset, program, part), "--pass", a_pass.name, "--check"]
    command += ["--seed", "1"]  # the same inputs in every run
    command += selection.program_words(layer, a_pass, numbers, a_set="ci")
    command += ["--dtype", chosen.dtype] if chosen.dtype else []
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside) / "errors.json"
        done = tools.captured(*command, "--record", file)
        if not file.exists():
            raise Failure(f"{program} checked nothing: {tools.last_line(done.stderr, done.stdout)}")
        return error_table(record_files.load(file).results, versions, choice.preset)


def _kernels(version, object_file, wanted, arch):
    """[Kernel] of a version with `wanted` in the name."""
    reports = {each["kernel"]: each for each in _reports(object_file) if each["arch"] == arch}
    code = disassembly.sass(object_file, arch)
    threads = disassembly.block_sizes(object_file, arch)
    return [
        Kernel(name, reports[symbol], threads.get(symbol, 0), code[symbol].mix, code[symbol].lines)
        for symbol, name in _names(version, list(reports)).items()
        if wanted in name
    ]


def _ptx(version, object_file, arch):
    """{Kernel's name: lines of PTX}. Keys are not symbols: nvcc gives an anonymous namespace a new name each time."""
    code = disassembly.ptx(version.file, object_file, arch)
    return {name: code[symbol] for symbol, name in _names(version, list(code)).items()}


def _names(version, symbols):
    """{symbol: Kernel's name}."""
    number = rf"_v{version.number:02d}(?=_)"
    return {
        symbol: re.sub(number, "", name.removeprefix("void ")) for symbol, name in resources.demangle(symbols).items()
    }


def _reports(object_file):
    report = object_file.with_suffix(".o.ptxas")
    return resources.parse(report.read_text(encoding="utf-8") if report.exists() else "", "")


def _arch(reports):
    """The newest architecture that both versions are compiled for."""
    both = set.intersection(*({kernel["arch"] for kernel in side} for side in reports))
    if not both:
        raise Failure("the versions have no kernels for the same architecture")
    return max(both, key=lambda arch: int(re.sub(r"\D", "", arch)))


def _first_argument(kernel):
    found = re.search(r"<(\w+)", kernel.name)
    return found[1] if found else ""


def _one(a_pass, word):
    found = selection.versions(a_pass, word)
    if len(found) != 1:
        raise UsageError(
            f"'{word}' is {len(found)} versions of {a_pass.path}: {', '.join(each.label for each in found)}"
        )
    return found[0]


def _timed(options, layer, a_pass, versions):
    """The live.Chosen of the options. Throws UsageError if a version lacks the chosen dtypes."""
    if options.set_name:
        selection.set_name([layer], options.set_name)
    problems = {layer.name: selection.problem(layer, options.problem)} if options.problem else {}
    dtypes = selection.dtypes(options.dtype) if options.dtype else []
    for version in versions:
        if not selection.having([version], dtypes):
            raise UsageError(f"{version.label} has no {' or '.join(dtypes)}: it has {', '.join(version.dtypes)}")
    return live.Chosen((a_pass.path,), True, None, problems, tuple(dtypes))


def _parse(arguments):
    parser = Parser(
        "diff",
        description="Two versions of a pass side by side: registers, memory, instructions, errors and, on a GPU, times.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", help=selection.HELP["target"] + "; a layer is its default pass")
    parser.add_argument("a", metavar="A", help="a version: 7, v07, or a word that it alone has")
    parser.add_argument("b", metavar="B", help="another")
    parser.add_argument(
        "--kernel",
        nargs="+",
        default=[""],
        metavar="WORD",
        help="only kernels with that in their name; or A's and B's word",
    )
    parser.add_selection("problem", "dtype")
    compare.add_timing(parser.add_argument_group("timing, on a GPU"))
    code = parser.add_mutually_exclusive_group()
    code.add_argument("--sass", action="store_true", help="the difference of their machine code")
    code.add_argument("--ptx", action="store_true", help="the difference of their PTX")
    chosen = parser.parse_args(arguments)
    chosen.version = f"{chosen.a},{chosen.b}"
    if chosen.set_name and chosen.problem:
        parser.error("--set and --problem exclude each other")
    if len(chosen.kernel) > 2:
        parser.error(f"--kernel takes a word, or one of A and one of B, not {len(chosen.kernel)}")
    return chosen
