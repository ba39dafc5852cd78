"""`./ladder port`: a kernel of another project as the next version's file, and a list of what is left to do by hand."""

import argparse
import re
from pathlib import Path

from registry import listing, selection

from . import constructs, cuda_source, new, paths, port_launch, say
from .errors import UsageError
from .options import Parser, filled

_EXAMPLES = """\
examples:
  ./ladder port my_softmax.cu --as softmax/forward
  ./ladder port kernel.cu --as softmax/forward --name warp_rows --entry 'softmax<256><<<m, 256>>>(x, y, n)'
The names of an entry are the pass's tensors, its problem's sizes, and stream. docs/port.md shows a port step by step."""
_ENTRY = "as in --entry 'softmax<256><<<m, 256, 0, stream>>>(x, y, n)'"
_MOST_SOURCE = 1 << 20  # bytes
# Lines of the preprocessor that are of no use here: headers that core/device.h has or that are the host's, and its macros.
_DROPPED = re.compile(
    r"#\s*(?:pragma\s+once|include\s*[<\"](?:cuda(?:_runtime\w*|_[bf]\w+)?\.h|cu(?:blas|dnn)\w*\.h|mma\.h|device_launch\w*\.h|"
    r"vector(?:_types\.h)?|\w*(?:stdio|stdlib|stream|stdexcept)(?:\.h)?|string|chrono|random|memory|time\.h)[>\"]|.*\bcu(?:da)?[A-Z]\w*\()",
    re.DOTALL,
)
_ALIGNED = r"(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?"
_ARRAY = r"\w+(?:\s*\[[^\],;]*\])*"
_SHARED = re.compile(
    rf"(?:\b(extern|static)\s+)?({_ALIGNED})__shared__\s+({_ALIGNED}[\w:\s<>*]*?[\w>*]\s*)(?<=[\s>*])({_ARRAY}(?:\s*,\s*{_ARRAY})*)\s*;"
)


def main(arguments):
    chosen = _parse(arguments)
    a_pass = selection.one_pass(listing.read(paths.ROOT), chosen.target)
    text = _read(Path(chosen.kernel))
    idea = new.idea_name(chosen.name or re.sub(r"\W+", "_", Path(chosen.kernel).stem.lower()))
    number = new.next_number(a_pass, idea)
    file = paths.ROOT / "dev" / a_pass.path / f"v{number:02d}_{idea}.cu"
    said = f"{idea.replace('_', ' ')}, from {Path(chosen.kernel).name}"
    ported, names = _version(text, a_pass, number, said, chosen.entry)
    new.write_new(file, ported)
    name = file.relative_to(paths.ROOT)
    say.line(f"wrote {name}; its names: {names}; fill in its header comment, then")
    say.line(f"    ./ladder check {a_pass.path} --version {number}")
    for i, line in enumerate(ported.splitlines(), 1):
        if constructs.MARK in line:
            say.line(f"to do: {name}:{i}: {line.split(constructs.MARK)[1]}")
    return 0


def _version(text, a_pass, number, idea, entry):
    """(a version's text, the names of its launch and what they stand for). Throws UsageError."""
    comment = cuda_source.COMMENTS.match(text)[0]
    items = cuda_source.items(text[len(comment) :])
    kernels = {item.kernel: item for item in items if item.kernel}
    launch = _launch(text, kernels, entry)
    symbol = f"{a_pass.layer}_{a_pass.name}_v{number:02d}"
    symbols = {name: f"{symbol}_kernel" if name == launch.kernel else f"{symbol}_{name}_kernel" for name in kernels}
    kept = [item for item in items if not item.is_host and not _DROPPED.match(item.code)]
    includes = [item.code for item in kept if re.match(r"#\s*include\b", item.code)]
    body = "".join(_device_text(item.text, symbols) for item in kept if item.code not in includes)
    if re.search(r"(?<![:\w.])is(?:nan|inf|finite)\s*\(", body):
        includes.append("#include <math.h>")
    made = port_launch.PortedLaunch(launch, kernels[launch.kernel], a_pass, text, body, bool(entry))
    layer = f"ladder::{a_pass.layer}"
    parts = [
        f"{new.idea_lines(idea)}// Parent: none.\n// Why:    name what limits it.\n// Needs:  {made.dtype}.",
        comment.strip(),
        re.sub(
            r'^.*".*$',
            rf"{constructs.MARK}copy what it needs of this file\n\g<0>",
            "\n".join(includes),
            flags=re.MULTILINE,
        ),
        f'#include "core/device.h"\n#include "dev/{a_pass.layer}/{a_pass.layer}.h"',
        f"namespace {layer} {{\nnamespace {{",
        body.strip(),
        made.function(symbols[launch.kernel]),
        f"}}  // namespace\n}}  // namespace {layer}",
        f"LADDER_VERSION({layer}::{made.struct},\n               {{.launch = {layer}::launch, .dtypes = {{{made.cpp_dtype}}}}})",
    ]
    return _with_marks("\n\n".join(filter(None, parts))), made.said


