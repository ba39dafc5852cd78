"""Forward-mode derivatives: every operator and a swapped model have PyTorch's tangents, with gradients or without."""

import copy
import math

import pytest
import torch
from bounds import assert_near
from cases import allowed
from swapping import image, layers
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional

import ladder_torch


@pytest.fixture(autouse=True)
def without_tf32():
    with allowed(torch.backends.cudnn.conv, "ieee"):
        yield


def drawn(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(math.prod(sizes)))


def attention(q, k, v):
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def attention_qkv(qkv):
    q, k, v = (each.transpose(1, 2) for each in qkv.unflatten(2, (3, 2, -1)).unbind(2))
    return attention(q, k, v).transpose(1, 2).flatten(2)


def timestep_embedding(t):
    angles = t[:, None] * torch.tensor([1.0, 0.01]).to(t)
    return torch.cat([angles.cos(), angles.sin()], 1)


X, CHANNELS, FEATURES = drawn(2, 8, 4, 6), drawn(8), drawn(6)
OPERATORS = {  # ours, PyTorch's, inputs
    "group_norm_act": (lambda x, w, b: ladder_torch.group_norm_act(x, 4, w, b, activation="silu"),
                       lambda x, w, b: functional.silu(functional.group_norm(x, 4, w, b)), (X, CHANNELS, CHANNELS + 1)),
    "conv2d_3x3": (ladder_torch.conv2d_3x3, lambda x, w, b: functional.conv2d(x, w, b, padding=1),
                   (X, drawn(6, 8, 3, 3), FEATURES)),
    "conv2d_1x1": (ladder_torch.conv2d_1x1, functional.conv2d, (X, drawn(6, 8, 1, 1), FEATURES)),
    "linear": (lambda x, w, b: ladder_torch.linear(x, w, b, activation="silu"),
               lambda x, w, b: functional.silu(functional.linear(x, w, b)), (drawn(3, 8), drawn(6, 8), FEATURES)),
    "attention": (ladder_torch.attention, attention, (drawn(2, 2, 3, 32), drawn(1, 2, 3, 64).view(2, 2, 3, 32) + 1,
                                                      drawn(4, 1, 3, 32).view(2, 2, 3, 32) - 1)),
    "attention_qkv": (lambda qkv: ladder_torch.attention_qkv(qkv, 2, "new"), attention_qkv, (drawn(2, 3, 192),)),
    "silu": (ladder_torch.silu, functional.silu, (X,)),
    "avg_pool2x2": (ladder_torch.avg_pool2x2, lambda x: functional.avg_pool2d(x, 2), (X,)),
    "upsample2x": (ladder_torch.upsample2x, lambda x: functional.interpolate(x, scale_factor=2.0), (X,)),
    "timestep_embedding": (lambda t: ladder_torch.timestep_embedding(t, 4), timestep_embedding, (drawn(5).abs(),)),
}  # fmt: skip
CASES = [(name, i) for name, (_, _, inputs) in OPERATORS.items() for i in range(len(inputs))]


def of_one(function, inputs, i):
    """A function of input number i, the others as they are."""
    return lambda x: function(*inputs[:i], x, *inputs[i + 1 :])


def by_dual(function, x, tangent):
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent))))


def without_grad(function, x, tangent):
    with torch.no_grad():
        return torch.func.jvp(function, (x,), (tangent,))


def of_a_parameter(function, x, tangent):
    return [each.detach() for each in by_dual(function, x.clone().requires_grad_(), tangent)]


def compiled(function, x, tangent):
    torch._dynamo.reset()
    whole = torch.compile(lambda x, t: torch.func.jvp(function, (x,), (t,)), backend="aot_eager", fullgraph=True)
    return whole(x, tangent)


WAYS = [lambda f, x, t: torch.func.jvp(f, (x,), (t,)), by_dual, without_grad, of_a_parameter, compiled]


def assert_tangents(way, ours, theirs, x):
    tangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(9)).to(x)
    exact = torch.func.jvp(theirs, (x.double(),), (tangent.double(),))
    for result, wanted, name in zip(way(ours, x, tangent), exact, ("the value", "the tangent")):
        assert_near(result, wanted.cpu(), name)


@pytest.mark.parametrize("way", WAYS, ids=["jvp", "dual", "no_grad", "requires_grad", "compiled"])
@pytest.mark.parametrize("name, i", CASES)
def test_tangents_of_every_operator(device, name, i, way):
    ours, theirs, inputs = OPERATORS[name]
    inputs = [each.to(device) for each in inputs]
    exact = of_one(theirs, [each.double() for each in inputs], i)
    assert_tangents(way, of_one(ours, inputs, i), exact, inputs[i])


def test_the_gradient_of_a_primal_value_goes_on(device):
    x, w = X.to(device), drawn(6, 8, 3, 3).to(device).requires_grad_()
    y, tangent = torch.func.jvp(lambda x: ladder_torch.conv2d_3x3(x, w), (x,), (torch.ones_like(x),))
    (y - tangent.detach()).square().sum().backward()
    expected = w.detach().double().requires_grad_()
    y, tangent = (functional.conv2d(each.double(), expected, padding=1) for each in (x, torch.ones_like(x)))
    (y - tangent.detach()).square().sum().backward()
    assert_near(w.grad, expected.grad.cpu())


def test_a_tangent_of_the_output_gradient(device):
    x, dy, tangent = (drawn(2, 8).add(i).to(device) for i in range(3))
    w = drawn(6, 8).to(device)
    y = ladder_torch.linear(x.requires_grad_(), w)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(dy[:, :6].contiguous(), tangent[:, :6].contiguous())
        dx = forward_ad.unpack_dual(torch.autograd.grad(y, x, dual)[0])
        assert_near(dx.tangent, (tangent[:, :6].double() @ w.double()).cpu())


@pytest.mark.parametrize("way", WAYS[:4], ids=["jvp", "dual", "no_grad", "requires_grad"])
def test_tangents_of_a_swapped_model_that_is_frozen(device, way):
    model = layers(nn.SiLU()).requires_grad_(False).to(device)
    exact = copy.deepcopy(model).double().to(memory_format=torch.contiguous_format)
    assert all(row["swapped"] for row in ladder_torch.swap(model))
    assert_tangents(way, model, lambda x: exact(x.contiguous()), image().to(device))
