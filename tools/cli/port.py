"""`./ladder port`: a kernel of another project as the next version's file, and a list of what is left to do by hand."""

import argparse
import re
from pathlib import Path

from registry import listing, selection

from . import constructs, cuda_source, new, paths, port_launch, problem_names, say, signature
from .errors import UsageError
from .options import Parser, filled

_EXAMPLES = """\
examples:
  ./ladder port my_softmax.cu --as softmax/forward
  ./ladder port kernel.cu --as softmax/forward --name warp_rows --entry 'softmax<256><<<m, 256>>>(x, y, n)'
The names of an entry are the pass's tensors, its problem's sizes, and stream. docs/port.md shows a port step by step."""
_MOST_SOURCE = 1 << 20  # bytes
# Headers that core/device.h has, and those of the host alone.
_DROPPED = re.compile(
    r"#\s*include\s*[<\"](?:cuda\w*\.h|mma\.h|vector_types\.h|device_launch_parameters\.h|helper_\w+\.h|cublas\w*\.h|"
    r"[ciof]?(?:stdio|stdlib|ostream|stream|stdexcept)(?:\.h)?|vector|string|chrono|random|memory|thread|time\.h)[>\"]"
)
_SHARED = re.compile(
    r"(?:(extern|static|volatile)\s+)*((?:(?:__align__|alignas)\s*\([^()]*\)\s*)?)__shared__\s+([^;]*);", re.DOTALL
)
_SHARED_TYPE = re.compile(
    r"((?:(?:__align__|alignas)\s*\([^()]*\)\s*|(?:const|volatile|unsigned|signed|long|struct)\s+(?=[\w:]+[\s*]+[\w:]))*"
    r"[\w:]+(?:<[^,;]*>)?(?:\s*\*)*)\s*(?<=[\s>*])(.*)",
    re.DOTALL,
)


def main(arguments):
    chosen = _parse(arguments)
    there = listing.read(paths.ROOT)
    a_pass = selection.one_pass(there, chosen.target)
    text = _read(chosen.kernel)
    idea = new.idea_name(chosen.name or re.sub(r"\W+", "_", Path(chosen.kernel).stem.lower()))
    number = new.next_number(a_pass, idea)
    file = paths.ROOT / "dev" / a_pass.path / f"v{number:02d}_{idea}.cu"
    ported, said = version(text, a_pass, number, idea, Path(chosen.kernel).name, chosen.entry)
    new.write_new(file, ported)
    name = file.relative_to(paths.ROOT)
    say.line(f"wrote {name}; {said}")
    left = [(i, line) for i, line in enumerate(ported.splitlines(), 1) if constructs.MARK in line]
    for i, line in left:
        say.line(f"{name}:{i}: {line.split(constructs.MARK)[1]}")
    say.line(f"{'do that, and ' if left else ''}fill in its header comment, then")
    say.line(f"    ./ladder check {a_pass.path} --version {number}")
    return 0


def version(text, a_pass, number, idea, origin, entry=None):
    """(a version's text, a line that says what the arguments became). Throws UsageError."""
    names = problem_names.of_pass(a_pass.layer, a_pass.name)
    comment = cuda_source.leading_comment(text)
    items = cuda_source.items(text[len(comment) :], 1 + comment.count("\n"))
    kernels = {item.kernel: item for item in items if item.kernel}
    launch = _launch(text, kernels, entry)
    kept = [item for item in items if _keeps(item)]
    symbol = f"{a_pass.layer}_{a_pass.name}_v{number:02d}"
    symbols = {name: f"{symbol}_kernel" if name == launch.kernel else f"{symbol}_{name}_kernel" for name in kernels}
    includes = [item.text.strip() for item in kept if re.match(r"#\s*include\b", item.head)]
    body = "".join(_device_text(item, symbols) for item in kept if item.text.strip() not in includes)
    made = port_launch.PortedLaunch(launch, kernels[launch.kernel], names, text, body, bool(entry))
    struct = f"ladder::{a_pass.layer}::{signature.struct(a_pass.name)}"
    header = new.idea_lines(f"{idea.replace('_', ' ')}, ported from {origin}")
    header += f"// Parent: none.\n// Why:    name what limits it, and why it is fast.\n// Needs:  {made.needs}.\n"
    mathematics = "#include <math.h>\n" if re.search(r"(?<![:\w.])is(?:nan|inf|finite)\s*\(", body) else ""
    parts = [
        header,
        comment.strip() + "\n" if comment.strip() else "",
        mathematics + "".join(f"{line}\n" for line in includes),
        f'#include "core/device.h"\n#include "dev/{a_pass.layer}/{a_pass.layer}.h"\n',
        f"namespace ladder::{a_pass.layer} {{\nnamespace {{\n",
        body.strip("\n") + "\n",
        made.function(symbols[launch.kernel], signature.struct(a_pass.name)),
        f"}}  // namespace\n}}  // namespace ladder::{a_pass.layer}\n",
        f"LADDER_VERSION({struct}, {{.launch = ladder::{a_pass.layer}::launch, .dtypes = {{{made.dtypes}}}}})\n",
    ]
    return _with_marks("\n".join(part for part in parts if part)), made.said