def _launch(text, kernels, entry):
    """The launch that the entry names, or the source's only one."""
    found = [launch for launch in cuda_source.launches(entry or text) if len(launch.config) > 1]
    if entry and len(found) != 1:
        raise UsageError(f"--entry '{entry}': a launch, {_ENTRY}")
    if len({launch.kernel for launch in found}) != 1:
        raise UsageError(f"the file launches {len(found)} kernels: name the launch, {_ENTRY}")
    if found[0].kernel not in kernels:
        raise UsageError(f"no kernel '{found[0].kernel}'; the file has: {', '.join(kernels) or 'none'}")
    return found[0]


def _device_text(text, symbols):
    """The text with this tree's names of kernels, and its words for shared memory."""
    for pattern, replaced in ((rf"\b(?:{'|'.join(symbols)})\b", lambda found: symbols[found[0]]), (_SHARED, _shared)):
        for found in reversed([*re.finditer(pattern, constructs.blanked(text))]):
            text = text[: found.start()] + replaced(found) + text[found.end() :]
    return text


def _shared(found):
    kind, names = f"{found[2]}{found[3]}".strip(), found[4]
    if found[1] != "extern":
        arrays = (re.fullmatch(r"(\w+)\s*(.*)", one, re.DOTALL).groups() for one in cuda_source.split(names))
        return "\n  ".join(f"LADDER_SHARED({kind}, {name}, {extents});" for name, extents in arrays)
    kind, name = re.sub(_ALIGNED, "", kind), re.match(r"\w+", names)[0]
    if kind == "unsigned char":
        return f"LADDER_DYN_SMEM({name});"
    return f"LADDER_DYN_SMEM({name}_bytes);\n  {kind}* const {name} = reinterpret_cast<{kind}*>({name}_bytes);"


def _with_marks(text):
    """The text with a comment above each line that has a construct without a counterpart."""
    lines = text.splitlines()
    for at, word, instead in reversed(constructs.scan(text)):
        while at > 1 and lines[at - 2].endswith("\\"):
            at -= 1
        lines.insert(at - 1, re.match(r"\s*", lines[at - 1])[0] + f"{constructs.MARK}{word}: {instead}")
    return "\n".join(lines) + "\n"


def _read(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    if "\0" in text or "\ufffd" in text or len(text) > _MOST_SOURCE:
        raise UsageError(f"{path}: no text, or longer than a megabyte")
    return text


def _parse(arguments):
    parser = Parser(
        "port",
        description="Writes a kernel of another project as a pass's next version: shared memory, launch and header in this "
        "tree's form, without host code. Says what is left to do.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", metavar="kernel.cu")
    parser.add_argument("--as", dest="target", required=True, metavar="LAYER/PASS", help=selection.HELP["target"])
    parser.add_argument("--name", type=filled("name"), help="its idea in snake_case (default: the file's name)")
    parser.add_argument("--entry", type=filled("entry"), help="its launch, in the pass's names (default: the file's)")
    return parser.parse_args(arguments)
