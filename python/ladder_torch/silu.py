"""silu: x sigmoid(x) as an operator of its own, not fused with another one, and its gradient."""

import torch

from .checks import check_floating
from .define import define, differentiable, new_like, without_gradients


def _formula(x):
    check_floating("silu", x)
    return new_like(x).copy_(torch.nn.functional.silu(x))


def _formula_backward(dy, x):
    return new_like(x).copy_(torch.ops.aten.silu_backward(dy, x))


define("silu", "(Tensor x) -> Tensor", _formula, new_like)
define("silu_backward", "(Tensor dy, Tensor x) -> Tensor", _formula_backward, lambda dy, x: new_like(x))
_backward = without_gradients("silu_backward", of="silu")
_silu = differentiable("silu", lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
                       lambda ctx, dy: _backward(dy, *ctx.saved_tensors))  # fmt: skip


def silu(x):
    """Returns torch.nn.functional.silu(x) for x of any shape, with channels innermost if x's are, else contiguous."""
    check_floating("silu", x)
    return _silu(x)
