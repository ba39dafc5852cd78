"""CUDA constructs that the emulator lacks, found in a source's text before any compiler runs.

The table of docs/emulator.md is the list. Each word in backticks of its first column is a pattern, the second column is
the replacement. In a pattern "*" stands for letters, "[ab]" for one of them, a blank for any white space, and "cub/" for
an #include that begins so.
"""

import functools
import re
from dataclasses import dataclass

from dev.words import CPP_TOKEN

from . import paths

_ROW = re.compile(r"^\| (.*`.*) \| (.*) \|$", re.MULTILINE)
_DIRECTIVE = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b\s*(.*)")
# Conditions that are false, or true, for a compiler of the emulator.
_FALSE = re.compile(r"0$|(?:defined\s*\(?\s*)?__CUDA(?:CC|_ARCH)__\b[^|]*$")
_TRUE = re.compile(r"1$|!\s*defined\s*\(?\s*__CUDA(?:CC|_ARCH)__\b[^&]*$")
MARK = "// TODO(port): "  # in front of what `./ladder port` leaves to do
_MOST = 5  # lines, or words, of a replacement in a summary


@dataclass(frozen=True)
class Finding:
    line: int
    word: str  # as in the source
    instead: str

    def __str__(self):
        return f"{self.word}: {self.instead}"


@functools.cache
def table():
    """[(pattern in words, regular expression, replacement)] of the page, in its order."""
    page = (paths.ROOT / "docs" / "emulator.md").read_text(encoding="utf-8")
    rows = _ROW.findall(page[page.index("| lacks | instead |") :])
    return [
        (word, _expression(word), ("" if instead.startswith("leave") else "use ") + instead.replace("`", ""))
        for words, instead in rows
        for word in re.findall(r"`([^`]+)`", words)
    ]


def _expression(word):
    if word.endswith("/"):
        return rf'#include [<"]{re.escape(word)}[^>"\n]*[>"]'
    parts = re.split(r"(\*|\[[\w-]+\]| |\()", word)
    special = {"*": r"\w*", " ": r"\s+", "(": r"\s*\("}
    text = "".join(special.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
    return text + (r"(?!\w)" if re.match(r"\w", word[-1]) else "")


@functools.cache
def _all():
    words = "|".join(f"({expression})" for _, expression, _ in table())
    return re.compile(rf"(?:(?=<)|(?<![\w.])(?<!std::)(?=[a-z_#]))(?:{words})")


def scan(text):
    """Findings of a source, by line. Comments, literals, and names that the source itself defines do not count."""
    code = _compiled(text)
    found = []
    for match in _all().finditer(code):
        name = re.match(r"\w*", match[0])[0]
        if not (name and _defines(code, name)):
            word = " ".join(match[0].replace("#include ", "").rstrip("( ").split())
            found.append(Finding(code.count("\n", 0, match.start()) + 1, word, table()[match.lastindex - 1][2]))
    return found


def summary(found):
    """Findings in one line of text: the lines and words of each replacement."""
    groups = {}
    for each in found:
        groups.setdefault(each.instead, []).append(each)
    return "; ".join(f"{_at(group)}: {instead}" for instead, group in groups.items())


def _at(found):
    lines, words = (list(dict.fromkeys(each)) for each in zip(*((str(one.line), one.word) for one in found)))
    return f"line {_first(lines)}: {_first(words)}"


def _first(words):
    return ", ".join(words[:_MOST]) + (", ..." if len(words) > _MOST else "")


def blanked(text):
    """The text with blanks for comments, and for strings and characters outside of #include: every offset stays."""

    def blank(match):
        token = match[0]
        is_include = token[0] == '"' and re.search(
            r"#\s*include\s*$", text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        )
        keeps = is_include or match[2] or token[0].isdigit()
        return token if keeps else re.sub(r"[^\n]", " ", token)

    return CPP_TOKEN.sub(blank, text)


def _defines(code, name):
    return re.search(rf"#\s*define\s+{name}\b|\b(?:__device__|inline|static)\b[^;{{}}()=]*\b{name}\s*\(", code)


def _compiled(text):
    """The lines of code that a compiler of the emulator sees; others are empty, as are those of #if and #endif."""
    lines, branches = [], []  # of each open #if: [a branch was taken, this branch is left out]
    for line in blanked(text).splitlines():
        directive = _DIRECTIVE.match(line)
        if not directive:
            lines.append("" if any(out for _, out in branches) else re.sub(r"^\s*#\s*include\s*", "#include ", line))
            continue
        lines.append("")
        word, condition = directive.groups()
        condition = {"ifdef": "defined ", "ifndef": "!defined "}.get(word, "") + condition.strip()
        if word.startswith("if"):
            branches.append([False, False])
        elif word == "endif":
            branches[-1:] = []
        if branches and word != "endif":
            taken = branches[-1][0]
            is_true = word == "else" or bool(_TRUE.match(condition))
            branches[-1] = [taken or is_true, taken or (word != "else" and bool(_FALSE.match(condition)))]
    return "\n".join(lines)
