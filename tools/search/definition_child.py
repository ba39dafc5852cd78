"""Process of a candidate for an op definition: loads its function, and runs it for definition_judge.py on standard input and
output. Imports nothing of this tree, as the sandbox has this file alone.

A message is its length, a line of JSON, and the bytes of the tensors that `tensors` names, [dtype, shape] each.
"""

import ctypes
import importlib.util
import inspect
import json
import os
import random
import statistics
import struct
import sys
from pathlib import Path

import torch

ROUNDS, WARM_ROUNDS, WARM_LAUNCHES = 30, 7, 20
_MOST_HEAD = 1 << 20  # bytes
_FLUSHED_BYTES = 1 << 28  # more than a second-level cache has
_HELD_CYCLES = 5_000_000  # of a kernel that holds the stream while the host enqueues the launches


def send(stream, head, tensors=()):
    tensors = [tensor.detach().contiguous().cpu() for tensor in tensors]
    named = [[str(tensor.dtype).split(".")[1], list(tensor.shape)] for tensor in tensors]
    text = json.dumps({**head, "tensors": named}).encode()
    stream.write(struct.pack("<I", len(text)) + text)
    for tensor in tensors:
        stream.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
    stream.flush()


def receive(stream, expected=None):
    """(head, tensors) of a message; with `expected`, [dtype, shape] of each, no others. Throws EOFError, ValueError."""
    (length,) = struct.unpack("<I", _read(stream, 4))
    if length > _MOST_HEAD:
        raise ValueError("a message is too long")
    head = json.loads(_read(stream, length))
    named = head.pop("tensors")
    if named and expected is not None and named != expected:
        raise ValueError(f"outputs {_words(named)}, where the definition has {_words(expected)}")
    return head, [_tensor(stream, getattr(torch, dtype), shape) for dtype, shape in named]


def _words(named):
    return ", ".join(f"{dtype}{shape}" for dtype, shape in named)


def _tensor(stream, dtype, shape):
    empty = torch.empty(shape, dtype=dtype)
    data = bytearray(_read(stream, empty.numel() * empty.element_size()))
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape) if data else empty


def _read(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def listed(outputs, names):
    """The list of outputs that a function returned: a tensor, several, or {name: tensor}."""
    if isinstance(outputs, dict):
        return [outputs[name] for name in names]
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def times(call, surprise=lambda: None):
    """(cold and warm microseconds, results of the cold launch before which surprise() was called): medians by CUDA events on
    a stream that is held until everything is enqueued. A cold launch follows a write of more than the cache has."""
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        call()
    cold, chosen = [], random.SystemRandom().randrange(ROUNDS)
    for number in range(ROUNDS):
        if number == chosen:
            surprise()
        flushed.zero_()
        microseconds, results = _between(call, 1)
        cold.append(microseconds)
        if number == chosen:
            kept = [result.clone() for result in results]
    warm = [_between(call, WARM_LAUNCHES)[0] for _ in range(WARM_ROUNDS)]
    return {"cold_us": statistics.median(cold), "us": statistics.median(warm)}, kept


def _between(call, launches):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_HELD_CYCLES)
    start.record()
    for _ in range(launches):
        results = call()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end) / launches, results


class Candidate:
    """The function with its tensors, whose addresses stay the same for all inputs of a workload."""

    def __init__(self, file, function, device):
        self.device = torch.device(device)
        self.library = ctypes.CDLL(file) if file.endswith(".so") else None
        if self.library:
            self.library.ladder_entry.restype = ctypes.c_char_p
        else:
            sys.path.insert(0, str(Path(file).parent))
            spec = importlib.util.spec_from_file_location("candidate", file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self.function = getattr(module, function)

    def take(self, head, tensors):
        """A workload: inputs are tensors, or scalars of head["scalars"] where that has no null."""
        self.names = head["outputs"]
        self.tensors = [tensor.to(self.device) for tensor in tensors]
        rest = iter(self.tensors)
        self.inputs = [next(rest) if scalar is None else scalar for scalar in head["scalars"]]
        self.made = [
            torch.empty(shape, dtype=getattr(torch, dtype), device=self.device) for dtype, shape in head["made"]
        ]
        self.axes = head["axes"]

    def refill(self, tensors):
        for kept, tensor in zip(self.tensors, tensors):
            kept.copy_(tensor)

    def call(self):
        """Launches it once. Its outputs are arguments where it has parameters for them, else what it returns."""
        if self.library:
            pointers = (ctypes.c_void_p * 64)(*(tensor.data_ptr() for tensor in [*self.tensors, *self.made]))
            scalars = (ctypes.c_double * 64)(*(scalar for scalar in self.inputs if not torch.is_tensor(scalar)))
            stream = torch.cuda.current_stream().cuda_stream if self.device.type == "cuda" else 0
            axes = (ctypes.c_longlong * 64)(*self.axes)
            if words := self.library.ladder_entry(pointers, scalars, axes, ctypes.c_void_p(stream)):
                raise RuntimeError(words.decode(errors="replace"))
            return self.made
        if self.fills:
            self.function(*self.inputs, *self.made)
            return self.made
        outputs = listed(self.function(*self.inputs), self.names)
        return [
            output if torch.is_tensor(output) else torch.tensor(output, dtype=made.dtype)
            for output, made in zip(outputs, self.made)
        ]

    @property
    def fills(self):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(self.function).parameters.values()
        return sum(each.kind in kinds for each in parameters) >= len(self.inputs) + len(self.made)


def answered(candidate, head, tensors):
    """(head, tensors) of the answer."""
    if head["op"] == "take":
        candidate.take(head, tensors)
    elif head["op"] == "refill":
        candidate.refill(tensors)
    elif head["op"] == "time":
        return times(candidate.call, lambda: candidate.refill(tensors))
    return {}, candidate.call()


def main(file, function, device):
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a candidate may print
    os.environ.update(HOME="/tmp", TRITON_CACHE_DIR="/tmp/triton")  # the one folder that it may write to
    candidate = None
    while True:
        try:
            head, tensors = receive(requests)
        except EOFError:
            return
        try:
            candidate = candidate or Candidate(file, function, device)
            send(answers, *answered(candidate, head, tensors))
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            send(answers, {"error": words[:2000]})


if __name__ == "__main__":
    main(*sys.argv[1:])
