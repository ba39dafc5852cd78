"""A Python function as a candidate: parameters, the program that calls it, and its errors. On the CPU: `view` and `_stream` of
the prelude, which need a GPU, are replaced."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli import interpreter, package, paths, plain_python, setup, tools, try_
from cli.errors import UsageError
from registry import listing
from search import sandbox, trial

_PRELUDE = paths.ROOT / "tools/cli/plain_python_prelude.py"
_DATA = Path(__file__).parent / "data"
_PYTHON = interpreter.Interpreter("/lib/libpython3.so", "/usr:/usr", "/usr", "/usr/bin/python3", ("/usr/lib",), ())
_SOURCE = 'import torch\n\ndef silu(x):\n    """R"(raw)" and \\\\n."""\n    return x * torch.sigmoid(x)\n'
# Replacements that make the prelude's tensors views of the host's memory.
_ON_HOST = """
def view(address, dtype, shape):
    import torch
    if not address:
        raise RuntimeError("no memory\\n\\nat address 0")
    kind = getattr(torch, _STORED[dtype][1])
    count = torch.Size(shape).numel()
    memory = (ctypes.c_char * (count * torch.empty(0, dtype=kind).element_size())).from_address(address)
    return torch.frombuffer(memory, dtype=kind).view(*shape)

def _stream(address):
    return None
"""


def _pass(path):
    return listing.read(paths.ROOT).find(path)


def _text(source, function="silu", dtype="fp32", path="silu/forward", **more):
    return plain_python.candidate(_pass(path), source, function, dtype, _PYTHON, **more)


@pytest.fixture(scope="module")
def torch_python():
    python = package.python()
    if python is None:
        pytest.skip("needs PyTorch: ./ladder setup --torch")
    return python


def test_file_and_function():
    assert plain_python.split("a/kernel.py:softmax") == ("a/kernel.py", "softmax")
    assert plain_python.split("a/kernel.py") == plain_python.split("a/kernel.py:") == ("a/kernel.py", "")
    assert plain_python.split("kernel.cu") is None


def test_parameters_are_the_names_of_the_pass():
    for words, expected in (
        ("x", ["x"]),
        ("n, y, *, x", ["n", "y", "x"]),
        ("x, block=64, c=3, *more, elements=None, **others", ["x", "c", "elements"]),
    ):
        assert repr(expected) in _text(f"def silu({words}): pass")
    text = _text("def f(w, h): pass", "f", path="conv3x3/fprop")
    assert '{"w", tensors.w}' in text and "ladder_json(problem.h)" in text and "problem.w" not in text


def test_wrong_names_are_answered_by_those_that_there_are():
    for says, source, *more in (
        ("kernel.py: no function 'silu'; there are: a, b", "def a(x): pass\nasync def c(): pass\ndef b(x): pass\n"),
        ("kernel.py: which function. kernel.py:NAME; there are: a", "def a(x): pass", ""),
        ("kernel.py: no function 'silu'; there are: none", "silu = 1"),
        ("'silu' has a parameter 'out'; there are: x, y, n, c, elements$", "def silu(x, out): pass"),
        ("'silu' has positional-only parameters", "def silu(x, /): pass"),
        ("kernel.py: .*line 1", "def silu(:"),
    ):
        with pytest.raises(UsageError, match=says):
            _text(source, *more)
    with pytest.raises(UsageError, match="--when: no 'out'; there are: n, c, elements, problem"):
        _text(_SOURCE, when="out > 2")


def test_it_needs_a_gpu_and_no_options_of_a_cu_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "lacking", lambda: "")
    for says, *words in (
        ("k.py:silu needs a GPU: a Python function runs on one only", "k.py:silu", "--when", "c > 2"),
        ("--entry and --include are for a .cu file", "k.py:silu", "--entry", "f(x)"),
        ("--entry and --include are for a .cu file", "k.py:silu", "--include", "."),
    ):
        with pytest.raises(UsageError, match=says):
            try_.main(["silu/forward", *words, "--device=emulator"])


def test_an_interpreter_without_pytorch_is_refused(tmp_path):
    for says, script in (
        (
            "No module named 'torch'; python3 -m pip install torch",
            "raise ModuleNotFoundError(\"No module named 'torch'\")",
        ),
        ("its PyTorch is built without CUDA", "class version: cuda = None"),
    ):
        (tmp_path / "torch.py").write_text(script)
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        with pytest.raises(UsageError, match=says):
            interpreter.find(str(python))
    with pytest.raises(UsageError, match="needs no-such-python: No such file"):
        interpreter.find("no-such-python")


def test_a_sandbox_adds_the_interpreter_and_a_tmp(monkeypatch):
    added = sandbox.besides(["/usr/lib/python3", "/a/lib/libpython3.so", "/a", "/ab", "/lib64/x", "/a/lib"])
    assert added == {Path("/a"): Path("/a"), Path("/ab"): Path("/ab")}
    for tmp in (False, True):
        words = sandbox.command(["true"], memory=1 << 30, candidate=True, tmp=tmp, gpu=True)
        assert ("/tmp" in words) == tmp
    assert trial.Workplace(None, "cuda").read == ()


@pytest.mark.skipif(not setup.has_nvcc(), reason="needs nvcc")
@pytest.mark.parametrize("path", ["softmax/forward", "policy/step"])
def test_nvcc_compiles_it(tmp_path, path):
    file = tmp_path / f"dev/{path}/v99_candidate.cu"
    file.parent.mkdir(parents=True)
    text = _text(_SOURCE.replace("silu(x)", "silu(x, n)"), path=path, dtype="bf16", when="n % 8 == 0")
    file.write_text(text, encoding="utf-8")
    words = ["nvcc", "-std=c++20", "-arch=sm_90a", "--cuda", f"-I{paths.ROOT}", f"-I{paths.PRIVATE}/root/usr/include"]
    done = tools.captured(*words, file, "-o", tmp_path / "out.ii")
    assert done.returncode == 0, done.stdout + done.stderr


# Runs in PyTorch's interpreter: prints a line for each case, its outputs after two launches or its error.
_LAUNCH = """
import json, sys
exec(compile(open(sys.argv[1]).read() + sys.argv[2], "prelude", "exec"))
import torch

