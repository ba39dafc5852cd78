"""Signature of a pass: its input and output tensors, parsed from --tensors or from the layer's header."""

import re
from dataclasses import dataclass

from . import paths
from .errors import UsageError

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# Reserved names: keywords of C++, and names that the templates use.
TAKEN = set(
    "alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const continue default "
    "delete do double else enum explicit export extern false float for friend goto if inline int long mutable namespace "
    "new noexcept not nullptr operator or private protected public register requires return short signed sizeof static "
    "struct switch template this throw true try typedef typeid typename union unsigned using virtual void volatile "
    "while xor acc index inputs launch magnitude outputs problem size stream "
    "tensors term value".split()
)
_TENSOR = re.compile(r"([^][\s,]+)\[([^][]*)\]")
_SIZE = re.compile(
    r"^  (int|unsigned|float|bool|std::int64_t) (\w+)(?:(\(\)) const| = )[^;\n]*;?[^/\n]*(?:// *([\w ]*))?",
    re.MULTILINE,
)
_MOST_SIZES = 6  # dimensions of a problem at most, so that its small test cases stay small


@dataclass(frozen=True)
class Tensor:
    name: str
    sizes: str  # one letter per dimension: "mn"
    type: str = "T"  # element type in a kernel: "T" (the problem's dtype) or "float"

    def __str__(self):
        return f"{self.name}[{','.join(self.sizes)}]"


@dataclass(frozen=True)
class Signature:
    layer: str
    pass_name: str
    inputs: tuple
    outputs: tuple

    @property
    def struct(self):
        return struct(self.pass_name)

    @property
    def tensors(self):
        return self.inputs + self.outputs

    def summed(self, output):
        """Letters of the reduced dimensions: those of inputs that `output` lacks."""
        return "".join(dict.fromkeys(c for each in self.inputs for c in each.sizes if c not in output.sizes))


def struct(pass_name):
    """C++ struct name of a pass: "QSample" for q_sample."""
    return "".join(word.capitalize() for word in pass_name.split("_"))


def sizes(text):
    """Parses --problem 'm n' to the letters "mn"."""
    letters = text.split()
    wrong = [word for word in letters if not re.fullmatch("[a-z]", word)]
    if wrong:
        raise UsageError(f"--problem '{text}': letters with blanks between, as in 'm n', not '{wrong[0]}'")
    if len(set(letters)) < len(letters) or not 1 <= len(letters) <= _MOST_SIZES:
        raise UsageError(f"--problem '{text}': 1 to {_MOST_SIZES} letters, each once")
    return "".join(letters)


def of_option(layer, pass_name, letters, text):
    """Parses --tensors 'x[m,n] -> y[m,n]' to a Signature."""
    sides = [tuple(_tensors(side, text)) for side in text.split("->")]
    if len(sides) != 2 or not all(sides):
        raise UsageError(f"--tensors '{text}': inputs, '->', outputs, as in 'x[m,n] w[n] -> y[m,n]'")
    names = [tensor.name for side in sides for tensor in side]
    for tensor in sides[0] + sides[1]:
        name = tensor.name
        if not NAME.fullmatch(name) or name in TAKEN:
            raise UsageError(f"--tensors: no tensor can be called '{name}': snake_case, and no word of C++")
        if name in letters or names.count(name) > 1:
            raise UsageError(f"--tensors: '{name}' stands for two things")
        unknown = [letter for letter in tensor.sizes if letter not in letters]
        if unknown:
            raise UsageError(f"--tensors: {tensor}: '{unknown[0]}' is none of the problem's sizes {', '.join(letters)}")
    return Signature(layer, pass_name, *sides)


def of_header(layer, pass_name):
    """The Signature of a pass in dev/<layer>/<layer>.h, from the shape comments of its Tensors; None if undeclared."""
    if not (NAME.fullmatch(layer) and NAME.fullmatch(pass_name)):
        return None
    header = paths.ROOT / "dev" / layer / f"{layer}.h"
    text = header.read_text(encoding="utf-8") if header.exists() else ""
    struct = re.search(rf'^struct (?:(?!^\}};).)*?kName = "{pass_name}".*?^\}};', text, re.MULTILINE | re.DOTALL)
    if not struct:
        return None
    sides = {"const ": [], "": []}
    for constant, kind, name, comment in re.findall(r"^    (const |)(\w+)\* (\w+);(.*)$", struct[0], re.MULTILINE):
        shape = re.search(r"// \[([a-z](?:, [a-z])*)\]", comment)
        if kind not in ("void", "float") or not shape:
            raise UsageError(
                f"{header.name}: a tensor of {pass_name} is written 'void* {name};  // [m, n] dtype' or "
                f"'float* {name};  // [m, n]', not '{kind}* {name};{comment}'"
            )
        sides[constant].append(Tensor(name, shape[1].replace(", ", ""), "T" if kind == "void" else kind))
    if not all(sides.values()):
        raise UsageError(f"{header.name}: the Tensors of {pass_name} have no input or no output")
    return Signature(layer, pass_name, *map(tuple, sides.values()))


def _tensors(side, text):
    rest = _TENSOR.sub("", side).replace(",", " ").split()
    if rest:
        raise UsageError(f"--tensors '{text}': '{rest[0]}' is no tensor, as x[m,n] is one")
    for name, inside in _TENSOR.findall(side):
        letters = [letter.strip() for letter in inside.split(",")]
        if any(not re.fullmatch("[a-z]", letter) for letter in letters) or len(set(letters)) < len(letters):
            raise UsageError(f"--tensors: {name}[{inside}]: letters with commas between, each once")
        yield Tensor(name, "".join(letters))


def names(a_pass):
    """(struct, {tensor: is an input}, {size: (type, C++ expression, comment)}) of a pass, from its layer's header. A size is a
    field of the Problem, or a function without arguments."""
    text = (paths.ROOT / "dev" / a_pass.layer / f"{a_pass.layer}.h").read_text(encoding="utf-8")
    problem = text[text.index("\nstruct Problem {") :].partition("\n};")[0]
    struct, inside = re.search(
        rf'\nstruct (\w+) \{{(?:(?!\n\}};).)*?kName = "{a_pass.name}"(.*?)\n\}};', text, re.DOTALL
    ).groups()
    tensors = inside.partition("struct Tensors {")[2].partition("\n  };")[0]
    declared = re.findall(r"^    (const |)[\w:]+ ?(\*[^;=]*)", tensors, re.MULTILINE)
    inputs = {re.search(r"\w+", one)[0]: bool(const) for const, names in declared for one in names.split(",")}
    sizes = {name: (of_type, name + call, words) for of_type, name, call, words in _SIZE.findall(problem)}
    return struct, inputs, sizes
