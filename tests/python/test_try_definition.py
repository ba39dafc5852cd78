"""`./ladder try --problem-file`: op definitions, and candidates that a judge with PyTorch tries on the CPU."""

import json
import shutil
from pathlib import Path

import pytest

from cli import package, tools, try_
from cli.errors import UsageError
from search import definition, definition_library, sandbox, trial

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = """\
import torch

def made(axes_and_scalars, device):
    rows = axes_and_scalars["rows"]
    return {"x": torch.randn(rows, 8, device=device).bfloat16(), "index": torch.arange(rows, device=device), "scale": 2.0}

def run(x, index, scale):
    x *= scale  # of its own copy
    return x[index.flip(0)], (scale * x.float()).sum()
"""
DEFINITION = {
    "name": "flip_h8",
    "op_type": "flip",
    "axes": {
        "rows": {"type": "var"},
        "columns": {"type": "const", "value": 8},
        "elements": {"type": "expr", "expression": "rows * columns // 1"},
    },
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "bfloat16"},
        "index": {"shape": ["rows"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "columns"], "dtype": "bfloat16"}, "sum": {"shape": None, "dtype": "float32"}},
    "custom_inputs_entrypoint": "made",
    "reference": REFERENCE,
}
CUSTOM = {name: {"type": "custom"} for name in DEFINITION["inputs"]}
WORKLOADS = [
    {"uuid": "a", "axes": {"rows": 3}, "inputs": CUSTOM},
    {"uuid": "b", "axes": {"rows": 65}, "inputs": CUSTOM},
]

KERNEL = """\
import glob, os, socket, torch
print("a candidate may print")
kept = []
def run(x, index, scale):
    return (x * scale)[index.flip(0)], float((scale * scale * x.float()).sum())
def fills(x, index, scale, y, sum):
    y[:], sum[()] = run(x, index, scale)
def throws(x, index, scale):
    raise ValueError("no\\n\\033[2Jgood")
def keeps_its_answer(x, index, scale):
    kept.append(run(x, index, scale))
    return kept[0]
def ends(x, index, scale):
    os._exit(3)
def reaches_out(x, index, scale):
    found = [place for place in ("/etc/passwd", %(file)r) if glob.glob(place)]
    try:
        open(__file__, "a")
        found.append(__file__)
    except OSError:
        open("/tmp/written", "w")
    if found:
        raise ValueError(found)
    return run(x, index, scale)
"""


@pytest.fixture
def file(tmp_path):
    """A definition's file, with its workloads and a candidate beside it."""
    (tmp_path / "workload.jsonl").write_text("\n".join(map(json.dumps, WORKLOADS)))
    (tmp_path / "kernel.py").write_text(KERNEL % {"file": str(tmp_path)})
    made = tmp_path / "definition.json"
    made.write_text(json.dumps(DEFINITION))
    return made


def tried(file, candidate, sandboxed=True, **more):
    if not package.python("torch"):
        pytest.skip("no PyTorch")
    if sandboxed and sandbox.lacking():
        pytest.skip(sandbox.lacking())
    limits = trial.Limits(seconds=60, sandboxed=sandboxed)
    return definition.tried(file, str(candidate), limits, gpu=False, **more)


def test_one_that_fills_its_outputs_from_a_solutions_file_passes(file):
    sources = [
        {"path": "main.py", "content": "from package.kernel import fills"},
        {"path": "package/kernel.py", "content": KERNEL % {"file": ""}},
    ]
    solution = file.with_name("solution.json")
    solution.write_text(json.dumps({"spec": {"entry_point": "main.py::fills"}, "sources": sources}))
    verdict = tried(file, solution, sandboxed=False)
    assert (verdict["verdict"], verdict["reason"]) == ("PASS", "")


@pytest.mark.parametrize(
    "function, reason",
    [
        ("throws", "it throws ValueError: no [2Jgood"),
        ("keeps_its_answer", "elements are wrong"),
        ("ends", "its process ended with exit status 3"),
    ],
)
def test_what_does_not_pass(file, function, reason):
    verdict = tried(file, f"{file.with_name('kernel.py')}:{function}")
    assert (verdict["verdict"], verdict["problem"], verdict["checked"]) == ("FAIL", "rows=3", 0)
    assert reason in verdict["reason"]
    assert verdict["reason"].isprintable()


COMPARED = """\
import io, math, sys
sys.path.insert(0, sys.argv[1])
import torch
import definition_child as child, definition_judge as judge
rule = judge._TOLERANCE
wanted = torch.tensor([1.0, 0.0, math.inf, 100.0])
def reason(output, expected=wanted, **more):
    return judge.difference(torch.tensor(output), expected, {**rule, **more})[1]
assert reason([1.0, 0.0, math.inf, 100.0]) == ""
assert reason([1.019, 0.009, math.inf, 101.0]) == ""
assert reason([1.0, 0.02, math.inf, 100.0]) == "1 of 4 elements are wrong: 0.02 where 0 belongs, at 1"
assert reason([1.0, 0.0, math.nan, 100.0]) == "1 of 4 elements are wrong: nan where inf belongs, at 2"
assert reason([1.0, 0.02, math.inf, 100.0], required_matched_ratio=0.75) == ""
assert reason([1.0, 0.02, math.inf, 100.0], required_matched_ratio=0.75, max_error_cap=0.01)
assert reason([1, 101], torch.tensor([1, 100])) == "1 of 2 elements are wrong: 101 where 100 belongs, at 1"
tensors = [torch.arange(6).reshape(2, 3).bfloat16(), torch.tensor(True), torch.empty(0, 3), torch.ones(2).to(torch.float8_e4m3fn)]
named = [["bfloat16", [2, 3]], ["bool", []], ["float32", [0, 3]], ["float8_e4m3fn", [2]]]
stream = io.BytesIO()
child.send(stream, {"op": "take"}, tensors)
stream.seek(0)
head, found = child.receive(stream, named)
assert head == {"op": "take"} and all(torch.equal(*map(torch.Tensor.float, pair)) for pair in zip(tensors, found))
stream.seek(0)
try:
    child.receive(stream, named[:1])
except ValueError as error:
    print(error)
"""


