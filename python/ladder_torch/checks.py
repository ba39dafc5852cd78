"""Checks of an operator's arguments: the message is one sentence that says what is wrong and what would be right."""

import torch


def autocast_on(x):
    return x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type)


def has_kernel_type(x):
    """Returns whether kernels take x's type; PyTorch computes all others."""
    return x.dtype in (torch.float32, torch.bfloat16, torch.float16)


def check_image(op, x, *sizes):
    """Throws where x does not have as many dimensions as `sizes` has names, or is not of a floating-point type."""
    if x.dim() != len(sizes):
        raise ValueError(f"{op}: x is {tuple(x.shape)}, and ({', '.join(sizes)}) is wanted")
    check_floating(op, x)


def check_floating(op, x, name="x"):
    if not x.is_floating_point():
        raise TypeError(f"{op}: {name} is {x.dtype}, and a floating-point type is wanted")


def check_beside(op, name, given, shape, x, same_type=False, of="x"):
    """Throws where `given` does not have the shape `shape`, x's device and a floating-point type.

    `same_type` also requires x's type, unless autocast converts both."""
    if tuple(given.shape) != tuple(shape):
        raise ValueError(f"{op}: {name} is {tuple(given.shape)} and {of} {tuple(x.shape)}: {tuple(shape)} is wanted")
    if given.device != x.device:
        raise ValueError(f"{op}: {name} is on {given.device} and {of} on {x.device}")
    if not given.is_floating_point():
        raise TypeError(f"{op}: {name} is {given.dtype}, and a floating-point type is wanted")
    if same_type and given.dtype != x.dtype and not autocast_on(x):
        raise TypeError(f"{op}: {name} is {given.dtype} and {of} {x.dtype}, and one type is wanted")
