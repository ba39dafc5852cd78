"""Shared code of all layers' PyTorch baselines: the worker's side of reference/baseline_worker.h, plans captured into
CUDA graphs, and a timer like that of bench/timer.h. README.md beside this file says what is measured and how.

A layer's script defines

    plans(torch, case, tensors)     returns [Plan]; `tensors`: the case's inputs by name, in the case's layout
    stored(torch, case, name, out)  returns a plan's output in the case's layout and dtype

and ends with `worker.main(sys.modules[__name__])`.
"""

import argparse
import ctypes
import gc
import json
import os
import random
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

_WARM_UPS = 3  # calls before the capture, in which libraries choose kernels and torch.compile compiles
_EMPTY_SAMPLES = 15
_MOST_HOLDS = 12
_SEARCHES = ("heuristic", "listed", "all")


@dataclass
class Case:
    layer: str
    pass_name: str
    problem: str  # the problem's line
    search: str
    tensors: list  # {"name", "role", "dtype", "shape", "file"}, in the case's order
    kept: str = ""  # best plan of an earlier search: tried in every search

    @property
    def words(self):
        return self.problem.split()

    def number(self, letter):
        """Returns the number of a word of the problem, such as 32 of g32."""
        return next(
            int(word[len(letter) :]) for word in self.words if word.startswith(letter) and word[len(letter) :].isdigit()
        )

    def number_or(self, letter, otherwise):
        try:
            return self.number(letter)
        except StopIteration:
            return otherwise


@dataclass
class Plan:
    name: str
    search: str  # the smallest search that includes the plan
    # Prepares everything that is not timed. Returns the timed function: enqueues work, returns {output: tensor}.
    setup: Callable