def test_what_is_wrong_and_what_a_message_holds():
    if not (python := package.python("torch")):
        pytest.skip("no PyTorch")
    done = tools.captured(python, "-I", "-c", COMPARED, ROOT / "tools" / "search")
    assert (done.stderr, done.stdout) == ("", "outputs " + OUTPUTS)


OUTPUTS = "bfloat16[2, 3], bool[], float32[0, 3], float8_e4m3fn[2], where the definition has bfloat16[2, 3]\n"


def test_a_right_candidate_passes_on_every_workload_and_reaches_no_file_of_the_callers(file):
    verdict = tried(file, f"{file.with_name('kernel.py')}:reaches_out")
    assert (verdict["verdict"], verdict["reason"], verdict["checked"], verdict["problems"]) == ("PASS", "", 2, 2)
    assert (verdict["target"], verdict["node"], verdict["times"], verdict["us"]) == ("flip_h8", None, [], None)


def test_a_tolerance_that_zeros_fit_is_no_pass(file):
    loose = [{**one, "tolerance": {"max_atol": 1e6}} for one in WORKLOADS]
    file.with_name("loose.jsonl").write_text("\n".join(json.dumps({"workload": one}) for one in loose))
    verdict = tried(file, file.with_name("kernel.py"), workloads=file.with_name("loose.jsonl"))
    assert (verdict["verdict"], verdict["reason"][:36]) == ("UNTRUSTED", "an answer of zeros passes as well, b")


def test_workloads_have_all_axes_and_a_name(file):
    found = definition.chosen(DEFINITION, file, None, None)
    assert [one["name"] for one in found] == ["rows=3", "rows=65"]
    assert found[1]["all_axes"] == {"rows": 65, "columns": 8, "elements": 520}
    assert definition.chosen(DEFINITION, file, "rows=4", None)[0]["all_axes"]["elements"] == 32


@pytest.mark.parametrize("expression", ["rows.bit_length()", "__import__('os')", "rows +", "rows // 0", "other + 1"])
def test_an_expression_is_arithmetic_alone(expression):
    with pytest.raises(UsageError, match="is no expression of the axes"):
        definition._value(expression, {"rows": 3})


def test_a_plain_file_has_the_definitions_names(tmp_path):
    if not (definition_library.where.find("nvcc") and not sandbox.lacking()):
        pytest.skip("no nvcc, or no sandbox")
    text = (
        "__global__ void flip(const __nv_bfloat16* x, const long long* i, __nv_bfloat16* y, long long n, double s) {}"
    )
    entry = "flip<<<rows, 32, 0, stream>>>(x, index, y, columns * elements, scale)"
    made = definition_library.source(DEFINITION, text, entry, "mine.cu")
    assert definition_library.compiled(made, tmp_path, (), trial.Limits(), "80") == ""
    assert (tmp_path / "library.so").exists()
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    wrong = definition_library.source(DEFINITION, text, entry.replace("elements", "missing"), "mine.cu")
    assert 'identifier "missing" is undefined' in definition_library.compiled(wrong, tmp_path, (), trial.Limits(), "80")


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--problem-file", "{file}", "kernel.py"], "--problem-file needs a GPU"),
        (["--problem-file", "{file}"], "no candidate: ./ladder try --problem-file definition.json kernel.py:run"),
        (["--problem-file", "{file}", "kernel.py", "--dtype=bf16"], "--problem-file and --dtype exclude each other"),
        (["silu", "kernel.cu", "--workloads=x"], "--workloads goes with --problem-file"),
    ],
)
def test_a_wrong_command_line(file, words, complaint):
    with pytest.raises(UsageError, match=complaint.replace(".", "[.]")):
        try_.main([word.format(file=file) for word in words] + ["--unsandboxed", "--device=emulator"])


def test_files_that_are_no_definition_or_candidate(file):
    with pytest.raises(UsageError, match="missing.json: .*o such file"):
        definition.read(file.with_name("missing.json"))
    file.write_text('{"name": "x"}')
    with pytest.raises(UsageError, match="definition.json is no op definition: it has no 'axes'"):
        definition.read(file)
    with pytest.raises(UsageError, match="flip_h8: axis rows has no size: --problem 'rows=128', or --workloads"):
        definition.chosen(DEFINITION, file, "", None)
    for content, complaint in (
        ("{}", "is no solution"),
        (json.dumps(escaping()), "../x.py is outside of the solution"),
    ):
        solution = file.with_name("solution.json")
        solution.write_text(content)
        with pytest.raises(UsageError, match=complaint):
            definition._written(str(solution), file.parent / "candidate")


def escaping():
    return {"spec": {"entry_point": "a.py::run"}, "sources": [{"path": "../x.py", "content": ""}]}
