"""Judge of a candidate for an op definition: makes the inputs, runs the definition's PyTorch reference, and compares. Started
by definition.py with a Python that has PyTorch, as `definition_judge.py task.json`; prints lines of JSON, the last the verdict.
"""

import json
import math
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import definition_child as child

SEEDS = 2  # sets of inputs that are compared before a candidate is timed
_TOLERANCE = {"max_atol": 1e-2, "max_rtol": 1e-2, "required_matched_ratio": 1.0, "max_error_cap": None}
_MOST_INTEGER = 100  # random integers are below


class Wrong(Exception):
    """Reason of a FAIL."""


class Process:
    """The candidate's process. Ends it once it has taken its seconds for an answer."""

    def __init__(self, command, seconds):
        self.seconds, self.said = seconds, tempfile.TemporaryFile()
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.said)

    def ask(self, head, tensors, expected):
        late = threading.Event()
        timer = threading.Timer(self.seconds, lambda: (late.set(), self.process.kill()))
        timer.start()
        try:
            child.send(self.process.stdin, head, tensors)
            answer, outputs = child.receive(self.process.stdout, expected)
        except (EOFError, OSError):
            raise Wrong(self._ended(late.is_set())) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Wrong(f"its answer is none: {error}") from None
        finally:
            timer.cancel()
        if "error" in answer:
            raise Wrong(f"it throws {answer['error']}")
        if len(outputs) != len(expected):
            raise Wrong(f"it gives {len(outputs)} of {len(expected)} outputs")
        return answer, outputs

    def _ended(self, late):
        status = self.process.wait()
        self.said.seek(0)
        lines = self.said.read(1 << 16).decode(errors="replace").strip().splitlines()
        if late:
            return f"it does not answer within {self.seconds:g} s"
        return f"its process ended with exit status {status}{': ' + lines[-1] if lines else ''}"

    def close(self):
        self.process.kill()
        self.process.wait()


class Workload:
    def __init__(self, task, number, definition):
        self.workload = task["workloads"][number]
        self.definition, self.device = definition, torch.device(task["device"])
        self.axes, self.folders = self.workload["all_axes"], task["folders"]
        self.tolerance = {**_TOLERANCE, **(self.workload.get("tolerance") or {})}

    def shape(self, spec):
        return [self.axes[name] for name in spec["shape"]]

    def inputs(self, namespace, seed):
        """{name: tensor, or scalar}, by seed where the workload says random or custom."""
        torch.manual_seed(seed)
        entry = self.definition.get("custom_inputs_entrypoint")
        sources = self.workload.get("inputs") or {}
        scalars = {name: one["value"] for name, one in sources.items() if one["type"] == "scalar"}
        custom = {}
        if any(one["type"] == "custom" for one in sources.values()):
            custom = namespace[entry]({**self.axes, **scalars}, self.device)
        found = {}
        for name, spec in self.definition["inputs"].items():
            source = sources.get(name, {"type": "random"})
            if source["type"] == "scalar":
                found[name] = source["value"]
            elif source["type"] == "custom":
                found[name] = custom[name]
            elif source["type"] == "safetensors":
                found[name] = self._stored(source)
            else:
                found[name] = self._random(spec)
        return found

    def _random(self, spec):
        dtype = getattr(torch, spec["dtype"])
        shape = [] if spec["shape"] is None else self.shape(spec)
        if dtype.is_floating_point:
            made = torch.randn(shape, device=self.device).to(dtype)
        else:
            made = torch.randint(2 if dtype == torch.bool else _MOST_INTEGER, shape, device=self.device).to(dtype)
        return made.item() if spec["shape"] is None else made

    def _stored(self, source):
        from safetensors.torch import load_file

        for folder in self.folders:
            if (file := Path(folder, source["path"])).is_file():
                return load_file(file)[source["tensor_key"]].to(self.device)
        raise SystemExit(f"{source['path']}: no such file in {', '.join(self.folders)}")

    def outputs(self):
        """[dtype, shape] of each output; a scalar's shape is []."""
        return [
            [spec["dtype"], self.shape(spec) if spec["shape"] else []] for spec in self.definition["outputs"].values()
        ]


def copied(inputs):
    return [value.clone() if torch.is_tensor(value) else value for value in inputs.values()]


def expected_of(reference, inputs, workload):
    """The reference's outputs for copies of the inputs, which it may overwrite: on the device, in the definition's dtypes."""
    names = list(workload.definition["outputs"])
    made = workload.outputs()
    arguments = copied(inputs)
    results = child.listed(reference(*arguments), names)
    return [
        torch.as_tensor(result, device=workload.device).to(getattr(torch, dtype)).reshape(shape)
        for result, (dtype, shape) in zip(results, made)
    ]


