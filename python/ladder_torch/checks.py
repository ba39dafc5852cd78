"""What an operator's function says of tensors that do not fit together: one sentence, with what would be right."""

import torch


def autocast_on(x):
    return x.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(x.device.type)


def has_kernel_type(x):
    """True for a type that kernels take; the others are PyTorch's."""
    return x.dtype in (torch.float32, torch.bfloat16, torch.float16)


def check_image(op, x, *sizes):
    """Throws where x does not have such sizes, or is not of a floating-point type."""
    if x.dim() != len(sizes):
        raise ValueError(f"{op}: x is {tuple(x.shape)}, and ({', '.join(sizes)}) is wanted")
    check_floating(op, x)


def check_floating(op, x, name="x"):
    if not x.is_floating_point():
        raise TypeError(f"{op}: {name} is {x.dtype}, and a floating-point type is wanted")


def check_beside(op, name, given, shape, x, same_type=False, of="x"):
    """Throws where a tensor beside x has another shape or device, or a type that is not x's, where autocast does not make it
    so, or no floating-point one."""
    if tuple(given.shape) != tuple(shape):
        raise ValueError(f"{op}: {name} is {tuple(given.shape)} and {of} {tuple(x.shape)}: {tuple(shape)} is wanted")
    if given.device != x.device:
        raise ValueError(f"{op}: {name} is on {given.device} and {of} on {x.device}")
    if not given.is_floating_point():
        raise TypeError(f"{op}: {name} is {given.dtype}, and a floating-point type is wanted")
    if same_type and given.dtype != x.dtype and not autocast_on(x):
        raise TypeError(f"{op}: {name} is {given.dtype} and {of} {x.dtype}, and one type is wanted")
