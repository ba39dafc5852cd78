"""A CUDA source file as text: its declarations, its kernels and their launches."""

import re
from dataclasses import dataclass

from .constructs import blanked

_COMMENT = re.compile(r"\s*(?://[^\n]*(?:\n|$)|/\*.*?\*/[ \t]*\n?)", re.DOTALL)
_SCOPE = re.compile(r'\s*(?:(?:inline\s+)?namespace\b[\w:\s]*|extern\s+"\s+")\{')
_LAUNCH_BOUNDS = r"__\w+__\s*\((?:[^()]|\([^()]*\))*\)"
_KERNEL = re.compile(rf"__global__\s+(?:(?:static|inline|void|{_LAUNCH_BOUNDS})\s+)*(\w+)\s*\(")
_TEMPLATE = re.compile(r"\s*template\s*<([^{}]*?)>\s*(?=_|static|extern|void|inline)")
_LAUNCH = re.compile(r"([A-Za-z_]\w*)\s*(?:<(?!<)((?:[^<>;{}]|<[^<>;{}]*>)*)>)?\s*<<<(.*?)>>>\s*\(", re.DOTALL)
_DECLARATION = re.compile(
    r".*(?:^|[{};(\s])(?:(?:const|constexpr|static)\s+)*"
    r"(unsigned int|unsigned|int|long long|long|size_t|std::size_t|int64_t|std::int64_t|auto|dim3|float|double|bool)\s+"
    r"(\w+\s*[={(].*)$",
    re.DOTALL,
)
# Words at the head of a declaration that a device needs; a function without one is the host's.
_OF_DEVICE = re.compile(
    r"\b(?:__global__|__device__|__constant__|constexpr|const|struct|class|enum|union|using|typedef|static_assert)\b"
)


@dataclass(frozen=True)
class Item:
    """A declaration or a preprocessor line at file scope, with the comments in front of it."""

    text: str
    line: int  # of its first character

    @property
    def code(self):
        return blanked(self.text)

    @property
    def head(self):
        """Its code up to a body or an initializer."""
        return re.split(r"[{;=]", self.code, maxsplit=1)[0].strip()

    @property
    def kernel(self):
        """The name of the kernel that it defines, or None."""
        found = _KERNEL.search(self.code)
        return found[1] if found and "{" in self.code else None

    @property
    def is_host(self):
        if self.head.startswith("#"):
            return False
        is_prototype = "(" in self.head and "{" not in self.code and "using" not in self.head
        is_host_function = re.match(r"(?:static\s+|inline\s+)*const\b", self.head) and re.search(r"\)\s*$", self.head)
        return is_prototype or bool(is_host_function) or not _OF_DEVICE.search(self.head)

    @property
    def parameters(self):
        """[(type, name)] of the kernel."""
        found = _KERNEL.search(self.code)
        inside = self.code[found.end() : closing(self.code, found.end() - 1)]
        return [
            re.fullmatch(r"(.*?[\s*&])(\w+)", one.split("=")[0].strip(), re.DOTALL).groups() for one in split(inside)
        ]

    @property
    def template(self):
        """Names of the template parameters of the kernel."""
        found = _TEMPLATE.match(self.code)
        return [re.split(r"\s+", one.split("=")[0].strip())[-1] for one in split(found[1])] if found else []


@dataclass(frozen=True)
class Launch:
    kernel: str
    template: list  # arguments
    config: list  # grid, block, bytes of dynamic shared memory, stream
    arguments: list
    offset: int = 0


def leading_comment(text):
    """The comments at the top of a file, with its licence."""
    end = 0
    while (found := _COMMENT.match(text, end)) is not None:
        end = found.end()
    return text[:end]


def items(text, line=1):
    """The Items of a source, in its order. Namespaces and extern "C" are taken away."""
    code, found, start = blanked(text), [], 0
    while code[start:].strip():
        scope = _SCOPE.match(code, start)
        if scope:
            end = closing(code, scope.end() - 1)
            found += items(text[scope.end() : end], line + code.count("\n", 0, scope.end()))
            start = end + 1
        else:
            end = _end(code, start)
            found.append(Item(text[start:end], line + code.count("\n", 0, start)))
            start = end
    return found


def _end(code, start):
    """The end of the declaration or preprocessor line that begins at `start`."""
    directive = re.compile(r"\s*#(?:[^\\\n]|\\.)*", re.DOTALL).match(code, start)
    if directive:
        return directive.end()
    at = start
    while at < len(code):
        if code[at] in "({[":
            opened = code[at]
            at = closing(code, at)
            more = re.compile(r"\s*([;,=\w]?)").match(code, at + 1)
            if opened == "{" and more[1] != ";":
                return at + 1
        elif code[at] == ";":
            return at + 1
        at += 1
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
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "({[") - (letter in ")}]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def launches(text):
    """Every Launch of a text, a source or an entry of the command line."""
    code = blanked(text)
    return [
        Launch(
            found[1],
            split(found[2] or ""),
            split(found[3]),
            split(code[found.end() : closing(code, found.end() - 1)]),
            found.start(),
        )
        for found in _LAUNCH.finditer(code)
    ]


def declarations(code):
    """{name: (type, initializer with its brackets)} of the variables of a function, in their order."""
    found = {}
    for statement in code.split(";"):
        declared = _DECLARATION.match(statement.replace("\n", " "))
        for one in split(declared[2]) if declared else []:
            parts = re.fullmatch(r"(\w+)\s*(=.*|\(.*\)|\{.*\})", one)
            if parts:
                found[parts[1]] = (declared[1], parts[2].strip())
    return found
