"""CUDA constructs that the emulator lacks, found in a source's text before any compiler runs.

The table of docs/emulator.md is the list. Each word in backticks of its first column is a pattern, the second column is
the replacement. In a pattern "*" stands for letters, "[ab]" for one of them, a blank for any white space, and "cub/" for
an #include that begins so.
"""

import functools
import re
from pathlib import Path

from dev.words import CPP_TOKEN

MARK = "// TODO(port): "  # in front of what `./ladder port` leaves to do

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "emulator.md"
_MOST = 5  # lines, or words, of a replacement in a summary
_DIRECTIVE = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b\s*(.*)")
# Conditions that are false, or true, for a compiler of the emulator.
_FALSE = re.compile(r"0$|(?:defined\s*\(?\s*)?__CUDA(?:CC|_ARCH)__\b[^|]*$")
_TRUE = re.compile(r"1$|!\s*defined\s*\(?\s*__CUDA(?:CC|_ARCH)__\b[^&]*$")
_DEFINED = re.compile(r"#\s*define\s+(\w+)|\b(?:__device__|inline|static)\b[^;{}()=]{0,200}?\b(\w+)\s*\(")
_SPECIAL = {"*": r"\w*", " ": r"\s+", "(": r"\s*\("}


@functools.cache
def table():
    """[(pattern in words, replacement)] of the page, in its order."""
    page = _PAGE.read_text(encoding="utf-8").partition("| lacks | instead |")[2]
    rows = re.findall(r"^\| (.*`.*) \| (.*) \|$", page, re.MULTILINE)
    use = [(words, ("" if text.startswith("leave") else "use ") + text.replace("`", "")) for words, text in rows]
    return [(word, instead) for words, instead in use for word in re.findall(r"`([^`]+)`", words)]


@functools.cache
def _expression():
    """An expression with a group for each row of table(). Two letters that begin none are passed over quickly."""
    patterns = [_pattern(word) for word, _ in table()]
    begin, words = "|".join({pattern[:2] for pattern in patterns}), "|".join(f"({pattern})" for pattern in patterns)
    return re.compile(rf"(?:(?=<)|(?<![\w.])(?<!std::))(?={begin})(?:{words})")


def _pattern(word):
    if word.endswith("/"):
        return rf'#include [<"]{re.escape(word)}[^>"\n]*[>"]'
    parts = re.split(r"(\*|\[[\w-]+\]| |\()", word)
    text = "".join(_SPECIAL.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
    return text + (r"(?!\w)" if re.match(r"\w", word[-1]) else "")


def scan(text):
    """[(line number, word of the source, replacement)]. Comments, literals and names that the source defines do not count."""
    code, found, line, end = _compiled(text), [], 1, 0
    defined = {name for names in _DEFINED.findall(code) for name in names}
    for match in _expression().finditer(code):
        if re.match(r"\w+|", match[0])[0] not in defined - {""}:
            word = " ".join(match[0].replace("#include ", "").rstrip("( ").split())
            line, end = line + code.count("\n", end, match.start()), match.start()
            found.append((line, word, table()[match.lastindex - 1][1]))
    return found


def summary(found):
    """Findings in one line of text: the lines and words of each replacement."""
    said = {}  # {replacement: (lines, words)}
    for line, word, instead in found:
        for kept, one in zip(said.setdefault(instead, ({}, {})), (str(line), word)):
            kept[one] = None
    return "; ".join(f"line {_first(lines)}: {_first(words)}: {instead}" for instead, (lines, words) in said.items())


def _first(words):
    return ", ".join([*words][:_MOST]) + (", ..." if len(words) > _MOST else "")


def blanked(text):
    """The text with blanks for comments, and for strings and characters outside of #include: every offset stays."""

    def blank(match):
        is_code = match[2] or match[0][0].isdigit()
        if match[0][0] == '"':
            is_code = re.search(r"#\s*include\s*$", text[max(match.start() - 40, 0) : match.start()])
        return match[0] if is_code else re.sub(r"[^\n]", " ", match[0])

    return CPP_TOKEN.sub(blank, text)


def _compiled(text):
    """The lines of code that a compiler of the emulator sees; others are empty, as are those of #if and #endif."""
    lines, branches = [], []  # of each open #if: (a branch was taken, this branch is left out)
    for line in blanked(text).splitlines():
        directive = _DIRECTIVE.match(line)
        is_out = directive or any(out for _, out in branches)
        lines.append("" if is_out else re.sub(r"^\s*#\s*include\s*", "#include ", line))
        if not directive:
            continue
        word, condition = directive[1], directive[2].strip()
        condition = {"ifdef": "defined ", "ifndef": "!defined ", "else": "1"}.get(word, "") + condition
        taken = bool(branches) and not word.startswith("if") and branches.pop()[0]
        if word != "endif":
            branches.append((taken or bool(_TRUE.match(condition)), taken or bool(_FALSE.match(condition))))
    return "\n".join(lines)