def outputs(source, parameters, dtype="fp32"):
    kind = getattr(torch, _STORED[dtype][1])
    memory = {"x": torch.tensor([[1, 2], [3, 4]], dtype=kind)}
    memory.update(y=torch.zeros(2, 2, dtype=kind), mean=torch.zeros(2, dtype=kind))
    tensors = [[name, of.data_ptr(), dtype, of.shape, name != "x"] for name, of in memory.items()]
    call = caller(loaded(sys.argv[3], "kernel.py", source.encode(), "f"), parameters)
    for _ in range(2):
        call(json.dumps({"tensors": tensors, "sizes": {"m": 2, "eps": 0.5}}).encode(), 0)
    return json.dumps([memory[name].tolist() for name in ("y", "mean")])

for case in json.loads(sys.argv[4]):
    try:
        print(outputs(*case))
    except Exception as error:
        print(said(error))
"""


def test_outputs_are_parameters_or_returned(tmp_path, torch_python):
    cases = (
        ("def f(x): return 2 * x, x.mean(1)", "[[[2.0, 4.0], [6.0, 8.0]], [1.5, 3.5]]", ["x"]),
        ("def f(x): return 2 * x, x.mean(1)", "[[[2.0, 4.0], [6.0, 8.0]], [1.5, 3.5]]", ["x"], "bf16"),
        (
            "def f(x, y, m, eps):\n y.copy_(x + m + eps)\n return x[0]",
            "[[[3.5, 4.5], [5.5, 6.5]], [1.0, 2.0]]",
            ["x", "y", "m", "eps"],
        ),
        (
            "def f(mean, y, bias): mean.fill_(bias is None); y.fill_(2)",
            "[[[2.0, 2.0], [2.0, 2.0]], [1.0, 1.0]]",
            ["mean", "y", "bias"],
        ),
        ("def f(x, y): return x[0].requires_grad_()", "[[[0.0, 0.0], [0.0, 0.0]], [1.0, 2.0]]", ["x", "y"]),
        ("def f(x): return x", "TypeError: 1 returned values for the 2 outputs y, mean", ["x"]),
        ("def f(x, y): y.copy_(x)", "TypeError: returned NoneType for the output mean, not a tensor", ["x", "y"]),
        (
            "def f(x, y): return x",
            "TypeError: returned float32 [2, 2] on cpu for the output mean, which is float32 [2] on cpu",
            ["x", "y"],
        ),
        (
            "def f(x, y): return x[0].double()",
            "TypeError: returned float64 [2] on cpu for the output mean, which is float32 [2] on cpu",
            ["x", "y"],
        ),
        ("\ndef g(x):\n raise ValueError('a\\n\\n b')\n\ndef f(x): g(x)", "ValueError: a; b (kernel.py:3)", ["x"]),
        ("def f(x): assert x.shape == 1", "AssertionError (kernel.py:1)", ["x"]),
        ("import nothing_such", "ModuleNotFoundError: No module named 'nothing_such' (kernel.py:1)", []),
    )
    arguments = [_PRELUDE, _ON_HOST, tmp_path, json.dumps([[source, *rest] for source, _, *rest in cases])]
    done = tools.captured(torch_python, "-c", _LAUNCH, *arguments)
    assert done.stdout.splitlines() == [expected for _, expected, *_ in cases], done.stderr


def test_candidates_of_the_tree_are_softmax(torch_python):
    check = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, sys.argv[1])
import torch, softmax_torch, softmax_triton
for dtype in (torch.float32, torch.bfloat16):
    x = torch.randn(3, 4100).to(dtype)
    y, right = torch.empty_like(x), torch.softmax(x.double(), -1)
    softmax_triton.softmax(x, y)
    for found in (y, softmax_torch.softmax(x)):
        torch.testing.assert_close(found.double(), right, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-9)
"""
    done = tools.captured(torch_python, "-c", check, _DATA)
    if "No module named 'triton'" in done.stderr:
        pytest.skip("needs Triton")
    assert done.returncode == 0, done.stderr


