"""tools/dev/words.py: comments and docstrings whose first word leaves them without a subject."""

from dev import words


def found(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    return words.findings(file)


def test_a_block_of_comments_is_judged_by_its_first_word_alone(tmp_path):
    text = "// Of a warp: its sums,\n// what they are for.\nint a;\n\n  // where it lies\nint b;  // of a block\n// The sums of\n"
    assert found(tmp_path, "a.h", text) == [(1, "Of"), (5, "where")]


def test_docstrings_and_comments_of_python_are_judged(tmp_path):
    text = '"""Whether it is so."""\n\n\ndef f():\n    """Return what is there."""\n    # those of a file\n    return 1  # what else\n'
    assert found(tmp_path, "a.py", text) == [(1, "Whether"), (6, "those")]


def test_each_finding_is_a_line_and_is_counted(tmp_path, capsys):
    file = tmp_path / "a.cu"
    file.write_text("// Idea:   tiles.\n// By blocks.\n\n// `With` quotes.\nint a;\n// (With none.)\n")
    assert words.report([file]) == 1
    assert capsys.readouterr().err == f"{file}:6: the comment begins with 'With': begin with its subject or a verb\n"
