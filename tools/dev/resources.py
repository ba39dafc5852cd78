"""`./ladder resources`: registers, shared memory and spills of a CUDA build's kernels, from ptxas's reports beside its objects.

Exits 1 if a kernel spills and its file's header comment has no line that begins with "Spills:", if ptxas has serialized a
kernel's wgmma instructions, which it says in passing and which costs half of their speed, or if a file has no report.
JSON: a list of {file, kernel, arch, registers, static_smem_bytes, stack_bytes, spill_store_bytes, spill_load_bytes}, an
entry a kernel and architecture.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cli import options, say
from cli.columns import aligned
from records import current
from registry import listing, selection

ROOT = Path(__file__).resolve().parents[2]

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_SERIALIZED = re.compile(r"wgmma\S* instructions are serialized due to (.*?) in (?:the )?function '(\w+)'")


def parse(report, file):
    """The kernels of one object's report."""
    kernels = []
    for line in report.splitlines():
        entry = _ENTRY.search(line)
        if entry:
            kernels.append(
                {
                    "file": file,
                    "kernel": entry[1],
                    "arch": entry[2],
                    "registers": 0,
                    "static_smem_bytes": 0,
                    "stack_bytes": 0,
                    "spill_store_bytes": 0,
                    "spill_load_bytes": 0,
                }
            )
        elif kernels and (stack := _STACK.search(line)):
            kernels[-1].update(
                stack_bytes=int(stack[1]), spill_store_bytes=int(stack[2]), spill_load_bytes=int(stack[3])
            )
        elif kernels and (used := _USED.search(line)):
            smem = _SMEM.search(line)
            kernels[-1].update(registers=int(used[1]), static_smem_bytes=int(smem[1]) if smem else 0)
    return kernels


def admits_spills(source):
    """True if the header comment says "Spills:"."""
    for line in source.splitlines():
        if not line.startswith("//"):
            return False
        if re.match(r"//\s*Spills:", line):
            return True
    return False


def complaints(kernels, source_of):
    """Lines about kernels that spill in silence; `source_of(file)` gives a file's text."""
    lines = []
    for kernel in kernels:
        spilled = kernel["spill_store_bytes"] + kernel["spill_load_bytes"]
        if spilled and not admits_spills(source_of(kernel["file"])):
            lines.append(
                f"{kernel['file']}: {kernel['kernel']} spills on {kernel['arch']} "
                f"({kernel['spill_store_bytes']} bytes stored, {kernel['spill_load_bytes']} loaded); its "
                "header comment has no 'Spills:' line that says why"
            )
    return lines


def serialized(report):
    """{kernel: why} of those of one object's report whose wgmma instructions wait for each other."""
    return {kernel: why for why, kernel in _SERIALIZED.findall(report)}


def demangle(names):
    """Short readable names, template arguments kept: "conv3x3_fprop_v07_kernel<__half, 128, false>"."""
    if not shutil.which("c++filt"):
        return {name: name for name in names}
    done = subprocess.run(["c++filt", "-p"], input="\n".join(names), stdout=subprocess.PIPE, text=True)
    short = [
        re.sub(r"\(anonymous namespace\)::|\b_GLOBAL__N_\w+::|\bladder::(\w+::)?", "", line)
        for line in done.stdout.splitlines()
    ]
    return dict(zip(names, short))


def sources(passes=None):
    """The files of the versions of some Passes, by default of all, and of kernels that their layers' versions share."""
    if passes is None:
        passes = listing.read(ROOT).passes
    files = {version.file for a_pass in passes for version in a_pass.versions}
    return sorted(files.union(*((ROOT / "dev" / layer).glob("*.cu") for layer in {each.layer for each in passes})))


def object_of(source, build):
    """The object file that a build makes of a source."""
    file = source.relative_to(ROOT)
    return build / "CMakeFiles" / f"ladder_{file.parts[1]}.dir" / f"{file}.o"


def left_out(build):
    """The sources that a build was told to do without."""
    cache = build / "CMakeCache.txt"
    said = re.search(r"^LADDER_WITHOUT:STRING=(.+)$", cache.read_text(encoding="utf-8") if cache.exists() else "", re.M)
    return {ROOT / file for file in said[1].split(";")} if said else set()


def collect(build, passes=None):
    """The kernels built there, and what is wrong with the reports: missing ones, serialized kernels."""
    without = left_out(build)
    return of_files([source for source in sources(passes) if source not in without], build)


def of_files(sources, build):
    kernels, waiting, wrong = [], [], []
    for source in sources:
        file = str(source.relative_to(ROOT))
        report = object_of(source, build).with_suffix(".o.ptxas")
        text = report.read_text(encoding="utf-8") if report.exists() else ""
        found = parse(text, file)
        kernels += found
        waiting += [(file, kernel, why) for kernel, why in serialized(text).items()]
        if not found:
            wrong.append(f"{file}: no ptxas report in {build}; build it first: ./ladder build --preset cuda")
    if wrong and not kernels:
        wrong = [f"no ptxas report in {build}; build first: ./ladder build --preset cuda"]
    names = demangle(sorted({kernel["kernel"] for kernel in kernels}))
    for kernel in kernels:
        kernel["kernel"] = names[kernel["kernel"]]
    wrong += [
        f"{file}: ptxas serializes the wgmma instructions of {names[kernel]}: {why}; a wgmma_fence() belongs after "
        "every wait, before the multiplications that follow it"
        for file, kernel, why in waiting
    ]
    return kernels, wrong


def table(kernels):
    """A line a version and architecture: its largest kernel's figures, and all spilled bytes."""
    groups = {}
    for kernel in kernels:
        groups.setdefault((kernel["file"], kernel["arch"]), []).append(kernel)
    rows = [("layer", "pass", "version", "arch", "kernels", "registers", "static smem", "spilled bytes")]
    for (file, arch), group in groups.items():
        layer, *a_pass, _ = Path(file).parts[1:]  # no pass: a file that the layer's versions share
        spilled = sum(kernel["spill_store_bytes"] + kernel["spill_load_bytes"] for kernel in group)
        rows.append(
            (
                layer,
                "".join(a_pass),
                Path(file).stem,
                arch,
                str(len(group)),
                str(max(kernel["registers"] for kernel in group)),
                str(max(kernel["static_smem_bytes"] for kernel in group)),
                str(spilled),
            )
        )
    return "\n".join(aligned(rows, right=range(4, 8)))


def main(arguments):
    parser = options.Parser(
        "resources",
        description="Registers, shared memory and spills of a CUDA build's kernels, "
        "from ptxas's reports beside its objects.",
    )
    parser.add_argument("target", nargs="?", help=selection.HELP["target"] + " (default: all)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "cuda", help="its folder (default: build/cuda)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="digests of the kernels' machine code into results/machine_code.json, by which tables tell results of older code",
    )
    chosen = parser.parse_args(arguments)

    folder = chosen.build.resolve()
    passes = selection.passes(listing.read(ROOT), [chosen.target] if chosen.target else [])
    kernels, wrong = collect(folder, passes)
    if not kernels and not wrong:
        wrong = ["dev/ has no versions"]
    if kernels:
        print(table(kernels))
    if chosen.json:
        chosen.json.write_text(json.dumps(kernels, indent=1) + "\n", encoding="utf-8")
    if chosen.keep and kernels:
        from . import machine_code  # which has use of this module

        if current.keep(ROOT / "results", machine_code.of_build(folder, passes)):
            say.line(f"results/{current.NAME} has other digests than before; next: ./ladder table")
    problems = wrong + complaints(kernels, lambda file: (ROOT / file).read_text(encoding="utf-8"))
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(options.run(main))
