"""swap(): makes a model's modules compute with this package's operators, in place; unswap() undoes it.

A swapped module is the same object; its new class is a subclass of the original one (blocks.py says why)."""

import collections
import json

import torch
from torch.nn.utils import parametrize

from . import blocks, library, measure
from .stand_in import StandIn, hooked, intercepted, random_state_kept
from .versions import Explanation

_BASES = (torch.nn.GroupNorm, torch.nn.Conv2d, torch.nn.Linear, torch.nn.AvgPool2d)  # base classes of candidates


class Report(Explanation):
    """Result of swap(): a dict for each candidate module, printed as a table.

    Times are microseconds of all calls of the module in one pass of the example, or None where nothing was timed."""

    _COLUMNS = ("module", "kind", "problem", "version", "us_before", "us_after", "swapped", "note")
    why_empty = ""

    def __str__(self):
        return super().__str__() if self else self.why_empty

    __repr__ = __str__

    def to_json(self):
        """Returns text that swap(only=...) accepts."""
        return json.dumps(self, indent=1)


class _Candidate:
    def __init__(self, name, module, why_not):
        self.name, self.module, self.why_not = name, module, why_not
        self.notes = []
        self.partners = []  # (container, activation) pairs that a norm is fused with
        self.problem = self.version = ""
        self.before = self.after = None
        self.kind = type(module).__name__

    def row(self):
        kind = " + ".join([self.kind, *{type(activation).__name__ for _, activation in self.partners}])
        note = self.why_not or "; ".join(self.notes)
        values = (self.name, kind, self.problem, self.version, self.before, self.after, not self.why_not, note)
        return dict(zip(Report._COLUMNS, values))


def swap(model, example=None, only=None):
    """Changes, in place, the modules of a model that Ladder's kernels can compute. Returns a Report.

    Swapped are modules of exactly nn.GroupNorm, nn.Conv2d, nn.Linear, nn.AvgPool2d and, by name and after a trial,
    guided-diffusion's GroupNorm32, SiLU and QKVAttention(Legacy) and edm's GroupNorm, Conv2d and Linear. A norm is
    fused with the activation after it in nn.Sequential and in diffusers' ResnetBlock2D. Parameters, state_dict and
    names do not change. Subclasses and modules with parametrizations or hooks are not swapped. Inputs whose channels
    are not innermost (channels_last), and types other than fp32, bf16 and fp16, go to PyTorch as before.

    example: the model's arguments, (x, t) or ((x, t), {"y": y}). One forward pass records the inputs of each module,
    and on a GPU a module is swapped only if it is faster for these. only: names of modules or of their parents, a
    function of name and module, an earlier report, or its JSON. A second swap() starts from the original model. Call
    swap() before wrapping in DDP."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"swap: model is a {type(model).__name__}, and a torch.nn.Module is wanted")
    wanted = _chooser(model, only)
    unswap(model)
    names = {module: name for name, module in model.named_modules()}
    no_kernels = _no_kernels(model)
    candidates = []
    for module, name in names.items():
        if _looked_at(module):
            why_not = ("" if wanted(name, module) else "not in only") or _why_not(module) or no_kernels
            candidates.append(_Candidate(name, module, why_not))
    free = {each.module: each for each in candidates if not each.why_not}
    _pair(names, free)
    _change(free)
    if example is not None:
        try:  # observe the swapped model: PyTorch's norms would pass on outputs that are not channels_last
            with random_state_kept():
                _measure(free, measure.observe(model, list(free), example))
        finally:
            unswap(model)
        _change(free)
    report = Report(each.row() for each in candidates)
    report.why_empty = _why_empty(model)
    return report


def _change(free):
    for each in free.values():
        if not each.why_not:
            blocks.become(each.module)
            for container, _ in each.partners:
                blocks.become(container)


def unswap(model):
    """Restores every module of the model that swap() changed."""
    for module in model.modules():
        if isinstance(module, StandIn):
            blocks.revert(module)


def _chooser(model, only):
    """Returns `only` as a function of name and module. Throws ValueError."""
    if only is None or callable(only):
        return only or (lambda name, module: True)
    if isinstance(only, str):
        only = _parsed(only) if only.startswith("[") else [only]
    rows = (each if isinstance(each, dict) else {"module": each, "swapped": True} for each in only)
    names = [row["module"] for row in rows if row["swapped"]]
    known = {name for name, _ in model.named_modules(remove_duplicate=False)}
    for name in names:
        if name not in known:
            raise ValueError(f"swap: only has {name!r}, and {type(model).__name__} has no such module")
    return lambda name, module: any(name == each or name.startswith(f"{each}.") for each in names)


def _parsed(text):
    try:
        rows = json.loads(text)
        if all({"module", "swapped"} <= set(row) for row in rows):
            return rows
    except (ValueError, TypeError):
        pass
    raise ValueError("swap: only begins as a report's JSON does, but is none")


def _looked_at(module):
    stand_in = blocks.stand_in_of(type(module))
    return isinstance(module, _BASES) or (stand_in is not None and not issubclass(stand_in, blocks.Container))


def _why_empty(model):
    """Returns the text of a report without rows: the model's leaf classes, and the classes that can be swapped."""
    seen = collections.Counter(type(each).__name__ for each in model.modules() if not list(each.children()))
    found = ", ".join(f"{name} ({count})" for name, count in seen.most_common())
    known = ", ".join([*(f"nn.{each.__name__}" for each in _BASES), *blocks.known_names()])
    return f"nothing to swap in {type(model).__name__}: no kernel is for its {found}; there are kernels for {known}"


