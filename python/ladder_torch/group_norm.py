"""group_norm_act: group normalisation of an image fused with an activation, and its gradients."""

import torch

from .checks import check_beside
from .define import channels_last, define, differentiable, new_channels_last, without_gradients

ACTIVATIONS = {
    "identity": (lambda z: z, lambda dy, z: dy),
    "relu": (torch.relu, lambda dy, z: torch.ops.aten.threshold_backward(dy, z, 0)),
    "silu": (torch.nn.functional.silu, torch.ops.aten.silu_backward),
    "gelu": (torch.nn.functional.gelu, torch.ops.aten.gelu_backward),
    "gelu_tanh": (
        lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
        lambda dy, z: torch.ops.aten.gelu_backward(dy, z, approximate="tanh"),
    ),
    "mish": (torch.nn.functional.mish, torch.ops.aten.mish_backward),
}
ACTIVATIONS["swish"] = ACTIVATIONS["silu"]


def check(x, groups, weight, bias, activation):
    """Throws ValueError or TypeError, with a message that says what would be right."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"group_norm_act: no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
    if x.dim() < 2:
        raise ValueError(f"group_norm_act: x is {tuple(x.shape)}, and (n, channels, ...) is wanted")
    if not x.is_floating_point():
        raise TypeError(f"group_norm_act: x is {x.dtype}, and a floating-point type is wanted")
    channels = x.shape[1]
    if groups < 1 or channels % groups:
        raise ValueError(f"group_norm_act: {channels} channels in {groups} groups; groups must divide channels")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            check_beside("group_norm_act", name, parameter, (channels,), x)


def _check_operator(x, groups, weight, bias, activation):
    """Throws as check() does, and where only one of weight and bias is given; group_norm_act() adds the other."""
    check(x, groups, weight, bias, activation)
    if (weight is None) != (bias is None):
        raise ValueError("ladder::group_norm_act: weight and bias, both of them or none")


def _statistics_type(x):
    return torch.promote_types(x.dtype, torch.float32)


def _per_channel(parameter, x):
    return parameter.to(_statistics_type(x)).reshape(1, -1, *[1] * (x.dim() - 2))


def _per_group(value, x, groups):
    """Expands [n, groups] to [n, channels, 1, ...], which broadcasts to x's shape."""
    each = value.repeat_interleave(x.shape[1] // groups, 1)
    return each.reshape(*each.shape, *[1] * (x.dim() - 2))


def _formula(x, weight, bias, groups, eps, activation):
    _check_operator(x, groups, weight, bias, activation)
    values = x.to(_statistics_type(x))
    of_group = values.reshape(x.shape[0], groups, -1) if x.numel() else values.new_zeros(x.shape[0], groups, 1)
    mean = of_group.mean(2)
    rstd = ((of_group - mean.unsqueeze(2)).square().mean(2) + eps).rsqrt()
    z = (values - _per_group(mean, x, groups)) * _per_group(rstd, x, groups)
    if weight is not None:
        z = z * _per_channel(weight, x) + _per_channel(bias, x)
    return channels_last(ACTIVATIONS[activation][0](z).to(x.dtype)), mean, rstd


def _formula_backward(dy, x, weight, bias, mean, rstd, groups, activation):
    values, gradient = x.to(_statistics_type(x)), dy.to(_statistics_type(x))
    each_rstd = _per_group(rstd, x, groups)
    xhat = (values - _per_group(mean, x, groups)) * each_rstd
    z = xhat if weight is None else xhat * _per_channel(weight, x) + _per_channel(bias, x)
    dz = ACTIVATIONS[activation][1](gradient, z)
    g = dz if weight is None else dz * _per_channel(weight, x)

    def mean_of_group(value):
        if not x.numel():
            return value
        return _per_group(value.reshape(x.shape[0], groups, -1).mean(2), x, groups)

    dx = each_rstd * (g - mean_of_group(g) - xhat * mean_of_group(g * xhat))
    if weight is None:
        return channels_last(dx.to(x.dtype)), x.new_empty(0, dtype=torch.float32), x.new_empty(0, dtype=torch.float32)
    others = [0, *range(2, x.dim())]
    sums = [(dz * xhat).sum(others).to(weight.dtype), dz.sum(others).to(bias.dtype)]
    return channels_last(dx.to(x.dtype)), *sums


def _fake(x, weight, bias, groups, eps, activation):
    _check_operator(x, groups, weight, bias, activation)
    statistics = [x.new_empty([x.shape[0], groups], dtype=_statistics_type(x)) for _ in range(2)]
    return new_channels_last(x, x.shape), *statistics


def _fake_backward(dy, x, weight, bias, mean, rstd, groups, activation):
    if weight is None:
        return new_channels_last(x, x.shape), *(x.new_empty([0], dtype=torch.float32) for _ in range(2))
    return new_channels_last(x, x.shape), weight.new_empty([x.shape[1]]), bias.new_empty([x.shape[1]])


define(
    "group_norm_act",
    "(Tensor x, Tensor? weight, Tensor? bias, int groups, float eps, str activation) -> (Tensor, Tensor, Tensor)",
    _formula,
    _fake,
)
define(
    "group_norm_act_backward",
    "(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd, int groups, str activation)"
    " -> (Tensor, Tensor, Tensor)",
    _formula_backward,
    _fake_backward,
)
_backward = without_gradients("group_norm_act_backward", of="group_norm_act")


def _setup(ctx, inputs, output):
    x, weight, bias, ctx.groups, _, ctx.activation = inputs
    _, mean, rstd = output
    ctx.mark_non_differentiable(mean, rstd)
    ctx.save_for_backward(x, weight, bias, mean, rstd)


def _gradients(ctx, dy, *_):
    x, weight, bias, mean, rstd = ctx.saved_tensors
    dx, dweight, dbias = _backward(dy, x, weight, bias, mean, rstd, ctx.groups, ctx.activation)
    if weight is None:
        dweight = dbias = None
    return dx, dweight, dbias, None, None, None


_group_norm_act = differentiable("group_norm_act", _setup, _gradients)


def group_norm_act(x, groups, weight=None, bias=None, eps=1e-5, activation="identity"):
    """Returns activation(group_norm(x)) for x (n, channels, ...) of any floating-point type.

    weight and bias are (channels,), of any floating-point types, and either may be None. The result has its channels
    innermost, as in channels_last. PyTorch computes what no kernel takes (float64, 2^31 elements and more)."""
    check(x, groups, weight, bias, activation)
    if weight is None and bias is not None:
        weight = torch.ones_like(bias, requires_grad=False)
    elif bias is None and weight is not None:
        bias = torch.zeros_like(weight, requires_grad=False)
    return _group_norm_act(x, weight, bias, groups, eps, activation)[0]