_PROGRAM = """
#include <cstdio>
#include <thread>

int main(int, char** argv) {
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  const auto launch = [&](const float* from) {
    const std::string about = std::string("{\\"tensors\\": [[\\"x\\", ") +
        std::to_string(reinterpret_cast<std::uintptr_t>(from)) + ", \\"fp32\\", [4], false], [\\"y\\", " +
        std::to_string(reinterpret_cast<std::uintptr_t>(y)) + ", \\"fp32\\", [4], true]], \\"sizes\\": {}}";
    try {
      LadderPython::launch(about, nullptr);
      std::printf("%g %g\\n", y[0], y[3]);
    } catch (const ladder::Failure& error) {
      std::printf("%s\\n", error.what());
    }
  };
  launch(x);
  x[3] = 5;
  std::thread([&] { launch(x); }).join();
  launch(nullptr);
  launch(x);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory, torch_python):
    """Function of an author's source: the path of a program that calls its f(x) four times, and its Interpreter."""
    if not tools.cxx():
        pytest.skip("needs a C++ compiler")
    try:
        python = interpreter.find(str(torch_python))
    except UsageError as error:
        pytest.skip(str(error))

    def made(source):
        folder = tmp_path_factory.mktemp("program")
        prelude = _PRELUDE.read_text(encoding="utf-8") + _ON_HOST
        text = plain_python.embedding(source, "f", ["x"], python, prelude=prelude)
        (folder / "program.cpp").write_text(text + _PROGRAM, encoding="utf-8")
        words = [*tools.cxx(), "-std=c++20", "-Wall", "-Werror", f"-I{paths.ROOT}", folder / "program.cpp"]
        done = tools.captured(*words, "-o", folder / "program", "-ldl", "-lpthread")
        assert done.returncode == 0, done.stderr
        return folder / "program", python

    return made


_LONG = f"ValueError: {'a' * 288} ... {'b' * 286} (kernel.py:1)"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x): return 2 * x", ["2 8", "2 10", "RuntimeError: no memory; at address 0", "2 10"]),
        ("raise SystemExit(3)", ["SystemExit: 3 (kernel.py:1)"] * 4),
        (
            "def f(x): raise ValueError('a' * 300 + 'b' * 3000)",
            [_LONG, _LONG, "RuntimeError: no memory; at address 0", _LONG],
        ),
    ],
)
def test_a_program_loads_the_interpreter(program, source, expected):
    path, python = program(source)
    words = sandbox.command([path], memory=8 << 30, candidate=True, gpu=True, sandboxed=False)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, expected, "")
    assert [file.name for file in path.parent.glob("tmp*/*.py")] == ["kernel.py"]


# Compiles a module in C, as Triton does, and writes where it may.
_COMPILES = """
import ctypes, os, subprocess, sysconfig, tempfile

source = tempfile.mkstemp(".c")[1]
open(source, "w").write("#include <Python.h>\\nfloat twice(float x) { return Py_IsInitialized() * 2 * x; }")
words = ["gcc", "-shared", "-fPIC", source, "-o", source + ".so", "-I" + sysconfig.get_path("include")]
subprocess.run(words, check=True)
twice = ctypes.CDLL(source + ".so").twice
twice.restype, twice.argtypes = ctypes.c_float, [ctypes.c_float]
for folder in os.environ["HOME"], os.environ["TRITON_CACHE_DIR"]:
    os.makedirs(folder)

def f(x):
    return x.apply_(twice)
"""


@pytest.mark.skipif(sandbox.lacking() != "", reason="needs bubblewrap")
def test_in_a_sandbox_it_has_a_compiler_and_a_tmp(program):
    path, python = program(_COMPILES)
    read = {path: Path("/scratch/program"), **sandbox.besides(python.read)}
    words = sandbox.command(["/scratch/program"], memory=8 << 30, read=read, candidate=True, tmp=True, gpu=True)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[:1]) == (0, ["2 8"]), done.stdout + done.stderr
