"""conv2d_3x3: 3x3 convolution with stride 1 and padding 1, and its gradients."""

import torch

from .checks import check_beside, check_image
from .define import define, differentiable, new_channels_last, new_like, tf32_of_convolutions, without_gradients


def check(x, w, bias):
    """Throws ValueError or TypeError, with a message that says what would be right."""
    check_image("conv2d_3x3", x, "n", "channels", "h", "w")
    features = w.shape[0] if w.dim() else 1
    check_beside("conv2d_3x3", "w", w, (features, x.shape[1], 3, 3), x, same_type=True)
    if bias is not None:
        check_beside("conv2d_3x3", "bias", bias, (features,), x)


def _gradient_of(operand, dy, x, w):
    """Returns the gradient of x (operand 0) or w (operand 1)."""
    mask = [operand == 0, operand == 1, False]
    return torch.ops.aten.convolution_backward(dy, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)[operand]


def _formula(x, w, bias, tf32):
    check(x, w, bias)
    y = _fake(x, w, bias, tf32)
    if x.numel() and w.numel():
        return y.copy_(torch.nn.functional.conv2d(x, w, None if bias is None else bias.to(x.dtype), padding=1))
    return y.zero_() if bias is None else y.copy_(bias.reshape(1, -1, 1, 1))


def _formula_dgrad(dy, w, tf32):
    dx = _fake_dgrad(dy, w, tf32)
    return (
        dx.copy_(_gradient_of(0, dy, dy.new_empty(1).expand(dx.shape), w)) if dy.numel() and w.numel() else dx.zero_()
    )


def _formula_wgrad(dy, x, w, bias, tf32):
    dw, dbias = _fake_wgrad(dy, x, w, bias, tf32)
    if bias is not None:
        dbias.copy_(_sum_of_pixels(dy))
    return (dw.copy_(_gradient_of(1, dy, x, w)) if dy.numel() and x.numel() else dw.zero_()), dbias


def _sum_of_pixels(dy):
    return dy.sum([0, 2, 3], dtype=torch.promote_types(dy.dtype, torch.float32))


def _fake(x, w, bias, tf32):
    check(x, w, bias)
    return new_channels_last(x, [x.shape[0], w.shape[0], *x.shape[2:]])


def _fake_dgrad(dy, w, tf32):
    return new_channels_last(dy, [dy.shape[0], w.shape[1], *dy.shape[2:]])


def _fake_wgrad(dy, x, w, bias, tf32):
    return new_like(w), x.new_empty(0, dtype=torch.float32) if bias is None else bias.new_empty(bias.shape)


define("conv2d_3x3", "(Tensor x, Tensor w, Tensor? bias, bool tf32) -> Tensor", _formula, _fake)
define("conv2d_3x3_dgrad", "(Tensor dy, Tensor w, bool tf32) -> Tensor", _formula_dgrad, _fake_dgrad)
define(
    "conv2d_3x3_wgrad",
    "(Tensor dy, Tensor x, Tensor w, Tensor? bias, bool tf32) -> (Tensor, Tensor)",
    _formula_wgrad,
    _fake_wgrad,
)
_dgrad = without_gradients("conv2d_3x3_dgrad", of="conv2d_3x3")
_wgrad = without_gradients("conv2d_3x3_wgrad", of="conv2d_3x3")


def _setup(ctx, inputs, output):
    x, w, bias, ctx.tf32 = inputs
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, w, bias)


def _gradients(ctx, dy):
    x, w, bias = ctx.saved_tensors
    needs_x, needs_w, needs_bias, _ = ctx.needs_input_grad
    dx = _dgrad(dy, w, ctx.tf32) if needs_x else None
    dw = dbias = None
    if needs_w:
        dw, dbias = _wgrad(dy, x, w, bias if needs_bias else None, ctx.tf32)
    elif needs_bias:
        dbias = _sum_of_pixels(dy).to(bias.dtype)
    return dx, dw, dbias if needs_bias else None, None


_conv2d_3x3 = differentiable("conv2d_3x3", _setup, _gradients, autocast=(0, 1))


def conv2d_3x3(x, w, bias=None):
    """Returns torch.nn.functional.conv2d(x, w, bias, padding=1) for x (n, c, h, w), w (k, c, 3, 3) and a bias (k,).

    x and w have the same floating-point type, the bias has any. The result is channels_last. Nothing is copied where x
    and w are channels_last. fp32 is rounded to TF32 where torch.backends.cudnn allows it for convolutions; a compiled
    graph keeps the setting of its compilation."""
    check(x, w, bias)
    return _conv2d_3x3(x, w, bias, tf32_of_convolutions())
