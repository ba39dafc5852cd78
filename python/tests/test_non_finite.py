"""NaN and infinities: a diverged network must look like one. An output is NaN or infinite wherever PyTorch's is."""

import math

import pytest
import torch
from swapping import image, layers
from torch import nn
from torch.nn import functional

import ladder_torch

ACTIVATIONS = {
    "identity": lambda z: z,
    "relu": torch.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "mish": functional.mish,
}
NAN, INFINITY = math.nan, math.inf
DTYPES = [torch.float32, torch.bfloat16]


def with_value(x, value):
    """A copy with such an element in the middle."""
    x = x.clone()
    x.view(-1)[x.numel() // 2] = value
    return x


def assert_as_pytorchs(ours, theirs, inputs, where):
    """Value and gradients: not finite where PyTorch's are not, NaN where an input that is NaN makes them so."""
    outcomes = []
    for function in (ours, theirs):
        given = [each.detach().clone().requires_grad_() for each in inputs]
        y = function(*given)
        outcomes.append([y.detach(), *torch.autograd.grad(y, given, torch.ones_like(y))])
    from_nan = any(each.isnan().any() for each in inputs)
    assert not all(each.isfinite().all() for each in outcomes[1]), f"{where}: PyTorch's is finite"
    for name, mine, wanted in zip(("y", *(f"gradient {i}" for i in range(len(inputs)))), *outcomes):
        hidden = wanted.isnan() & ~mine.isnan() if from_nan else mine.isfinite() & ~wanted.isfinite()
        assert not hidden.any(), f"{where}: {name} hides {int(hidden.sum())} of {int((~wanted.isfinite()).sum())}"


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_group_norm_with_each_activation(device, activation, dtype, value):
    inputs = [torch.randn(sizes, dtype=dtype, device=device) for sizes in ((2, 16, 4, 4), (16,), (16,))]

    def ours(x, weight, bias):
        return ladder_torch.group_norm_act(x, 4, weight, bias, activation=activation)

    def theirs(x, weight, bias):
        return ACTIVATIONS[activation](functional.group_norm(x, 4, weight, bias))

    for i in (0, 1, 2) if math.isnan(value) else (0, 2):  # (x - mean) inf is NaN or not by the order of operations
        if value == -INFINITY and activation == "relu" and i == 2:
            continue  # relu(-inf) is 0
        given = [with_value(each, value) if i == at else each for at, each in enumerate(inputs)]
        assert_as_pytorchs(ours, theirs, given, f"{activation} of {value} in input {i}")


def linear_silu(x, w):
    return ladder_torch.linear(x, w, activation="silu")


def attention(qkv):
    parts = (each.transpose(1, 2) for each in qkv.unflatten(2, (3, 2, -1)).unbind(2))
    return functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)


OPERATORS = {
    "silu": (ladder_torch.silu, functional.silu, [(2, 8, 4, 4)]),
    "avg_pool2x2": (ladder_torch.avg_pool2x2, lambda x: functional.avg_pool2d(x, 2), [(2, 8, 4, 4)]),
    "upsample2x": (ladder_torch.upsample2x, lambda x: functional.interpolate(x, scale_factor=2.0), [(2, 8, 4, 4)]),
    "conv2d_3x3": (
        ladder_torch.conv2d_3x3,
        lambda x, w: functional.conv2d(x, w, padding=1),
        [(2, 8, 4, 4), (8, 8, 3, 3)],
    ),
    "linear": (linear_silu, lambda x, w: functional.silu(functional.linear(x, w)), [(4, 8), (8, 8)]),
    "attention_qkv": (lambda qkv: ladder_torch.attention_qkv(qkv, 2, "new"), attention, [(2, 20, 192)]),
}


@pytest.mark.parametrize("value", [NAN, INFINITY])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_other_operators(device, name, dtype, value):
    if name == "attention_qkv" and value == INFINITY:
        pytest.skip("softmax of an infinity is 0 or NaN beside it by the order of operations")
    ours, theirs, sizes = OPERATORS[name]
    inputs = [torch.randn(each, dtype=dtype, device=device) for each in sizes]
    for i in range(len(inputs)):
        given = [with_value(each, value) if i == at else each for at, each in enumerate(inputs)]
        assert_as_pytorchs(ours, theirs, given, f"{name} of {value} in input {i}")


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU, nn.Mish])
def test_a_swapped_model(device, activation):
    model = layers(activation()).to(device)
    ladder_torch.swap(model)
    x = image().to(device)
    x[0, 0, 0, 0] = NAN
    y = model(x)
    assert y[0].isnan().all() and y[1].isfinite().all()
