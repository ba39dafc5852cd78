"""reference/pytorch/own.py: a baseline that is a file's functions, with arrays of NumPy's kind in the place of tensors."""

import types

import pytest

import own
import worker

TENSORS = [
    {"name": "x", "role": "input", "dtype": "fp32", "shape": [2, 3]},
    {"name": "y", "role": "output", "dtype": "fp32", "shape": [2, 3]},
    {"name": "mean", "role": "output", "dtype": "fp32", "shape": [2]},
]


class Torch:
    """Functions run as they are, under compile as well."""

    float32, float16 = "float32", "float16"
    tf32 = bfloat16 = int32 = int64 = uint8 = None

    def __init__(self):
        self.modes = []

    def compile(self, function, mode, dynamic):
        self.modes.append(mode)
        return function

    class no_grad:
        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass


def tensor(shape=(2, 3), dtype="float32"):
    return types.SimpleNamespace(shape=shape, dtype=dtype)


def outputs(tmp_path, source, pass_name="forward"):
    """{plan: {output: tensor}} of a file's functions."""
    file = tmp_path / "mine.py"
    file.write_text(source)
    case = worker.Case("toy", pass_name, "n2 c3 fp32", "all", TENSORS)
    torch = Torch()
    plans = own.Own(file).plans(torch, case, {"x": tensor()})
    made = {plan.name: plan.setup()() for plan in plans}
    assert torch.modes == ["default", "max-autotune-no-cudagraphs"]
    return made


def test_a_function_is_named_as_the_pass_and_takes_inputs_by_name(tmp_path):
    made = outputs(tmp_path, "def forward(x):\n    return x\n")
    assert list(made) == ["mine.py eager", "mine.py compile", "mine.py compile max-autotune"]
    assert [list(each) for each in made.values()] == [["y"]] * 3


def test_several_outputs(tmp_path):
    source = (
        "import types\n"
        "def forward(problem, x):\n"
        "    assert problem == 'n2 c3 fp32'\n"
        "    mean = types.SimpleNamespace(shape=(2,), dtype='float32')\n"
        "    return "
    )
    for result in ("x, mean", "{'mean': mean, 'y': x}"):
        assert sorted(outputs(tmp_path, source + result + "\n")["mine.py eager"]) == ["mean", "y"]


@pytest.mark.parametrize(
    "source, says",
    [
        ("def backward(x): return x", "mine.py has no function forward"),
        ("forward = 3", "mine.py has no function forward"),
        ("def forward(x, w): return x", "mine.py: forward has no input w; it has x, problem"),
        ("def forward(x): return {'z': x}", "mine.py: forward has no output z; it has y, mean"),
        ("def forward(x): x.dtype = 'float16'; return x", r"mine.py: y is \(2, 3\) float16, not \(2, 3\) float32"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, source, says):
    with pytest.raises(worker.Refusal, match=says):
        outputs(tmp_path, source)


def test_its_name_is_that_of_the_library(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "imported", lambda: types.SimpleNamespace(__version__="2.11.0+cu130"))
    monkeypatch.setattr(worker, "Timer", lambda torch: types.SimpleNamespace(empty_seconds=lambda: 1e-6))
    assert worker.Plans(own.Own(tmp_path / "mine.py")).hello()["library"] == "mine.py (PyTorch 2.11.0)"
