"""How an operator of the package is defined: its schema in Python, so that it exists without any compiled library; kernels
for CUDA and, in a namespace of its own, for the emulator; PyTorch's formula for what no kernel can do."""

import torch

from . import library

_kept = [torch.library.Library("ladder", "FRAGMENT"), torch.library.Library("ladder_emulator", "FRAGMENT")]


def define(name, schema, formula, fake):
    """`formula` and `fake` take what the schema says; `formula` is ladder::<name>_formula as well."""
    for namespace in ("ladder", "ladder_emulator"):
        torch.library.define(f"{namespace}::{name}", schema)
    torch.library.define(f"ladder::{name}_formula", schema)
    torch.library.impl(f"ladder::{name}_formula", "CompositeExplicitAutograd", formula)
    emulator = getattr(torch.ops.ladder_emulator, name).default

    def on_cpu(*arguments):
        return (emulator if library.emulated() else formula)(*arguments)

    torch.library.impl(f"ladder::{name}", "CPU", on_cpu)
    torch.library.register_fake(f"ladder::{name}", fake)
    if library.CUDA.missing():
        torch.library.impl(f"ladder::{name}", "CUDA", _no_cuda)


def differentiate(name, setup, backward):
    """Of ladder::<name>, by ladder::<name>_backward, which has no derivative of its own."""
    torch.library.register_autograd(f"ladder::{name}", backward, setup_context=setup)

    def refuse(ctx, *_):
        raise RuntimeError(f"ladder::{name} has no second derivative")

    torch.library.register_autograd(f"ladder::{name}_backward", refuse)


def _no_cuda(*_):
    raise RuntimeError(library.CUDA.missing())


def new_channels_last(x, sizes, dtype=None):
    """Uninitialized, as the kernels leave it: of sizes [n, c, ...], c innermost."""
    return x.new_empty([sizes[0], *sizes[2:], sizes[1]], dtype=dtype).movedim(-1, 1)


def channels_last(x):
    """A copy that lies so."""
    return new_channels_last(x, x.shape).copy_(x)
