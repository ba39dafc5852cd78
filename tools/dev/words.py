"""Comments and docstrings whose first word leaves them without a subject: tools/dev/words.py [files or folders...].

A comment block or docstring begins with a noun phrase, an imperative verb or "Returns", never with a word of FIRST_WORDS
(STYLE: "Language"). A comment behind code on its line goes on from that code, and is not looked at. Part of
`./ladder format --check`, which also fails when C++ and CUDA sources use identifiers of NAMES more than MOST_NAMES times;
`--names` prints that count by folder, of the whole tree by default.
"""

import argparse
import ast
import collections
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from cli.paths import CPP_FOLDERS  # noqa: E402

FIRST_WORDS = frozenset("What Of Where Whether How By As Those That Whose With".split())
# Identifiers that say a role; a name of the thing replaces them (STYLE: "Names", docs/renamed.md).
NAMES = frozenset(
    """each place own whole rest few Share Sharing share unit kNoUnit asked behind so_far held Place SumsPlace SlabPlace
    Turn beside beside_early Added sums_bias also x_above x_below""".split()
)
MOST_NAMES = 40  # lower it when there are fewer; never raise it
_CPP_SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
# Comments, raw strings, strings, numbers (an apostrophe may separate digits) and characters; last, identifiers (group 2).
CPP_TOKEN = re.compile(
    r'(?s)//(?:\\\n|[^\n])*|/\*.*?\*/|(?:u8|[uUL])?R"([^\s()\\]*)\(.*?\)\1"|"(?:\\.|[^"\\])*"'
    r"|\d(?:'?[\w.])*|'(?:\\.|[^'\\])*'|([A-Za-z_]\w*)"
)
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


def names_by_folder(paths):
    """Counter {folder: identifiers of NAMES in its C++ and CUDA code}; a layer of dev/ is a folder of its own."""
    counts = collections.Counter()
    for path in (path.resolve() for path in paths if path.suffix in _CPP_SUFFIXES):
        folders = (path.relative_to(ROOT) if path.is_relative_to(ROOT) else path).parts[:-1]
        tokens = CPP_TOKEN.finditer(path.read_text(encoding="utf-8"))
        depth = 2 if folders[:1] in {("dev",), ("core",)} else 1
        counts["/".join(folders[:depth])] += sum(token[2] in NAMES for token in tokens)
    return counts


def too_many_names(counts):
    """Prints a message if the counts of names_by_folder() exceed MOST_NAMES together; returns whether they do."""
    total = sum(counts.values())
    if total > MOST_NAMES:
        most = "{0[0]}/ has most, {0[1]}".format(*counts.most_common(1))
        print(f"words: {total} identifiers of NAMES (tools/dev/words.py), {MOST_NAMES} may be; {most}", file=sys.stderr)
    return total > MOST_NAMES


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="print the number of identifiers of NAMES by folder")
    parser.add_argument("paths", nargs="*", type=Path, help="default: all folders with C++ and CUDA")
    chosen = parser.parse_args(arguments)
    named = [path.resolve() for path in chosen.paths or map(ROOT.joinpath, CPP_FOLDERS)]
    files = [file for path in named for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    if chosen.names:
        counts = names_by_folder(files)
        for folder, count in [*(+counts).most_common(), ("in all", sum(counts.values()))]:
            print(f"{count:5} {folder}")
        return 0
    count = report([file for file in files if file.suffix in {*_CPP_SUFFIXES, ".py"}])
    print(f"words: {count} comments")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