def _launch(text, kernels, entry):
    """The launch that the entry names, or the source's only one."""
    if not kernels:
        raise UsageError("the file defines no kernel (__global__)")
    found = cuda_source.launches(entry or text)
    if entry and (len(found) != 1 or len(found[0].config) < 2):
        raise UsageError(f"--entry '{entry}': a launch, as in 'softmax<256><<<m, 256, 0, stream>>>(y, x, n)'")
    different = {(each.kernel, *each.template): each for each in found if len(each.config) > 1}
    if len(different) != 1:
        lines = ", ".join(str(text.count("\n", 0, each.offset) + 1) for each in found)
        there = f"launches several kernels (lines {lines})" if found else "has no launch"
        raise UsageError(f"the file {there}: --entry 'softmax<256><<<m, 256, 0, stream>>>(y, x, n)' says which it is")
    launch = next(iter(different.values()))
    if launch.kernel not in kernels:
        raise UsageError(f"there is no kernel '{launch.kernel}'; the file defines: {', '.join(kernels)}")
    return launch


def _keeps(item):
    if item.head.startswith("#"):
        is_host = _DROPPED.match(item.head) or re.search(r"\bcu(?:da|blas|dnn)?[A-Z]\w*\s*\(", item.code)
        return not is_host and not re.match(r"#\s*pragma\s+once", item.head)
    return not item.is_host and not (item.kernel is None and "__global__" in item.head)


def _device_text(item, symbols):
    """The item's text with the tree's names of kernels and of shared memory."""
    text = _replaced(item.text, rf"\b(?:{'|'.join(map(re.escape, symbols))})\b", lambda found: symbols[found[0]])
    return _replaced(text, _SHARED, _shared)


def _shared(found):
    qualifiers, alignment, declared = found[0].split("__shared__")[0], found[2], found[3]
    parts = _SHARED_TYPE.fullmatch(declared.strip())
    if not parts:
        return found[0]
    kind, variables = f"{alignment}{parts[1]}".strip(), cuda_source.split(parts[2])
    arrays = [re.fullmatch(r"(\w+)\s*((?:\[.*\])?)", one, re.DOTALL) for one in variables]
    if not all(arrays) or "," in kind or any("," in array[2] for array in arrays):
        return found[0]
    if "extern" in qualifiers:
        name, plain = arrays[0][1], re.sub(r"(?:__align__|alignas)\s*\([^()]*\)\s*", "", kind)
        if plain == "unsigned char":
            return f"LADDER_DYN_SMEM({name});"
        return f"LADDER_DYN_SMEM({name}_bytes);\n  {plain}* const {name} = reinterpret_cast<{plain}*>({name}_bytes);"
    kind = f"volatile {kind}" if "volatile" in qualifiers else kind
    return "\n  ".join(f"LADDER_SHARED({kind}, {array[1]}, {array[2]});" for array in arrays)


def _replaced(text, pattern, replacement):
    """The text with matches in its code replaced; comments and literals stay."""
    pieces, end = [], 0
    for found in re.finditer(pattern, constructs.blanked(text)):
        pieces += [text[end : found.start()], replacement(found)]
        end = found.end()
    return "".join([*pieces, text[end:]])


def _with_marks(text):
    """The text with a comment above each line that has a construct without a counterpart."""
    lines, marks = text.splitlines(), {}
    for each in constructs.scan(text):
        first = each.line - 1
        while first > 0 and lines[first - 1].endswith("\\"):
            first -= 1
        marks.setdefault(first, []).append(str(each))
    for first in sorted(marks, reverse=True):
        indent = re.match(r"\s*", lines[first])[0]
        lines[first:first] = [f"{indent}{constructs.MARK}{mark}" for mark in dict.fromkeys(marks[first])]
    return "\n".join(lines) + "\n"


def _read(name):
    try:
        data = Path(name).read_bytes()
        text = data[: _MOST_SOURCE + 1].decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is no text") from None
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    if len(data) > _MOST_SOURCE or "\0" in text:
        raise UsageError(f"{name} is no source: it has a zero byte or more than a megabyte")
    return text


def _parse(arguments):
    parser = Parser(
        "port",
        description="Writes a kernel of another project as the next version of a pass: shared memory, launch and header "
        "in the tree's form, host code left out. Says what is left to do.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", metavar="kernel.cu")
    parser.add_argument("--as", dest="target", required=True, metavar="LAYER/PASS", help=selection.HELP["target"])
    parser.add_argument(
        "--name", type=filled("name"), help="the version's idea in snake_case (default: the file's name)"
    )
    parser.add_argument(
        "--entry", type=filled("entry"), help="the launch, in names of the pass; default: the file's own"
    )
    return parser.parse_args(arguments)