def main(layer):
    parser = argparse.ArgumentParser(description=layer.__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of the bench that starts this script: questions come on stdin")
    parser.add_argument("--problem", help="by hand: random inputs, every plan's median of 30 cold samples is printed")
    parser.add_argument(
        "--pass", dest="pass_name", help="by hand: the pass (default: the first)", default=next(iter(layer.PASSES), "")
    )
    parser.add_argument("--search", choices=_SEARCHES, default="all")
    options = parser.parse_args()
    if bool(options.folder) == bool(options.problem):
        parser.error("either a folder, from the bench, or --problem")
    if options.problem:
        return _by_hand(layer, options)
    # Send the libraries' prints to stderr, so that they do not become answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        serve(sys.stdin, answers, lambda: Plans(layer))
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    sys.stdout.flush()
    os._exit(0)  # the driver frees the memory faster than Python


def serve(questions, answers, make):
    """Answer lines until there are no more. `make` creates the Plans that answer; its exception is the first answer."""

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        plans = make()
        say(plans.hello())
    except Exception as error:
        say({"error": one_line(error)})
        return
    for line in questions:
        try:
            ((question, what),) = json.loads(line).items()
            if question not in ("prepare", "sample", "answer"):
                raise ValueError(f"no question '{question}'")
            say(getattr(plans, question)(what))
        except Exception as error:
            say({"error": one_line(error)})


def one_line(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if not isinstance(error, Refusal) else text


class Refusal(Exception):
    """An error whose message is printed without the exception's type."""


def imported():
    try:
        import torch
    except ImportError as error:
        python = os.environ.get("LADDER_PYTHON") or "python3"
        missing = getattr(error, "name", None)
        raise Refusal(
            f"{python} has no module {missing}" if missing else f"{python} cannot load torch: {error}"
        ) from None
    if not torch.cuda.is_available():
        raise Refusal(f"PyTorch {torch.__version__} sees no CUDA device")
    return torch


class Timer:
    """Timer of a CUDA graph with a cold L2, in seconds, without Python's launch overhead."""

    def __init__(self, torch):
        self.torch = torch
        self.stream = torch.cuda.Stream()
        l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 64 << 20
        self.flush = torch.empty(max(l2_bytes * 5 // 2, 1 << 20), dtype=torch.uint8, device="cuda")
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.hold_cycles = 1_000_000  # half a millisecond

    def cold(self, graph):
        torch = self.torch
        for _ in range(_MOST_HOLDS):
            torch.cuda.synchronize()
            with torch.cuda.stream(self.stream):
                self.flush.zero_()  # a memset
                torch.cuda._sleep(self.hold_cycles)
                self.begin.record()
                graph.replay()
                self.end.record()
                held = not self.begin.query()
            torch.cuda.synchronize()
            if held:
                return 1e-3 * self.begin.elapsed_time(self.end)
            self.hold_cycles *= 2  # the stream was not held back until everything was enqueued: discard the sample
        raise Refusal("the stream cannot be held back for long enough to enqueue a graph")

    def captured(self, step):
        """Returns (graph, the result of step() during the capture)."""
        torch = self.torch
        with torch.cuda.stream(self.stream):
            for _ in range(_WARM_UPS):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            out = step()
        torch.cuda.synchronize()
        return graph, out

    def empty_seconds(self):
        one = self.torch.zeros(1, device="cuda")
        graph, _ = self.captured(lambda: one.add_(1))
        graph.replay()
        return statistics.median(self.cold(graph) for _ in range(_EMPTY_SAMPLES))


class Plans:
    """The captured plans of the latest case."""

    def __init__(self, layer):
        # A plan has one or two kernels: starting processes to compile them in parallel would take longer.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        self.layer = layer
        self.torch = imported()
        self.timer = Timer(self.torch)
        self.case = None
        self.ready = {}  # name: (graph, {output: tensor}, step, which keeps the graph's memory alive)

    def hello(self):
        torch = f"PyTorch {self.torch.__version__.split('+')[0]}"
        whose = getattr(self.layer, "NAME", "")  # set for a user's own baseline only
        return {"library": f"{whose} ({torch})" if whose else torch, "empty_seconds": self.timer.empty_seconds()}

    def prepare(self, what):
        self.case = Case(what["layer"], what["pass"], what["problem"], what["search"], what["tensors"], what["kept"])
        return self.build({spec["name"]: self.read(spec) for spec in self.case.tensors if spec["role"] == "input"})

    def build(self, tensors):
        torch = self.torch
        self.ready = {}
        torch.compiler.reset()  # else torch.compile reaches its limit of shapes and stops compiling
        gc.collect()
        torch.cuda.empty_cache()
        if self.layer.PASSES and self.case.pass_name not in self.layer.PASSES:
            raise Refusal(f"reference/pytorch/{self.case.layer}.py has no {self.case.pass_name}")
        plans = [
            plan
            for plan in self.layer.plans(torch, self.case, tensors)
            if plan.name == self.case.kept or _SEARCHES.index(plan.search) <= _SEARCHES.index(self.case.search)
        ]
        told, makes = [], []
        for plan in plans:
            reason = ""
            try:
                with torch.cuda.stream(self.timer.stream):  # autograd runs on the forward pass's stream
                    step = plan.setup()
                graph, out = self.timer.captured(step)
                graph.replay()
                torch.cuda.synchronize()
                self.ready[plan.name] = (graph, out, step)
                makes = sorted(out)
            except Exception as error:
                reason = one_line(error)
                print(f"{self.case.problem}: {plan.name}: {reason}", file=sys.stderr, flush=True)
            told.append({"name": plan.name, "reason": reason})
        return {"plans": told, "heuristic": plans[0].name, "makes": makes}

    def sample(self, name):
        return {"seconds": self.timer.cold(self.ready[name][0])}

    def answer(self, name):
        outputs = self.outputs(name)
        for spec in self.case.tensors:
            if spec["name"] in outputs:
                held = outputs[spec["name"]].contiguous().cpu()
                Path(spec["file"]).write_bytes(ctypes.string_at(held.data_ptr(), held.nbytes))
        return {}

    def outputs(self, name):
        """Returns {output: tensor} of one replay, in the case's layout and dtype."""
        graph, out, _ = self.ready[name]
        for tensor in out.values():
            tensor.fill_(float("nan"))
        graph.replay()
        self.torch.cuda.synchronize()
        return {output: self.layer.stored(self.torch, self.case, output, tensor) for output, tensor in out.items()}

    def read(self, spec):
        raw = bytearray(Path(spec["file"]).read_bytes())
        return self.torch.frombuffer(raw, dtype=dtype_of(self.torch, spec["dtype"])).reshape(spec["shape"]).cuda()


def dtype_of(torch, name):
    return {
        "fp32": torch.float32,
        "tf32": torch.float32,
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "int32": torch.int32,
        "int64": torch.int64,
        "uint8": torch.uint8,
    }[name]


def plans_of(torch, function, tensors, whose="PyTorch", named=lambda out: out):
    """Returns the plans of one function, for layers without a gradient to prepare. The function takes {input: tensor};
    `named` turns its result into {output: tensor}. Eager is first: the plan of a user who changes nothing."""

    def setup(mode):
        step = torch.compile(function, mode=mode, dynamic=False) if mode else function

        def run():
            with torch.no_grad():
                return named(step(tensors))

        return lambda: run

    return [
        Plan(f"{whose} eager", "heuristic", setup(None)),
        Plan(f"{whose} compile", "listed", setup("default")),
        Plan(f"{whose} compile max-autotune", "all", setup("max-autotune-no-cudagraphs")),
    ]


def random_tensors(torch, case, shapes):
    """Returns random tensors of {name: shape} in the problem's dtype, for trying a script by hand."""
    dtype = dtype_of(torch, case.words[-1])
    return {name: torch.randn(shape).to(dtype).cuda() for name, shape in shapes.items()}


def _by_hand(layer, options):
    try:
        plans = Plans(layer)
    except Refusal as error:
        print(error, file=sys.stderr)
        return 1
    torch = plans.torch
    hello = plans.hello()
    print(
        f"{hello['library']} on {torch.cuda.get_device_name()}; an empty kernel takes "
        f"{1e6 * hello['empty_seconds']:.2f} us"
    )
    torch.manual_seed(0)
    plans.case = Case(layer.LAYER, options.pass_name, options.problem, options.search, [])
    told = plans.build(layer.random_inputs(torch, plans.case))
    seconds = {name: [] for name in plans.ready}
    for _ in range(30):
        for name in random.sample(list(seconds), len(seconds)):
            seconds[name].append(plans.timer.cold(plans.ready[name][0]))
    for plan in told["plans"]:
        name = plan["name"]
        figure = f"{1e6 * statistics.median(seconds[name]):8.2f} us" if name in seconds else f"   -  {plan['reason']}"
        print(f"{name:<36} {figure}")
    first = plans.outputs(told["heuristic"]) if told["heuristic"] in plans.ready else {}
    for name in plans.ready:
        for output, tensor in plans.outputs(name).items():
            if output in first:
                far = (tensor.double() - first[output].double()).norm() / first[output].double().norm()
                print(f"{name:<36} {output} is {far:.1e} from the first plan's")
    return 0
