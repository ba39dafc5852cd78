"""`./ladder try --problem-file definition.json kernel.py:run`: a candidate for an op that this tree has no pass of, described
by a definition of flashinfer-bench and SOL-ExecBench: axes, inputs, outputs, and a reference in PyTorch.

The reference is trusted and runs as the caller, in definition_judge.py; the candidate runs in a sandbox, in definition_child.py.
"""

import ast
import contextlib
import json
import math
import operator
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path

from cli import device, json_file, package, say, tools
from cli.errors import UsageError

from . import definition_library, sandbox, trial

_HERE = Path(__file__).resolve().parent
_NEEDED = ("name", "axes", "inputs", "outputs", "reference")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
# Prints the folders that a Python with PyTorch reads.
_FOLDERS = "import importlib.util, sys; print(sys.prefix, sys.base_prefix, importlib.util.find_spec('torch').origin, sep='\\n')"


def tried(
    file,
    candidate,
    limits,
    *,
    problem=None,
    workloads=None,
    entry=None,
    include=(),
    gpu=True,
    progress=lambda text: None,
):
    """The verdict on a candidate for the definition in `file`: on the workloads of a file, or on `problem`, 'M=128 N=64'. The
    candidate is "kernel.py:function", a solution's JSON file, or a .cu file with the launch `entry`. Throws UsageError."""
    began = time.monotonic()
    definition = read(file)
    python = package.python("torch")
    if not python:
        raise UsageError(
            "--problem-file needs PyTorch: LADDER_PYTHON names a Python that has it, ./ladder setup --torch fetches it"
        )
    task = {
        "definition": definition,
        "workloads": chosen(definition, file, problem, workloads),
        "folders": [str(folder) for folder in Path(file).resolve().parents],
        "seconds": limits.seconds,
        "seed": random.SystemRandom().getrandbits(31),
        "device": "cuda" if gpu else "cpu",
    }
    with tempfile.TemporaryDirectory(prefix="ladder-try-") as scratch:
        folder = Path(scratch, "candidate")
        folder.mkdir()
        progress("compiling")
        reason, function = _made(definition, candidate, entry, include, folder, limits)
        if reason:
            verdict = {
                "verdict": "FAIL",
                "reason": reason,
                "times": [],
                "checked": 0,
                "problems": len(task["workloads"]),
            }
        else:
            task["command"] = [str(word) for word in _command(python, Path(scratch), function, limits, gpu)]
            with trial.on_gpu() if gpu else contextlib.nullcontext():
                verdict = _judged(python, task, Path(scratch), progress)
    verdict["reason"] = say.harmless(verdict["reason"])
    verdict.update(device=device.slug() if gpu else "cpu", wall_s=round(time.monotonic() - began, 3))
    return {"target": definition["name"], "node": None, **verdict, **trial.sums(verdict["times"])}


def _made(definition, candidate, entry, include, folder, limits):
    """Fills `folder` with the candidate. Returns (reason of a failure or "", (file, function))."""
    if not entry:
        return "", _written(candidate, folder)
    name = re.sub(r"[^\w.+-]", "_", Path(candidate).name)
    source = definition_library.source(definition, _text(candidate), entry, name)
    return definition_library.compiled(source, folder, include, limits), ("library.so", "ladder_entry")


