"""linear: a matrix product with bias, residual and activation, and its gradients; conv2d_1x1 is linear on a view of
images."""

import math

import torch

from .checks import check_beside, check_floating, check_image
from .define import define, differentiable, tf32_of_convolutions, tf32_of_products, without_gradients
from .silu import silu

ACTIVATIONS = {"identity": lambda z: z, "silu": torch.nn.functional.silu}


def check(x, w, bias, residual, activation):
    """Throws ValueError or TypeError, with a message that says what would be right."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"linear: no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
    if x.dim() < 1:
        raise ValueError("linear: x is (), and (..., features) is wanted")
    check_floating("linear", x)
    features = w.shape[0] if w.dim() else 1
    check_beside("linear", "w", w, (features, x.shape[-1]), x, same_type=True)
    if bias is not None:
        check_beside("linear", "bias", bias, (features,), x)
    if residual is not None:
        check_beside("linear", "residual", residual, (*x.shape[:-1], features), x, same_type=True)


def _formula(x, w, bias, residual, activation, tf32):
    check(x, w, bias, residual, activation)
    z = torch.nn.functional.linear(x, w, None if bias is None else bias.to(x.dtype))
    return _fake(x, w).copy_(ACTIVATIONS[activation](z if residual is None else z + residual))


def _formula_dgrad(dy, w, tf32):
    return _fake_dgrad(dy, w).copy_(dy @ w)


def _formula_wgrad(dy, x, bias, tf32):
    dw, dbias = _fake_wgrad(dy, x, bias)
    rows = [each.reshape(math.prod(each.shape[:-1]), each.shape[-1]) for each in (dy, x)]
    if bias is not None:
        dbias.copy_(_sum_of_rows(dy))
    return dw.copy_(rows[0].t() @ rows[1]), dbias


def _sum_of_rows(dy):
    return dy.sum(list(range(dy.dim() - 1)), dtype=torch.promote_types(dy.dtype, torch.float32)) if dy.dim() > 1 else dy


def _fake(x, w, *_):
    return x.new_empty([*x.shape[:-1], w.shape[0]])


def _fake_dgrad(dy, w, *_):
    return dy.new_empty([*dy.shape[:-1], w.shape[1]])


def _fake_wgrad(dy, x, bias, *_):
    dw = x.new_empty([dy.shape[-1], x.shape[-1]])
    return dw, x.new_empty(0, dtype=torch.float32) if bias is None else bias.new_empty(bias.shape)


define(
    "linear",
    "(Tensor x, Tensor w, Tensor? bias, Tensor? residual, str activation, bool tf32) -> Tensor",
    _formula,
    _fake,
)
define("linear_dgrad", "(Tensor dy, Tensor w, bool tf32) -> Tensor", _formula_dgrad, _fake_dgrad)
define(
    "linear_wgrad", "(Tensor dy, Tensor x, Tensor? bias, bool tf32) -> (Tensor, Tensor)", _formula_wgrad, _fake_wgrad
)
_dgrad = without_gradients("linear_dgrad", of="linear")
_wgrad = without_gradients("linear_wgrad", of="linear")


def _setup(ctx, inputs, output):
    x, w, bias, _, activation, ctx.tf32 = inputs
    if activation != "identity":
        raise RuntimeError("ladder::linear: where there are gradients, silu is an operator of its own, ladder::silu")
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, w if ctx.needs_input_grad[0] else None, bias)


def _gradients(ctx, dy):
    x, w, bias = ctx.saved_tensors
    needs_x, needs_w, needs_bias, needs_residual = ctx.needs_input_grad[:4]
    dx = _dgrad(dy, w, ctx.tf32) if needs_x else None
    dw = dbias = None
    if needs_w:
        dw, dbias = _wgrad(dy, x, bias if needs_bias else None, ctx.tf32)
    elif needs_bias:
        dbias = _sum_of_rows(dy).to(bias.dtype)
    return dx, dw, dbias if needs_bias else None, dy if needs_residual else None, None, None


_linear = differentiable("linear", _setup, _gradients, autocast=(0, 1, 3))


def linear(x, w, bias=None, residual=None, activation="identity"):
    """Returns activation(x w^T + bias + residual) for x (..., k), w (n, k), bias (n,) and residual (..., n).

    x, w and residual have the same floating-point type, the bias has any. `activation` is identity or silu. fp32 is
    rounded to TF32 where torch.backends.cuda.matmul allows it; a compiled graph keeps the setting of its
    compilation."""
    check(x, w, bias, residual, activation)
    wanted = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (x, w, bias, residual))
    if activation == "silu" and wanted:
        return silu(_linear(x, w, bias, residual, "identity", tf32_of_products()))
    return _linear(x, w, bias, residual, activation, tf32_of_products())


def conv2d_1x1(x, w, bias=None):
    """Returns torch.nn.functional.conv2d(x, w, bias) for x (n, c, h, w) and w (k, c, 1, 1): linear() of the pixels.

    The result has its channels innermost. Nothing is copied where x's channels are innermost. TF32 is used as in
    conv2d_3x3()."""
    check_image("conv2d_1x1", x, "n", "channels", "h", "w")
    features = w.shape[0] if w.dim() else 1
    check_beside("conv2d_1x1", "w", w, (features, x.shape[1], 1, 1), x, same_type=True)
    if bias is not None:
        check_beside("conv2d_1x1", "bias", bias, (features,), x)
    y = _linear(x.movedim(1, -1), w.flatten(1), bias, None, "identity", tf32_of_convolutions())
    return y.movedim(-1, 1)
