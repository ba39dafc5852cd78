"""The documents: their pages, the commands in their code blocks, and which of these run where (LIST)."""

import contextlib
import fnmatch
import functools
import re
import socket
from dataclasses import dataclass

from . import device, tools
from .errors import Failure

LIST = "tests/docs_commands.txt"
NOT_OURS = ("build", "results", "runs")  # folders without documents

_SECONDS = 600
_PROGRAMS = r"(?:\./ladder|build/\S+|cmake|ctest|ncu|python3|pip|git|for \w+ in)(?: |$)"
_WORDS = r"""(?:'[^']*'|"[^"]*"| (?! )|[^\s'"])*"""  # up to an explanation, which two spaces set off
_COMMAND = re.compile(rf" {{4,}}(?={_PROGRAMS})({_WORDS})")
_CONTINUATION = re.compile(rf"\s*({_WORDS})")
_LIMIT = re.compile(r"(\d+) s")


@dataclass(frozen=True)
class Command:
    document: str
    line: int
    text: str


@dataclass(frozen=True)
class Rule:
    pattern: str = "*"
    reason: str = ""  # of a command that no machine runs
    needs: tuple = ()  # of _NEEDS
    seconds: int = _SECONDS

    def why_not(self):
        """The reason why the command does not run here, or nothing."""
        lacking = (words for there, words in map(_NEEDS.get, self.needs) if not there())
        return self.reason or next(lacking, "")


def pages(root):
    """The Markdown documents of the tree, the front page first."""
    folders = [path for path in root.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in NOT_OURS]
    return sorted([*root.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))])


def commands(root):
    """Every Command of the documents, in their order."""
    return [command for page in pages(root) for command in _commands(page, str(page.relative_to(root)))]


def _commands(page, name):
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    fenced, indented, before = False, False, ""
    for number, line in lines:
        fenced ^= line.lstrip().startswith("```")
        indented = line.startswith("    ") and (indented or not before.strip())
        before = line
        found = _COMMAND.match(f"    {line}" if fenced else line)
        if found and (fenced or indented):
            text = found[1].rstrip()
            while text.endswith("\\"):
                more = _CONTINUATION.match(next(lines, (0, ""))[1])[1]
                text = f"{text[:-1].rstrip()} {more.rstrip()}"
            yield Command(name, number, text)


def rules(root, found):
    """{Command: its Rule}, the first of LIST whose pattern matches. Throws Failure for a line that is first for none."""
    listed = {
        number: _rule(line, number)
        for number, line in enumerate((root / LIST).read_text(encoding="utf-8").splitlines(), 1)
        if line.strip() and not line.startswith("#")
    }
    numbers = {
        command: next((n for n, rule in listed.items() if fnmatch.fnmatchcase(command.text, rule.pattern)), None)
        for command in found
    }
    for number in listed.keys() - numbers.values():
        pattern = listed[number].pattern
        raise Failure(f"{LIST}:{number}: '{pattern}' matches no command that no line above it matches; remove the line")
    return {command: listed.get(number, Rule()) for command, number in numbers.items()}


def _rule(line, number):
    what, _, pattern = (word.strip() for word in line.partition("|"))
    if not (what and pattern):
        raise Failure(f"{LIST}:{number}: '{line}': it is to be WHAT | PATTERN, as the top of the file says")
    words = what.split(", ")
    limits = [int(limit[1]) for word in words if (limit := _LIMIT.fullmatch(word))]
    needs = tuple(word for word in words if word in _NEEDS)
    if len(limits) > 1 or len(limits) + len(needs) < len(words):
        return Rule(pattern, what)
    return Rule(pattern, needs=needs, seconds=limits[0] if limits else _SECONDS)


@functools.cache
def _has_pytorch():
    return tools.can_import("python3", "numpy", "torch")


@functools.cache
def _has_network():
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo("pypi.org", 443))
    return False


# Needs that a machine may lack: a test for each, and the words where it fails.
_NEEDS = {
    "GPU": (lambda: device.gpu()[0], "needs a GPU"),
    "PyTorch": (_has_pytorch, "needs numpy and torch"),
    "network": (_has_network, "needs a network"),
}
