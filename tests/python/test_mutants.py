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
