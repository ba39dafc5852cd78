"""A CUDA source file as text: its declarations, its kernels and their launches."""

import re
from typing import NamedTuple

from .constructs import blanked
from .errors import UsageError

COMMENTS = re.compile(r"(?:\s*(?://[^\n]*(?:\n|$)|/\*.*?\*/[ \t]*\n?))*", re.DOTALL)
# Words of C++ and of CUDA's types that a launch may have beside names of its own.
WORDS = set(
    "auto bool char const const_cast double false float int long nullptr reinterpret_cast short signed sizeof static_cast "
    "std true unsigned void dim3 size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t half half2 __half "
    "__half2 nv_bfloat16 __nv_bfloat16 float4 cudaStream_t min max".split()
)
_SCOPE = re.compile(r"\s*(?:(?:inline\s+)?namespace\b[\w:\s]*|extern\s*)\{")
_DIRECTIVE = re.compile(r"\s*#(?:[^\\\n]|\\.)*", re.DOTALL)
_ATTRIBUTE = r"__\w+__\s*\((?:[^()]|\([^()]*\))*\)"
_KERNEL = re.compile(rf"__global__\s+(?:(?:static|inline|void|{_ATTRIBUTE})\s+)*(\w+)\s*\(")
_LAUNCH = re.compile(r"([A-Za-z_]\w*)\s*(?:<(?!<)((?:[^<>;{}]|<[^<>;{}]*>)*)>)?\s*<<<(.*?)>>>\s*\(", re.DOTALL)
_TYPE = r"(?:unsigned(?: int)?|int|long|(?:std::)?(?:size_t|u?int\d\d_t)|auto|dim3|float|double|bool)"
_VARIABLES = re.compile(rf".*(?:^|[{{}}(\s])({_TYPE})\s+(\w+\s*[={{(].*)$", re.DOTALL)
# Words at the head of a declaration that a device needs; a function without one is the host's.
_OF_DEVICE = re.compile(r"\b(?:__(?!host)\w+__|constexpr|const|struct|class|enum|union|using|typedef|static_assert)\b")


class Item(NamedTuple):
    """A declaration or a preprocessor line at file scope, with the comments in front of it."""

    text: str

    @property
    def code(self):
        return blanked(self.text).strip()

    @property
    def kernel(self):
        """The name of the kernel that it defines, or None."""
        found = _KERNEL.search(self.code)
        return found[1] if found and "{" in self.code else None

    @property
    def is_host(self):
        head = re.split(r"[{;=]", self.code, maxsplit=1)[0].strip()
        is_prototype = head.endswith(")") and "{" not in self.code
        is_device = _OF_DEVICE.search(re.sub(r"\(.*|\bconst\b(?=.*\()", "", head, flags=re.DOTALL))
        return not head.startswith("#") and bool(is_prototype or not is_device)

    @property
    def parameters(self):
        """[(type, name)] of the kernel. Throws UsageError."""
        start = _KERNEL.search(self.code).end()
        parameters = split(self.code[start : closing(self.code, start - 1)])
        found = [re.fullmatch(r"([\w:<>,\s*]*[\s*>])(\w+)", one, re.DOTALL) for one in parameters]
        if not all(found):
            raise UsageError(f"{self.kernel}: '{parameters[found.index(None)]}' is not a type and a name")
        return [one.groups() for one in found]

    @property
    def template(self):
        """Names of the template parameters of the kernel."""
        found = re.match(r"template\s*<(.*?)>\s*(?=__|static|extern|void|inline)", self.code, re.DOTALL)
        return [one.split("=")[0].split()[-1] for one in split(found[1])] if found else []


class Launch(NamedTuple):
    kernel: str
    template: list  # arguments
    config: list  # grid, block, bytes of dynamic shared memory, stream
    arguments: list
    offset: int


def items(text):
    """The Items of a source, in its order. Namespaces and extern "C" are taken away."""
    code, found, start = blanked(text), [], 0
    while code[start:].strip():
        scope = _SCOPE.match(code, start)
        end = closing(code, scope.end() - 1) if scope else _end(code, start)
        found += items(text[scope.end() : end]) if scope else [Item(text[start:end])]
        start = end + bool(scope)
    return found


def _end(code, start):
    """The end of the declaration or preprocessor line that begins at `start`."""
    directive = _DIRECTIVE.match(code, start)
    at = directive.end() if directive else start
    while not directive and at < len(code):
        opened = code[at]
        at = closing(code, at) + 1 if opened in "({[" else at + 1
        if opened == ";" or (opened == "{" and not re.compile(r"\s*[;,]").match(code, at)):
            break
    return at


def closing(code, at):
    """The offset of the bracket that closes the one at `at`; the end of the code if there is none."""
    depth = 0
    for offset in range(at, len(code)):
        depth += (code[offset] in "({[") - (code[offset] in ")}]")
        if depth == 0:
            return offset
    return len(code)


def split(text):
    """The parts of a list between commas, but those in brackets."""
    parts, start = [], 0
    while start < len(text):
        end = start
        while end < len(text) and text[end] != ",":
            end = closing(text, end) + 1 if text[end] in "({[" else end + 1
        parts.append(text[start:end].strip())
        start = end + 1
    return parts


def launches(text):
    """Every Launch of a text, a source or an entry of the command line."""
    code = blanked(text)
    found = [(each, code[each.end() : closing(code, each.end() - 1)]) for each in _LAUNCH.finditer(code)]
    return [Launch(it[1], split(it[2] or ""), split(it[3]), split(inside), it.start()) for it, inside in found]


def variables(code):
    """{name: (type, initializer)} of the variables that statements declare, "= 256", "(n, 1)" or "{n}"."""
    declared = [(it[1], one) for it in map(_VARIABLES.match, code.split(";")) if it for one in split(it[2])]
    parts = [(of_type, re.fullmatch(r"(\w+)\s*([={(].*)", one, re.DOTALL)) for of_type, one in declared]
    return {it[1]: (of_type, " ".join(it[2].split())) for of_type, it in parts if it}