def difference(output, expected, tolerance):
    """(largest error, reason for which an output is wrong or ""). An element is right where |output - expected| <= max_atol +
    max_rtol * |expected|, or where both are the same infinity; an integer only where it is equal."""
    exact = not expected.dtype.is_floating_point
    a, b = output.to(expected.device).double(), expected.double()
    error = torch.where(a == b, 0.0, (a - b).abs())
    most = 0 if exact else tolerance["max_atol"] + tolerance["max_rtol"] * b.abs()
    right = (error <= most) & error.isfinite()
    largest = float(error.nan_to_num(nan=math.inf).max()) if error.numel() else 0.0
    ratio = float(right.double().mean()) if error.numel() else 1.0
    cap = tolerance.get("max_error_cap")
    if ratio >= tolerance["required_matched_ratio"] and (cap is None or largest <= cap):
        return largest, ""
    place = int((~right).reshape(-1).nonzero()[0]) if not bool(right.all()) else int(error.argmax())
    got, wanted = (float(each.reshape(-1)[place]) for each in (a, b))
    num_wrong = int((~right).sum())
    return largest, f"{num_wrong} of {error.numel()} elements are wrong: {got:g} where {wanted:g} belongs, at {place}"


def compare(outputs, expected, workload, verdict):
    """Throws Wrong where an output is wrong. Keeps the largest error."""
    for pair, name in zip(zip(outputs, expected), workload.definition["outputs"]):
        largest, reason = difference(*pair, workload.tolerance)
        verdict["error"] = max(verdict["error"], largest)
        if reason:
            raise Wrong(f"{name}: {reason}")


def run_workload(task, workload, namespace, process, verdict):
    """Checks and times one workload. Throws Wrong."""
    specs, reference = workload.outputs(), namespace["run"]
    names = list(workload.definition["outputs"])

    def ask(op, seed):
        inputs = workload.inputs(namespace, seed)
        head = {"op": op, "outputs": names, "made": specs, "axes": list(workload.axes.values())}
        head["scalars"] = [None if torch.is_tensor(value) else value for value in inputs.values()]
        tensors = [value for value in inputs.values() if torch.is_tensor(value)]
        answer, outputs = process.ask(head, tensors, specs)
        expected = expected_of(reference, inputs, workload)
        compare(outputs, expected, workload, verdict)
        return answer, expected

    seed = task["seed"]
    for number in range(SEEDS):
        _, expected = ask("refill" if number else "take", seed + number)
    if not any(difference(torch.zeros_like(each), each, workload.tolerance)[1] for each in expected):
        verdict.update(verdict="UNTRUSTED", reason=f"an answer of zeros passes as well, by {workload.tolerance}")
        return
    verdict["checked"] += 1
    if workload.device.type == "cuda":
        measured, _ = ask("time", seed + SEEDS)
        measured = {name: float(measured[name]) for name in ("cold_us", "us")}
        if not all(0 < microseconds < math.inf for microseconds in measured.values()):
            raise Wrong(f"its times are none: {measured}")
        inputs = copied(workload.inputs(namespace, seed))
        base, _ = child.times(
            lambda: [each for each in child.listed(reference(*inputs), names) if torch.is_tensor(each)]
        )
        one = {
            "problem": workload.workload["name"],
            "dtype": None,
            "baseline_us": base["cold_us"],
            "baseline": "reference",
        }
        verdict["times"].append({**one, **measured, "promoted_us": None, "promoted": None})


def judge(task):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    definition, namespace = task["definition"], {}
    exec(compile(definition["reference"], "reference", "exec"), namespace)
    verdict = {"verdict": "PASS", "reason": "", "seed": task["seed"], "error": 0.0, "checked": 0, "times": []}
    process = Process(task["command"], task["seconds"])
    try:
        for number, about in enumerate(task["workloads"]):
            print(json.dumps({"progress": about["name"]}), flush=True)
            verdict["problem"] = about["name"]
            with torch.no_grad():
                run_workload(task, Workload(task, number, definition), namespace, process, verdict)
            if verdict["verdict"] != "PASS":
                break
            del verdict["problem"]
    except (KeyError, TypeError, ValueError) as error:
        raise SystemExit(f"the definition or a workload is wrong: {type(error).__name__}: {error}") from None
    except Wrong as wrong:
        verdict.update(verdict="FAIL", reason=" ".join(str(wrong).split())[:1000])
    finally:
        process.close()
    verdict["error"] = verdict["error"] if math.isfinite(verdict["error"]) else None
    print(json.dumps({**verdict, "problems": len(task["workloads"])}), flush=True)


if __name__ == "__main__":
    judge(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