def _judged(python, task, scratch, progress):
    (scratch / "task.json").write_text(json.dumps(task), encoding="utf-8")
    command = [python, "-I", _HERE / "definition_judge.py", scratch / "task.json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with sandbox.started(command, env=tools.environment(), **pipes) as process:
        return trial.said_by(process, progress)


def read(file):
    """The definition, a dict. Throws UsageError."""
    try:
        definition = json_file.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {json_file.reason(error)}") from None
    missing = [name for name in _NEEDED if not isinstance(definition, dict) or name not in definition]
    if missing:
        raise UsageError(f"{file} is no op definition: it has no '{missing[0]}'")
    return definition


def chosen(definition, file, problem, workloads):
    """The workloads to try, each with all axes and a name, 'M=128'. Throws UsageError."""
    workloads = workloads or _beside(definition, Path(file).resolve())
    found = _lines(workloads) if workloads else [{"axes": {}}]
    if problem is not None:
        pairs = [word.partition("=") for word in problem.replace(",", " ").split()]
        if wrong := [name for name, _, value in pairs if not value.isdecimal()]:
            raise UsageError(f"--problem '{problem}': '{wrong[0]}' has no size, as in 'M=128 N=64'")
        found = [{**found[0], "axes": {name: int(value) for name, _, value in pairs}}]
    try:
        return [_complete(definition, one) for one in found]
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: an axis or a workload lacks {error}") from None


def _lines(workloads):
    """Workloads of a file; a line is one, or a trace with one."""
    try:
        lines = Path(workloads).read_text(encoding="utf-8").splitlines()
        found = [json_file.parse(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise UsageError(f"{workloads}: {json_file.reason(error)}") from None
    if not found or not all(isinstance(one, dict) for one in found):
        raise UsageError(f"{workloads} has no workloads, a JSON object a line")
    return [one.get("workload", one) for one in found]


def _beside(definition, file):
    """The file of workloads beside a definition, or where the data set of flashinfer-bench has it; None without."""
    places = [file.with_name("workload.jsonl"), file.with_name(f"{definition['name']}.jsonl")]
    places += [Path(str(file).replace("/definitions/", "/workloads/")).with_suffix(".jsonl")]
    return next((place for place in places if place.is_file()), None)


def _complete(definition, workload):
    axes = dict(workload["axes"])
    variable = [name for name, axis in definition["axes"].items() if axis["type"] == "var"]
    if missing := [name for name in variable if name not in axes]:
        raise UsageError(
            f"{definition['name']}: axis {missing[0]} has no size: --problem '{missing[0]}=128', or --workloads"
        )
    for name, axis in definition["axes"].items():
        axes[name] = axis["value"] if axis["type"] == "const" else axes.get(name)
    for name, axis in definition["axes"].items():
        if axis["type"] == "expr":
            axes[name] = _value(axis["expression"], axes)
    ordered = {name: axes[name] for name in definition["axes"]}
    named = " ".join(f"{name}={axes[name]}" for name in variable) or definition["name"]
    return {**workload, "all_axes": ordered, "name": named}


def _value(expression, axes):
    """The size of an axis that is computed of others. Throws UsageError."""

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and isinstance(axes.get(node.id), int):
            return axes[node.id]
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise UsageError(f"'{expression}' is no expression of the axes")

    try:
        return math.floor(value(ast.parse(expression, mode="eval").body))
    except (SyntaxError, ZeroDivisionError):
        raise UsageError(f"'{expression}' is no expression of the axes") from None


def _written(candidate, folder):
    """Copies the candidate's files to `folder`. Returns (file, function). Throws UsageError."""
    name, _, function = candidate.rpartition(":") if re.search(r":\w+$", candidate) else (candidate, "", "run")
    text = _text(name)
    if not name.endswith(".json"):
        sources = [{"path": Path(name).name, "content": text}]
    else:
        try:
            solution = json_file.parse(text)
            sources = [{"path": one["path"], "content": one["content"]} for one in solution["sources"]]
            name, _, function = solution["spec"]["entry_point"].partition("::")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{name} is no solution: it needs sources, and spec.entry_point") from None
    if not name.endswith(".py"):
        raise UsageError(
            f"{name}: --problem-file takes kernel.py:run, a solution in Python, or a .cu file with --entry"
        )
    for source in sources:
        file = (folder / source["path"]).resolve()
        if folder.resolve() not in file.parents:
            raise UsageError(f"{source['path']} is outside of the solution")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source["content"], encoding="utf-8")
    return (name if len(sources) > 1 else Path(sources[0]["path"])), function


def _text(name):
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: {json_file.reason(error)}") from None


def _command(python, scratch, entry, limits, gpu):
    """The command of the candidate's process: reads PyTorch and its own files, writes to a /tmp of its own."""
    (scratch / "tmp").mkdir()
    root = sandbox.SCRATCH if limits.sandboxed else scratch
    child = _HERE / "definition_child.py"
    places = {scratch / "candidate": root / "candidate", child: root / "child.py"}
    *prefixes, torch = map(Path, tools.captured(python, "-I", "-c", _FOLDERS).stdout.split())
    places.update(sandbox.besides([*prefixes, torch.parents[1]]))  # the last is PyTorch's and its libraries'
    return sandbox.command(
        [
            python,
            "-I",
            root / "child.py" if limits.sandboxed else child,
            root / "candidate" / entry[0],
            entry[1],
            "cuda" if gpu else "cpu",
        ],
        memory=limits.memory,
        read=places,
        write={scratch / "tmp": Path("/tmp")},
        candidate=True,
        gpu=True,  # PyTorch shares memory on a CPU, too
        sandboxed=limits.sandboxed,
    )
