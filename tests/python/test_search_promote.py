"""./ladder promote-candidate: a candidate that passed becomes the next version's file, and nothing else does."""

import pytest

from cli import paths, plain_python
from cli.errors import Failure, UsageError
from cli.interpreter import Interpreter
from registry import listing
from search import log, promote

V08 = """\
// Idea:   tiles.
// Parent: v07.
// Why:    each input was read nine times.
// Needs:  c a multiple of 8.

__global__ void toy_fprop_v08_kernel() {}
LADDER_VERSION(toy::Fprop, {.launch = launch})
"""
OWN = """\
// Idea:   swizzled tiles.
// Parent: v08.
// Why:    bank conflicts.
// Needs:  nothing.

__global__ void toy_fprop_v99_kernel() { use(toy_fprop_v99_kernel_v990); }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    made = tmp_path / "dev" / "toy" / "fprop"
    made.mkdir(parents=True)
    (made / "v08_tiles.cu").write_text(V08)
    (made / "v11_later.cu").write_text("")
    return made


def node(source, parent="v08", verdict="PASS", idea="Swizzle the tiles of x, too", **fields):
    record = {"source": source, "parent": parent, "verdict": verdict, "idea": idea, **fields}
    return log.append("toy", "fprop", record)


def test_a_candidate_with_its_own_header(folder, capsys):
    assert promote.main(["toy/fprop", str(node(OWN))]) == 0
    assert (folder / "v12_swizzle_the_tiles_of.cu").read_text() == OWN.replace("_v99_", "_v12_")
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("wrote dev/toy/fprop/v12_swizzle_the_tiles_of.cu from node 1")
    assert "./ladder check toy/fprop --version 12" in said[1] and "./ladder record" in said[3]
    assert sorted(file.name for file in folder.iterdir())[-1] == "v12_swizzle_the_tiles_of.cu", "nothing aside is left"


def test_a_python_function_is_no_version(folder):
    source = plain_python.embedding("def f(x): pass", "f", ["x"], Interpreter("", "", "", "", (), ()))
    with pytest.raises(Failure, match="node 1 is no version: it calls a Python function"):
        promote.main(["toy/fprop", str(node(source))])


def test_a_candidate_that_kept_its_parents_header(folder, capsys):
    first = node(V08.replace("{}", "{ a(); }"))
    second = node(V08.replace("{}", "{ a(); b(); }"), first, idea="use __ldg and " + "many words " * 20)
    promote.main(["toy", str(second), "--name", "read_only"])
    text = (folder / "v12_read_only.cu").read_text()
    header = listing.header(text)
    assert header["idea"].startswith("use __ldg and many words") and header["parent"] == 8
    assert header["needs"] == "c a multiple of 8." and "nine times" not in text
    assert "toy_fprop_v12_kernel() { a(); b(); }" in text and max(map(len, text.splitlines())) <= 120
    assert "fill in its header comment" in capsys.readouterr().err


LICENCE = "// Copyright 2026 the author.\n//\n"


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        (
            LICENCE + "// Idea:   an outsider's softmax,\n//         in rows.\n// Why:    mine.\n",
            LICENCE + "// Idea:   an outsider's softmax,\n//         in rows.\n// Parent: v08.\n// Why:    mine.\n",
        ),
        (
            LICENCE + "// Idea: rows.\n// Parent: v07,\n//         with care.\n// Why: mine.\n",
            LICENCE + "// Idea: rows.\n// Parent: v08.\n// Why: mine.\n",
        ),
        (LICENCE, "// Idea:   Swizzle the tiles of x, too.\n// Parent: v08.\n" + LICENCE),
    ],
)
def test_an_authors_comment_is_kept_and_completed(folder, comment, expected, capsys):
    code = "\n__global__ void toy_fprop_v99_kernel() {}\n"
    promote.main(["toy", str(node(comment + code)), "--name", "rows"])
    assert (folder / "v12_rows.cu").read_text() == expected + code.replace("_v99_", "_v12_")
    assert ("fill in its header comment (Why)" in capsys.readouterr().err) == ("Why" not in comment)


def test_a_candidate_from_nothing_without_header_or_name(folder, capsys):
    promote.main(["toy", str(node("__global__ void kernel() {}\n", None)), "--name", "alone"])
    text = (folder / "v12_alone.cu").read_text()
    assert text.startswith("// Idea:   Swizzle the tiles of x, too.\n// Parent: none.\n// Why:")
    assert text.endswith("\n\n__global__ void kernel() {}\n")
    assert "name its kernel toy_fprop_v12_kernel" in capsys.readouterr().err


@pytest.mark.parametrize("verdict", ["FAIL", "SKIP", "UNTRUSTED"])
def test_only_what_passed(folder, verdict):
    node(OWN, verdict=verdict, reason="y differs")
    with pytest.raises(Failure, match=f"^node 1 is no version: {verdict} y differs$"):
        promote.main(["toy", "1"])
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["toy", "2"], "has no node 2"),
        (["toy", "x"], "invalid int"),
        (["toy", "1", "--name", "tiles"], "has 'tiles' already: v08_tiles.cu"),
        (["toy", "1", "--name", "faster"], "'faster' says nothing"),
        (["toy", "1", "--name", "../../x"], "snake_case"),
        (["toys", "1"], "no layer 'toys'"),
    ],
)
def test_wrong_words(folder, arguments, says):
    node(OWN)
    with pytest.raises(UsageError, match=says):
        promote.main(arguments)
    assert len(list(folder.iterdir())) == 2


def test_a_source_that_cannot_be_rebuilt(folder):
    node(OWN)
    (folder / "v08_tiles.cu").write_text("else\n")
    with pytest.raises(Failure, match="cannot be rebuilt"):
        promote.main(["toy", "1"])
    assert len(list(folder.iterdir())) == 2
