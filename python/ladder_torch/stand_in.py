"""StandIn, the base of the classes that swap() gives to modules, and the trial of a class known only by name."""

import contextlib
import inspect

import torch

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooked(module):
    return any(getattr(module, name) for name in _HOOKS)


@contextlib.contextmanager
def same_random_numbers():
    """Makes random numbers, such as a dropout's, the same in each `with`. PyTorch's generators are restored."""
    with random_state_kept():
        torch.default_generator.manual_seed(0)
        if torch.cuda.is_initialized():  # torch.manual_seed() would also seed a CUDA that is initialised later
            torch.cuda.manual_seed_all(0)
        yield


def random_state_kept():
    """Returns a context that restores PyTorch's generators on every device. It does not initialise CUDA."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else [])


def intercepted(module):
    """Returns whether a call of the module may do more than its class defines: by hooks, or by a forward set on the
    instance, as offloading does."""
    return hooked(module) or "forward" in vars(module)


class StandIn:
    """Base that class_for() puts before the module's original class."""

    unswapped = None  # the original class

    @staticmethod
    def unfit(module):
        """Returns the reason why a module of such a class is not swapped, or ""."""
        return ""

    @staticmethod
    def takes(x):
        """Returns whether x is computed by the stand-in; every other input goes to the original forward."""
        return True


def unknown(module):
    """Returns the reason why a module with a known class name but an unknown forward is not swapped."""
    return f"the forward of this {type(module).__name__} is none that is known"


def random_like(like, shape=None):
    """Returns random numbers, the same at every call, in the type and on the device of `like`."""
    drawn = torch.randn(like.shape if shape is None else shape, generator=torch.Generator().manual_seed(0))
    return drawn.to(like.device, like.dtype)


def differs(module, expected, shape, *others):
    """Compares a module to expected(x, weights) on random weights and a small input; returns "" or why it differs.

    A class name alone proves nothing: GLIDE's GroupNorm32 has an activation."""
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
    except Exception:  # an unknown forward may throw anything
        return unknown(module)


def set_otherwise(module, accepted):
    """Returns the reason not to swap a module, an attribute with a value that is not in `accepted`, or ""."""
    for name, values in accepted.items():
        value = getattr(module, name)
        if value not in values:
            return f"{name} {value}; {' or '.join(map(str, values))} is swapped"
    return ""
