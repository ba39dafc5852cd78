"""Measurements for swap() with an example: the inputs of each module and, on a GPU, its times for these inputs."""

import contextlib
import statistics
from dataclasses import dataclass
from typing import NamedTuple

import torch

from . import blocks, library
from .versions import explain


@dataclass(frozen=True)
class Use:
    """Properties of a module's input that can affect its speed."""

    shape: tuple
    stride: tuple
    dtype: torch.dtype
    device: torch.device
    gradients: bool  # of x
    autocast: torch.dtype  # or None

    def __str__(self):
        return f"{'x'.join(map(str, self.shape))} {str(self.dtype).removeprefix('torch.')}"

    def tensor(self, device=None):
        extent = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride))
        x = torch.empty(max(extent, 0), dtype=self.dtype, device=device or self.device)
        if self.dtype.is_floating_point:  # other types are not timed
            x.normal_()
        return x.as_strided(self.shape, self.stride).requires_grad_(self.gradients)

    def casts(self):
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast, cache_enabled=False)


def use_of(x):
    device = x.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    return Use(tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad, autocast)


def arguments_of(example):
    """Returns (args, kwargs) for swap()'s `example`. Throws TypeError."""
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, tuple) and len(example) == 2 and isinstance(example[1], dict):
        if isinstance(example[0], tuple):
            return example
    elif isinstance(example, tuple):
        return example, {}
    kind = type(example).__name__
    raise TypeError(f"swap: example is a {kind}; the model's (x, t), or ((x, t), {{'y': y}}), is wanted")


def observe(model, modules, example):
    """Runs one forward pass, with gradients where the model trains; returns {module: [Use ..]}.

    The model's buffers are restored. No backward pass is run: it would fire optimizers' hooks, and accumulate
    gradients."""
    args, kwargs = arguments_of(example)
    uses = {module: [] for module in modules}

    def note(module, arguments, named):
        uses[module].append(use_of((*arguments, *named.values())[0]))

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.set_grad_enabled(model.training), torch.compiler.set_stance("force_eager"):
            model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
    return uses


def weights(module):
    """Returns the properties of a module's parameters that can affect its speed."""
    return tuple((tuple(each.shape), each.stride(), each.dtype, each.requires_grad) for each in module.parameters())


class Comparison(NamedTuple):
    problem: str
    version: str
    before: float  # us, or None
    after: float


def compare(module, activation, use):
    """Returns a Comparison of a swapped module, with the activation after it or None, to the unswapped one."""
    if not can_time(use):
        problem, version = _ran(_call(module, activation, use)) if library.emulated() else ("", "")
        return Comparison(problem or str(use), version, None, None)
    with torch.cuda.device_of(torch.empty(0, device=use.device)):
        with blocks.of_class(module, module.unswapped):
            before = microseconds(_call(module, activation, use))
        call = _call(module, activation, use)
        problem, version = _ran(call)
        return Comparison(problem or str(use), version, before, microseconds(call))


def can_time(use):
    return use.device.type == "cuda"


def _call(module, activation, use):
    """Returns a function that calls the module with such an input and, if the module trains, computes the gradients."""
    x = use.tensor()
    wanted = [each for each in (x, *module.parameters()) if each.requires_grad] if module.training else []

    def forward():
        with use.casts(), torch.set_grad_enabled(bool(wanted)):
            return module(x) if activation is None else blocks.norm_then(module, activation, x)

    if not wanted:
        return forward
    dy = torch.randn_like(forward())
    return lambda: torch.autograd.grad(forward(), wanted, dy)


def _ran(call):
    """Returns (problem, version) of the kernels that a call runs, as text."""

    def counts():
        return {(each["pass"], each["problem"], each["version"]): each["calls"] for each in explain()}

    before = counts()
    call()
    ran = [key for key, calls in counts().items() if calls != before.get(key)]
    return "; ".join(dict.fromkeys(problem for _, problem, _ in ran)), ", ".join(
        f"{path} {version}" for path, _, version in ran
    )


def microseconds(call, calls=20, repeats=11):
    """Returns the time of a call in a CUDA graph of `calls` calls: the median of `repeats` replays after a warm-up.

    The graph is captured on the current stream, because gradients run on the stream of their forward pass. The default
    stream cannot be captured, and a new stream takes its place."""
    stream = torch.cuda.current_stream()
    if stream == torch.cuda.default_stream():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                call()
        for _ in range(3):
            graph.replay()
        return statistics.median(microseconds_of(graph.replay, repeats)) / calls


def microseconds_of(call, count):
    """Returns the GPU time of each of `count` calls on the current stream."""
    times = []
    for _ in range(count):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(1000 * start.elapsed_time(stop))
    return times
