"""`./ladder <verb> ...`: each verb is a function of the remaining arguments. Its module is imported on first use."""

import argparse
import functools
import importlib
import re
import sys

from registry import selection

from . import options, version
from .errors import UsageError
from .options import Parser

# Columns: verb, "module" (function main) or "module:function", arguments, description.
_TABLE = """\
Kernels
check | cli.check | <layer>[/<pass>] --version V | its ci problems on the emulator; nvcc's registers and spills
bench | cli.bench | <layer>[/<pass>] [flags] | build, check and time versions; on a GPU beside the baseline
test | cli.verbs:test | [<layer>[/<pass>]] [flags] | build, and test what changed, or some versions, or --full
debug | cli.debug | <layer>[/<pass>] --version V | gdb in one thread of a version's kernel, at its beginning
list | cli.verbs:list_ | [<layer>[/<pass>]] [--json] | layers, passes, versions and named problems
try | cli.try_ | <layer>/<pass> FILE.cu | an untrusted kernel in a sandbox: verdict, and a line in its log
new | cli.new | <layer>/<pass> <idea> --from N | the next version's file; --layer: a new layer's files
port | cli.port | kernel.cu --as <layer>/<pass> | a kernel of another project as the next version's file
diff | dev.diff | <layer>/<pass> A B | two versions side by side: registers, instructions, code, errors, times
profile | profiling.profile | <layer>[/<pass>] --version V | Nsight Compute on one launch, explained
sanitize | profiling.sanitize | [<layer>[/<pass>]...] | compute-sanitizer's four tools, each proven to fire
mutants | dev.mutants | [AREA...] | deliberate bugs, planted one at a time: which ones the tests find
exploits | dev.exploits | [NAME...] | candidates that cheat, tried in the sandbox: which ones it refuses
resources | dev.resources | [<layer>[/<pass>]] | registers, shared memory and spills of every kernel
A search
tree | search.tree | <layer>/<pass> [--best] [--json] | the candidates that were tried, and the way to the fastest
promote-candidate | search.promote | <layer>/<pass> NODE [--name N] | a candidate of the search as the next version
The U-Net
prepare | cli.prepare | DIR | a folder of pictures as one file to train on; --emoji: the sample set
train | cli.train | [--config C] [flags] | train with the promoted kernels; --config tiny: without a GPU
sample | cli.sample | RUN [flags] | images from a checkpoint of a training
A policy
denoise | cli.denoise | POLICY [flags] | a robot's next actions from a trained policy; --config tiny
Records
record | cli.record | [<layer>[/<pass>]...] | check and time versions, into results/; --stale: what is not of today's code
compare | compare.main | [A [B]] | which kernels became slower or faster; --live REF, --fail-on slow
promote | cli.promote | [--check] | runtime/promoted/<device>.txt: which versions the trainer runs
table | cli.verbs:table | [--check] | the tables and pictures of the READMEs, from results/
dashboard | dashboard.main |  | results/index.html, made of the records
The tree
build | cli.verbs:build | [--preset NAME] [targets...] | build only: emulator, clang, cuda, profile, sanitize, order
clangd | cli.clangd | PRESET | which build an editor sees: cuda or emulator
setup | cli.verbs:setup | [--preset NAME] | fetch what is missing; --dev: what checks the sources too
format | dev.format | [--check] | clang-format, ruff and the first words of comments, over the tree
"""
_LINES = [[cell.strip() for cell in line.split("|")] for line in _TABLE.splitlines()]
VERBS = {line[0]: line[1] for line in _LINES if len(line) > 1}

_ABOUT = """\
What to run is said in the same way everywhere:
  <layer>[/<pass>]   conv3x3/dgrad; conv3x3 alone is all of its passes, to bench and profile its default
  --version V        7, v07, 5-9, 7,9, a word of the idea (wmma), all, or best
  --problem P        a line ('n1 h8 w8 c16 k16 bf16'), or a name that tables and list show (res64)
  --dtype D          bf16,fp16
  --set NAME         a set of dev/<layer>/shapes.txt

./ladder <verb> --help says the rest, ./ladder --version which ladder this is. Both, list and every complaint about a
command line need nothing but Python. The GPU build is used where there is a GPU, else the emulator; --device
gpu|emulator decides otherwise. What is missing is fetched: with apt-get as root, else into .ladder/ (remove that folder
to undo it).
"""


def main(arguments):
    if not arguments:
        print(_help(), end="")
        return 2
    if arguments[0] in ("version", "--version"):
        print(version.text())
        return 0
    if arguments[0] == "help":
        arguments = [*arguments[1:2], "--help"]
    parser = _Main("<verb>")
    verbs = parser.add_subparsers(parser_class=_Verb, dest="verb", required=True)
    for verb in VERBS:
        verbs.add_parser(verb)
    return parser.parse_args(arguments).run()


class _Main(Parser):
    """Parser of the verb alone: help prints one line per verb; an unknown verb's error suggests the nearest name."""

    def format_help(self):
        return _help()

    def error(self, message):
        wrong = re.search(r"invalid choice: '(.*)' \(choose", message)
        if not wrong:
            super().error(message)
        raise UsageError(f"no verb '{wrong[1]}'; there are: {', '.join(VERBS)}{selection.meant(wrong[1], VERBS)}")


class _Verb(argparse.ArgumentParser):
    """Stand-in for a verb's parser: passes the arguments on unparsed, since the verb parses them itself."""

    def parse_known_args(self, arguments, namespace):
        module, _, function = VERBS[self.prog.split()[-1]].partition(":")
        run = getattr(importlib.import_module(module), function or "main")
        return argparse.Namespace(run=functools.partial(run, arguments)), []


def _help():
    lines = ["Ladder: CUDA kernels, climbed version by version, checked and timed."]
    for name, *rest in _LINES:
        lines += [f"  {f'./ladder {name} {rest[1]}':<46} {rest[2]}"] if rest else ["", name]
    return "\n".join(lines) + "\n\n" + _ABOUT


if __name__ == "__main__":
    sys.exit(options.run(main))
