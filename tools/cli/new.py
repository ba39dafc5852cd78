"""`./ladder new`: the next version's file, made from its parent; a pass's first version; the files of a new layer."""

import argparse
import re
import textwrap

from registry import listing

from . import files, new_layer, paths, placeholder, say, signature
from .errors import UsageError
from .options import Parser

USAGE = "./ladder new <layer>/<pass> <idea> --from N, for instance ./ladder new conv3x3/fprop split_k --from 8"
_EXAMPLES = """\
examples:
  ./ladder new conv3x3/fprop split_k --from 8     the next version, made from version 8
  ./ladder new softmin/backward naive             the first version of a pass that dev/softmin/softmin.h declares
  ./ladder new softmin/forward --layer --problem 'm n' --tensors 'x[m,n] -> y[m,n]'
                                                  a layer: header, shapes, reference, bench program, first version
docs/add_a_version.md and docs/add_a_layer.md say what to write then."""

_IDEA = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*$")

# An idea says what changed; these say only that something did.
_EMPTY_WORDS = set(
    "fast faster fastest new newer final best better improved optimized optimised latest test tmp version".split()
)


def main(arguments):
    chosen = _parse(arguments)
    directory = chosen.words[0].strip("/")
    layer, _, pass_name = directory.partition("/")
    if chosen.layer:
        return _layer(layer, pass_name, chosen)
    idea = idea_name(chosen.words[1])
    a_pass = listing.read(paths.ROOT).find(directory)
    if a_pass is None:
        return _first_version(directory, idea, chosen.parent)
    if chosen.parent is None:
        raise UsageError(f"{directory} has versions: --from N says which the new one begins as; {USAGE}")
    return _next_version(a_pass, idea, int(chosen.parent.lstrip("vV")))


def _layer(layer, pass_name, chosen):
    new_layer.check_names(layer, pass_name)
    letters = signature.sizes(chosen.problem)
    of = signature.of_option(layer, pass_name, letters, chosen.tensors)
    say.line("wrote " + ", ".join(new_layer.write(of, letters)))
    say.line(f"its formula is a placeholder: {_formulas(of)}; docs/add_a_layer.md says where yours goes. It passes:")
    say.line(f"    ./ladder bench {layer}")
    return 0


def _first_version(directory, idea, parent):
    layer, _, pass_name = directory.partition("/")
    of = signature.of_header(layer, pass_name)
    if of is None:
        there = listing.read(paths.ROOT)
        known = there.layer(layer)
        names = [each.path for each in there.passes if not known or each.layer == layer]
        how = f"a further pass begins in dev/{layer}/{layer}.h" if known else "--layer writes a new layer"
        raise UsageError(f"no pass '{directory}'; there are: {', '.join(names) or 'none'}; {how}: docs/add_a_layer.md")
    if parent is not None:
        raise UsageError(f"{directory} has no version yet; without --from its first is made")
    file = paths.ROOT / "dev" / directory / f"v01_{idea}.cu"
    file.parent.mkdir(exist_ok=True)
    write_new(file, new_layer.first_version(of))
    say.line(f"wrote {file.relative_to(paths.ROOT)}; its formula is a placeholder: {_formulas(of)}; write yours, then")
    say.line(f"    ./ladder bench {directory} --version 1")
    return 0


def _formulas(of):
    return ", ".join(placeholder.formula(of, output) for output in of.outputs)


def _next_version(a_pass, idea, parent_number):
    directory = a_pass.path
    parent = a_pass.version(parent_number)
    if parent is None:
        raise UsageError(
            f"{directory} has no version {parent_number}; there are: {', '.join(map(str, a_pass.numbers)) or 'none'}"
        )
    number = next_number(a_pass, idea)
    child = parent.file.with_name(f"v{number:02d}_{idea}.cu")
    write_new(child, renumber(parent.file.read_text(encoding="utf-8"), parent_number, number, idea))
    say.line(f"wrote {child.relative_to(paths.ROOT)} from {parent.file.name}; fill in its header comment, then")
    say.line(f"    ./ladder bench {directory} --version {number}")
    return 0


def next_number(a_pass, idea):
    taken = [version.label for version in a_pass.versions if version.idea == idea]
    if taken:
        raise UsageError(f"{a_pass.path} has '{idea}' already: {taken[0]}.cu")
    number = max(a_pass.numbers) + 1
    if number > 99:
        raise UsageError(f"{a_pass.path} has 99 versions; a file name holds two digits")
    return number


def renumber(text, parent_number, number, idea):
    """The parent's source as a new version: own number in every symbol, header comment to be filled in."""
    return with_header(with_number(text, parent_number, number), idea.replace("_", " "), f"v{parent_number:02d}")


def with_number(text, old, new):
    return re.sub(rf"_v{old:02d}(?![0-9A-Za-z])", f"_v{new:02d}", text)


def idea_lines(idea):
    """The Idea of a version's header comment."""
    lines = textwrap.wrap(f"{idea.rstrip('.')}.", 109)
    return f"// Idea:   {f'{chr(10)}//         '.join(lines)}\n"


def with_header(text, idea, parent):
    """The header comment of a version whose reason is to be filled in; of an older one needs and spills remain."""
    header = f"{idea_lines(idea)}// Parent: {parent}.\n// Why:    name what limits the parent, and how this lifts it.\n"
    comment = re.match(r"(?://[^\n]*\n)+", text)
    needs = re.search(r"^// Needs:[^\n]*\n(?:^//   [^\n]*\n)*", comment[0], re.MULTILINE) if comment else None
    spills = f"// Spills: as {parent}.\n" if comment and "\n// Spills:" in comment[0] else ""
    body = text[comment.end() :] if comment else "\n" + text
    return header + (needs[0] if needs else "// Needs:  nothing.\n") + spills + body


def _parse(arguments):
    parser = Parser(
        "new",
        description="The next version's file, made from its parent's; or a layer's files.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="*", metavar="<layer>/<pass> <idea>", help="an idea in snake_case, as in split_k"
    )
    parser.add_argument("--from", dest="parent", metavar="N", help="the parent's number")
    parser.add_argument("--layer", action="store_true", help="a new layer, with this pass and its version naive")
    parser.add_argument("--problem", metavar="SIZES", help="of a layer: its sizes, a letter each: 'm n'")
    parser.add_argument("--tensors", help="of a layer: inputs -> outputs: 'x[m,n] w[n] -> y[m,n]'")
    chosen = parser.parse_args(arguments)
    if chosen.layer:
        if len(chosen.words) != 1 or chosen.parent or not chosen.problem or not chosen.tensors:
            raise UsageError("./ladder new <layer>/<pass> --layer --problem 'm n' --tensors 'x[m,n] -> y[m,n]'")
        return chosen
    if len(chosen.words) != 2 or chosen.problem or chosen.tensors:
        raise UsageError(USAGE)
    if chosen.parent and not re.fullmatch(r"[vV]?\d{1,2}", chosen.parent):
        raise UsageError(f"--from '{chosen.parent}': a version's number, as in --from 8")
    return chosen


def idea_name(idea):
    if not _IDEA.match(idea):
        raise UsageError(f"idea '{idea}': snake_case, as in split_k")
    empty = _EMPTY_WORDS.intersection(idea.split("_"))
    if empty:
        raise UsageError(f"idea '{idea}': '{empty.pop()}' says nothing of the change; name it, as in split_k")
    return idea


def write_new(path, text):
    """Whole or not at all, and never over another file."""
    try:
        files.create(path, text)
    except FileExistsError:
        raise UsageError(f"{path} exists") from None
