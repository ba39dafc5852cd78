"""tools/dev/words.py: comments and docstrings whose first word leaves them without a subject, and identifiers that have a better name."""

import shutil

import pytest

from dev import format, words


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


@pytest.mark.parametrize(
    "text, count",
    [
        ("int each = place + Place::kOwn;", 3),
        ("// each\\\n each\nint a;  /* own\n own */", 0),
        (r'auto a = "own \" own", b = u8"each"; char c = ' "'\"', d = 'u'; int share;", 1),
        ('auto a = R"(each " own)", b = LR"x(each )" own)x"; int rest;', 1),
        ("int a = 1'000'000, each = 0x1p-1'2, own_sum, the_rest;", 1),
    ],
)
def test_identifiers_are_counted_in_code_alone(tmp_path, text, count):
    file = tmp_path / "a.cu"
    file.write_text(text)
    assert sum(words.names_by_folder([file]).values()) == count


def test_python_has_no_names_to_count(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("each = 1\n")
    assert not words.names_by_folder([file])


def test_names_are_counted_by_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    files = [tmp_path / name for name in ("dev/gemm/fprop/v01_a.cu", "dev/gemm/a.h", "core/a.h", "nn/deep/a.cpp")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("int each, own;")
    assert words.names_by_folder(files) == {"dev/gemm": 4, "core": 2, "nn": 2}
    assert words.main(["--names", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "    4 dev/gemm\n    2 core\n    2 nn\n    8 in all\n"


def test_more_names_than_allowed_are_a_finding_that_names_the_worst_folder(capsys):
    most = words.MOST_NAMES
    assert not words.too_many_names({}) and not words.too_many_names(words.collections.Counter(core=1, nn=most - 1))
    assert capsys.readouterr().err == ""
    assert words.too_many_names(words.collections.Counter(core=1, nn=most))
    message = f"{most + 1} identifiers of NAMES (tools/dev/words.py), {most} may be; nn/ has most, {most}"
    assert capsys.readouterr().err == f"words: {message}\n"


@pytest.mark.skipif(not shutil.which("clang-format"), reason="no clang-format")
def test_format_limits_names_only_where_it_checks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(words, "MOST_NAMES", 1)
    file = tmp_path / "a.cpp"
    file.write_text("int each, own;\n")
    assert format.main([str(file)]) == 0
    assert format.main(["--check", str(file)]) == 1
    assert "2 identifiers of NAMES" in capsys.readouterr().err
    file.write_text("int each;\n")
    assert format.main(["--check", str(file)]) == 0