def _no_kernels(model):
    if not any(each.is_cuda for each in model.parameters()):
        return ""
    return library.CUDA.missing() or library.CUDA.ask()["unavailable"]


def _why_not(module):
    """Returns the reason why the module cannot be swapped, or ""."""
    stand_in = blocks.stand_in_of(type(module))
    if parametrize.is_parametrized(module):
        return f"parametrized: {', '.join(module.parametrizations)}"
    if hooked(module):
        return "has hooks"
    if "forward" in vars(module):
        return "its forward was replaced"
    if stand_in is None:
        base = next(each for each in _BASES if isinstance(module, each))
        return f"a subclass of {base.__name__}"
    return stand_in.unfit(module)


def _pair(names, free):
    """Records for each norm the activations that it can be fused with."""
    for container, name in names.items():
        stand_in = blocks.stand_in_of(type(container)) or StandIn
        if not issubclass(stand_in, blocks.Container) or not any(each in free for each in container.children()):
            continue
        why_not = _why_not(container)
        for norm, activation in [] if why_not else stand_in.pairs(container):
            if norm in free and blocks.is_norm(norm) and _can_go_along(activation, free):
                free[norm].partners.append((container, activation))
                free[norm].notes.append(f"with {names[activation]}")
        for norm in container.children() if why_not else ():
            if norm in free:
                free[norm].notes.append(f"alone: {name or 'the model'}: {why_not}")


def _can_go_along(activation, free):
    known = type(activation) in blocks.ACTIVATIONS or activation in free and blocks.is_activation(activation)
    return known and not intercepted(activation)


def _measure(free, uses):
    """Fills in the example's measurements, and excludes modules that are not faster."""
    known = {}
    for module, each in free.items():
        taken = [use for use in uses[module] if module.takes(use.tensor("meta"))]
        if not taken:
            called = "gets only inputs that are not fp32, bf16 or fp16, or whose channels are not innermost"
            each.why_not = called if uses[module] else "not called by the example"
            continue
        activation = each.partners[0][1] if each.partners else None
        found = []
        for use in taken:
            key = (each.kind, module.extra_repr(), use, type(activation), measure.weights(module))
            if key not in known:
                known[key] = measure.compare(module, activation, use)
            found.append(known[key])
        each.problem, each.version = ("; ".join(dict.fromkeys(words)) for words in list(zip(*found))[:2])
        if found[0].before is None:
            each.notes.append("not timed: no GPU")
            continue
        each.before, each.after = sum(one.before for one in found), sum(one.after for one in found)
        if each.after >= each.before:
            each.why_not = "PyTorch's is no slower"
