"""tests/mutants: each bug can still be planted, and is told in full."""

import pytest

from cli import paths
from cli.errors import Failure
from dev import mutants


def test_each_mutant_matches_one_place_of_its_file():
    found = mutants.read()
    assert [f"{m.area}/{m.name}: {why}" for m in found if (why := m.wrong())] == []
    names = [f"{m.area}/{m.name}" for m in found]
    assert len(set(names)) == len(names)
    for mutant in found:
        assert mutant.kind in ("async", "plain") and mutant.why and mutant.before != mutant.after, mutant.name
        program, _, version = mutant.unit.partition(" ")
        assert not version or (paths.ROOT / "dev" / f"{version}.cu").is_file(), mutant.unit
        assert program == "package" or program.startswith("test_"), mutant.unit


_ONE = """[[mutant]]
name = "one"
file = "README.md"
before = "# Ladder"
after = "# Fence"
kind = "plain"
unit = "test_versions_silu silu/forward/v01_naive"
why = "The name is wrong."
"""


def test_a_list_is_read_and_a_wrong_one_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text(_ONE)
    (one,) = mutants.read(tmp_path)
    assert one.area == "a" and one.wrong() == ""
    (tmp_path / "a.toml").write_text(_ONE.replace("# Ladder", "there is no such text"))
    assert mutants.read(tmp_path)[0].wrong() == "README.md has its text 0 times, not once"
    (tmp_path / "a.toml").write_text(_ONE.replace("why", "reason"))
    with pytest.raises(Failure, match=r"a.toml: not a list of mutants: unknown key reason"):
        mutants.read(tmp_path)


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Mutants of a tree of one file, and what the tests are to say of them by preset."""
    source = tmp_path / "dev" / "silu" / "forward" / "v01_naive.cu"
    source.parent.mkdir(parents=True)
    source.write_text("int a;\n")
    (tmp_path / "a.toml").write_text(
        _ONE.replace("README.md", "dev/silu/forward/v01_naive.cu").replace("# Ladder", "a")
    )
    says = {"order": "caught: a race", "emulator": "survived", "seen": []}

    def tested(mutant, preset):
        says["seen"].append((preset, (tmp_path / "tree" / mutant.file).read_text()))
        return says[preset]

    (tmp_path / "tree" / "dev" / "silu" / "forward").mkdir(parents=True)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "_TREE", tmp_path / "tree")
    monkeypatch.setattr(mutants, "_RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(mutants, "_copy_tree", lambda: None)
    monkeypatch.setattr(mutants, "_build_unchanged", lambda waiting: None)
    monkeypatch.setattr(mutants, "_tested", tested)
    found = mutants.read(tmp_path)
    monkeypatch.setattr(mutants, "read", lambda: found)
    return says


def test_each_bug_is_planted_once_in_both_presets_and_taken_out(planted, tmp_path, capsys):
    assert mutants.main([]) == 0
    assert [(preset, "# Fence" in text) for preset, text in planted["seen"]] == [("order", True), ("emulator", True)]
    assert (tmp_path / "tree" / "dev/silu/forward/v01_naive.cu").read_text() == "int a;\n"
    assert capsys.readouterr().out.splitlines()[-1].split() == "all plain 1 100 % 0 %".split()
    assert mutants.main([]) == 0
    assert len(planted["seen"]) == 2, "results are kept"
    (tmp_path / "dev/silu/forward/v01_naive.cu").write_text("int a = 1;\n")
    assert mutants.main([]) == 0
    assert len(planted["seen"]) == 4, "its file changed"


def test_a_survivor_is_named_and_one_that_does_not_compile_counts_as_neither(planted, capsys):
    planted["order"] = "survived"
    mutants.main([])
    assert capsys.readouterr().out.splitlines()[-1] == "a/one survives: The name is wrong."
    planted["order"] = planted["emulator"] = "no build: a.cu:1: error"
    (paths.ROOT / "dev/silu/forward/v01_naive.cu").write_text("int a = 2;\n")
    mutants.main([])
    assert capsys.readouterr().out.splitlines()[1:] == ["a/one: no build: a.cu:1: error"]
