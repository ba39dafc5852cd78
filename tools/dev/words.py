"""Comments and docstrings whose first word leaves them without a subject: tools/dev/words.py [files or folders...].

A comment block or docstring begins with a noun phrase, an imperative verb or "Returns", never with a word of FIRST_WORDS
(STYLE: "Language"). A comment behind code on its line goes on from that code, and is not looked at. Part of
`./ladder format --check`.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST_WORDS = frozenset("What Of Where Whether How By As Those That Whose With".split())
_CPP_COMMENT = re.compile(r"\s*//+\s?(.*)")
_PYTHON_COMMENT = re.compile(r"\s*#\s?(.*)")
_WORD = re.compile(r"[^\w`]*(\w+)")


def findings(path):
    """[(line number, first word)] of a C++, CUDA or Python file, in order."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return _first_words(_blocks(text, _CPP_COMMENT))
    return sorted(_first_words([*_blocks(text, _PYTHON_COMMENT), *_docstrings(text)]))


def _first_words(starts):
    words = [(line, _WORD.match(text)) for line, text in starts]
    return [(line, word[1]) for line, word in words if word and word[1].capitalize() in FIRST_WORDS]


def _blocks(text, comment):
    """(line number, text) of the first line of each block of lines that are comments alone."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        begun = comment.fullmatch(line)
        if begun and not inside:
            yield number, begun[1]
        inside = bool(begun)


def _docstrings(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring


def report(paths):
    """Prints a line for each finding; returns how many there are."""
    found = [(path, line, word) for path in paths for line, word in findings(path)]
    for path, line, word in found:
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        print(f"{name}:{line}: the comment begins with '{word}': begin with its subject or a verb", file=sys.stderr)
    return len(found)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    named = [path.resolve() for path in parser.parse_args(arguments).paths]
    files = [file for path in named for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    count = report([file for file in files if file.suffix in {".h", ".cpp", ".cu", ".cuh", ".py"}])
    print(f"words: {count} comments")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
