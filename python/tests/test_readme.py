"""The README's examples run, and its table has every operator."""

import re
from pathlib import Path

import torch

import ladder_torch

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def test_the_examples_run(kernels, capfd):
    torch.manual_seed(0)
    program = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    exec(compile(program, "README.md", "exec"), {})
    assert "v05_smem_slab" in capfd.readouterr().out


def test_every_operator_is_in_the_table():
    rows = re.findall(r"^\| `(\w+)\(", README, re.MULTILINE)
    functions = list(ladder_torch.ops.__all__)
    assert sorted(rows) == sorted(functions)
