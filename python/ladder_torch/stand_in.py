"""The base of what swap() makes of a module's class, and the trial of a class that is known by its name alone."""

import contextlib
import inspect

import torch

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooked(module):
    return any(getattr(module, name) for name in _HOOKS)


@contextlib.contextmanager
def same_random_numbers():
    """Random numbers, as a dropout takes them, that are the same in each `with`; PyTorch's generators stay as they were."""
    with random_state_kept():
        torch.default_generator.manual_seed(0)
        if torch.cuda.is_initialized():  # torch.manual_seed() would seed them for later where it is not
            torch.cuda.manual_seed_all(0)
        yield


def random_state_kept():
    """A `with` after which PyTorch's generators are as before, on every device. A process that has not used CUDA yet does not
    begin to."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else [])


def intercepted(module):
    """True where a call of the module may do more than its class says: by hooks, or by a forward of its own, as offloading
    sets one."""
    return hooked(module) or "forward" in vars(module)


class StandIn:
    """Before the module's own class among the bases of what class_for() makes."""

    unswapped = None  # that own class

    @staticmethod
    def unfit(module):
        """Why a module of such a class must stay, or ""."""
        return ""

    @staticmethod
    def takes(x):
        """Whether such an input is computed here; all else goes to the module's own forward."""
        return True


def unknown(module):
    """The reason why a module with a known name stays."""
    return f"the forward of this {type(module).__name__} is none that is known"


def random_like(like, shape=None):
    """The same at every call, in the type and on the device of `like`."""
    drawn = torch.randn(like.shape if shape is None else shape, generator=torch.Generator().manual_seed(0))
    return drawn.to(like.device, like.dtype)


def differs(module, expected, shape, *others):
    """A name alone proves nothing (GLIDE's GroupNorm32 has an activation): why module, with random weights and a small
    input, does not compute what expected(x, weights) does, or ""."""
    words = inspect.signature(module.forward).parameters.values()
    if sum(word.kind is word.POSITIONAL_OR_KEYWORD for word in words) != 1 + len(others):
        return unknown(module)
    weights = {name: random_like(each) for name, each in module.named_parameters()}
    x = random_like(next(iter(weights.values()), torch.empty(0)), shape)
    results = []
    try:
        for call in (lambda x, weights: torch.func.functional_call(module, weights, (x, *others)), expected):
            with torch.no_grad(), same_random_numbers():
                results.append(call(x, weights))
        near = 1e-4 if x.dtype.itemsize > 2 else 1e-2
        return "" if torch.allclose(*results, rtol=near, atol=near) else unknown(module)
    except Exception:  # whatever a stranger's forward throws
        return unknown(module)


def set_otherwise(module, accepted):
    """Why a module stays whose attributes have other values than the accepted ones, or ""."""
    for name, values in accepted.items():
        value = getattr(module, name)
        if value not in values:
            return f"{name} {value}; {' or '.join(map(str, values))} is swapped"
    return ""
