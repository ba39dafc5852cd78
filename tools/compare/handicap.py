"""Slows kernels on purpose, to show what a comparison can see: text is inserted into a copy of the sources.

Every thread of a __global__ function first makes an object whose destructor, on whatever way the thread leaves, spins
until it has lived so many percent longer. Where several blocks share an SM, the others use part of that time, so a
kernel becomes slower by up to that many percent.
"""

import re

from door.errors import Failure

_GLOBAL = re.compile(r"\b__global__\b")

# Comments, literals and directives (continued lines too): nothing in them is code to a reader of braces.
_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)


def apply(folder, percent):
    """Changes every source below `folder`; the number of kernels. Throws Failure if there is none."""
    count = 0
    for path in sorted([*folder.rglob("*.cu"), *folder.rglob("*.cuh"), *folder.rglob("*.h")]):
        text = path.read_text(encoding="utf-8")
        slowed, here = insert(text, percent)
        if here:
            path.write_text(slowed, encoding="utf-8")
            count += here
    if count == 0:
        raise Failure(f"--handicap: no __global__ function below {folder}")
    return count


def insert(text, percent):
    """(`text` with the handicap as the first statement of every __global__ function that has a body, their number)."""
    code = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    bodies = [body for body in (_body(code, found.end()) for found in _GLOBAL.finditer(code)) if body is not None]
    for body in reversed(bodies):
        text = f"{text[:body]} {_statement(percent)}{text[body:]}"
    return text, len(bodies)


def _body(code, at):
    """Where the body of the function declared around `at` begins, or None for one without. Attributes, launch bounds
    and parameters are in parentheses, so the first brace or semicolon outside of them decides."""
    depth = 0
    for index in range(at, len(code)):
        if code[index] == "(":
            depth += 1
        elif code[index] == ")":
            depth -= 1
        elif depth == 0 and code[index] == ";":
            return None
        elif depth == 0 and code[index] == "{":
            return index + 1
    return None


def _statement(percent):
    """A local type, so that it needs no name at file scope. 10000ths, as the device counts in whole numbers."""
    return (
        "struct LadderHandicap { long long start; __device__ LadderHandicap() : start(clock64()) {} "
        "__device__ ~LadderHandicap() { const long long elapsed = clock64() - start; "
        f"const long long wanted = elapsed + elapsed * {round(100 * percent)} / 10000; "
        "while (clock64() - start < wanted) {} } } ladder_handicap;"
    )
