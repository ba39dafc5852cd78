"""The scripts of reference/pytorch/ that people start, where Python lacks numpy and torch."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "reference" / "pytorch"
STARTED = [*SCRIPTS.glob("unet_*.py"), *SCRIPTS.glob("policy_*.py")]
STARTED = sorted(script.name for script in STARTED if "__main__" in script.read_text(encoding="utf-8"))


def last_words(script, path, **environment):
    """(status, stderr) of a script on a Python without packages (-S)."""
    command = [sys.executable, "-S", SCRIPTS / script, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(path), **environment})
    return done.returncode, done.stderr


def needs(script, remedy):
    return 1, f"{script}: needs numpy and torch: {sys.executable} lacks numpy and torch; {remedy}\n"


@pytest.mark.parametrize("script", STARTED)
def test_a_line_says_what_is_missing(tmp_path, script):
    assert last_words(script, tmp_path) == needs(script, f"{sys.executable} -m pip install numpy torch")


def test_a_line_names_the_python_that_has_them(tmp_path):
    pythons = []
    for name, status in (("lacks", 1), ("has", 0)):
        pythons.append(tmp_path / name / "python3")
        pythons[-1].parent.mkdir()
        pythons[-1].write_text(f"#!/bin/sh\nexit {status}\n")
        pythons[-1].chmod(0o755)
    lacks, has = pythons
    script = "unet_parity.py"
    assert last_words(script, f"{lacks.parent}:{has.parent}") == needs(script, f"{has} has both")
    assert last_words(script, lacks.parent, LADDER_PYTHON=str(has)) == needs(script, f"{has} has both")
    assert last_words(script, lacks.parent, LADDER_PYTHON="/nowhere/python3")[1].endswith("pip install numpy torch\n")
