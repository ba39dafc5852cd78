"""Models for the tests of swap(), and assertions about them."""

import copy

import torch
from bounds import assert_near
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import ladder_torch

DIFFUSERS = "diffusers==0.42.1 with huggingface_hub, importlib_metadata, regex, requests, safetensors and pillow"
SUMS = 4096  # terms that an output of these small networks depends on: 2.4e-4 of a tensor's norm is allowed


class GroupNorm32(nn.GroupNorm):
    """guided-diffusion's GroupNorm32."""

    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)


class SiLU(nn.Module):
    """guided-diffusion's SiLU."""

    def forward(self, x):
        return x * torch.sigmoid(x)


class QKVAttentionLegacy(nn.Module):
    """guided-diffusion's QKVAttentionLegacy: channels are [heads][q, k, v][d]."""

    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def parts(self, qkv):
        n, width, length = qkv.shape
        return qkv.reshape(n * self.n_heads, width // self.n_heads, length).chunk(3, dim=1)

    def forward(self, qkv):
        q, k, v = self.parts(qkv)
        weight = torch.einsum("bct,bcs->bts", q, k) / q.shape[1] ** 0.5
        return torch.einsum("bts,bcs->bct", weight.softmax(-1), v).reshape(qkv.shape[0], -1, qkv.shape[2])


class QKVAttention(QKVAttentionLegacy):
    """guided-diffusion's QKVAttention: channels are [q, k, v][heads][d]."""

    def parts(self, qkv):
        return [part.reshape(-1, part.shape[1] // self.n_heads, part.shape[2]) for part in qkv.chunk(3, dim=1)]


class ScaleShiftBlock(nn.Module):
    """guided-diffusion's ResBlock with use_scale_shift_norm, which calls parts of its Sequentials."""

    def __init__(self, channels=8):
        super().__init__()
        self.in_layers = nn.Sequential(GroupNorm32(4, channels), SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
        self.out_layers = nn.Sequential(GroupNorm32(4, channels), SiLU(), nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x):
        h = self.in_layers[-1](self.in_layers[:-1](x))
        return x + self.out_layers[1:](self.out_layers[0](h) * 1.5 + 0.5)


def layers(*more, channels=8, **kwargs):
    first, last = (nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, channels), (channels, 4)))
    return randomised(nn.Sequential(first, nn.GroupNorm(4, channels, **kwargs), *more, last))


def randomised(model):
    """Sets parameters to random values for which no layer's output is trivial; returns the model in channels_last."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + 0.1)
    return model.to(memory_format=torch.channels_last)


def image(*sizes, seed=1):
    x = torch.randn(sizes or (2, 3, 6, 5), generator=torch.Generator().manual_seed(seed))
    return x.to(memory_format=torch.channels_last)


def results(model, *inputs):
    """Returns the output "y" and all gradients by name, "x" for the input's."""
    x = inputs[0].detach().requires_grad_()
    y = model(x, *inputs[1:])
    y = y if isinstance(y, torch.Tensor) else y.sample
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.dtype)
    wanted = {"x": x, **dict(model.named_parameters())}
    gradients = torch.autograd.grad(y, list(wanted.values()), dy)
    return {"y": y.detach(), **dict(zip(wanted, gradients))}


def assert_equal_to_the_formula(model, *inputs, dtype=torch.float64):
    """Asserts results of `model`, swapped, against those of an unswapped copy in double precision."""
    exact = copy.deepcopy(model)
    ladder_torch.unswap(exact)
    expected = results(exact.to(dtype), *(each.to(dtype) if each.is_floating_point() else each for each in inputs))
    largest = max(each.norm() for each in expected.values())
    for name, result in results(model, *inputs).items():
        if expected[name].norm() < 1e-9 * largest:  # zero except for rounding, such as the bias of attention's keys
            assert result.norm() < 1e-5 * largest, name
        else:
            assert_near(result, expected[name], name, SUMS)


class Called(TorchDispatchMode):
    """Records the names, without namespace, of the operators called in a `with`."""

    def __enter__(self):
        self.names = []
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name().partition("::")[2])
        return function(*args, **(kwargs or {}))


def called(model, *inputs):
    with torch.no_grad(), Called() as calls:
        model(*inputs)
    return calls.names


def norms(report):
    """Returns the report's rows of GroupNorm and of guided-diffusion's SiLU."""
    return [row for row in report if row["kind"].startswith(("GroupNorm", "SiLU"))]


def types(model):
    return [type(module) for module in model.modules()]


def assert_restored(model, before, *inputs):
    """Asserts that unswap() restores the types and, bit for bit, the results of the copy `before`."""
    ladder_torch.unswap(model)
    assert types(model) == types(before)
    mine, theirs = results(model, *inputs), results(before, *inputs)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
