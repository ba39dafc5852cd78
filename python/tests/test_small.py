"""silu, avg_pool2x2, upsample2x, timestep_embedding: values, gradients, layouts, refusals, PyTorch's checks of
operators."""

import math

import pytest
import torch
from cases import LAYOUTS, Calls, assert_multilinear, assert_within, drawn, results_of
from torch.nn import functional

import ladder_torch

OPS = torch.ops.ladder
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SIZES = [(1, 1, 2, 2), (2, 40, 4, 6), (3, 5, 2, 4), (2, 33, 4, 2)]
RESAMPLED = {
    "avg_pool2x2": (ladder_torch.avg_pool2x2, lambda x: functional.avg_pool2d(x, 2)),
    "upsample2x": (ladder_torch.upsample2x, lambda x: functional.interpolate(x, scale_factor=2, mode="nearest")),
}
SMALL = {"silu": ladder_torch.silu, **{name: both[0] for name, both in RESAMPLED.items()}}


@pytest.mark.parametrize("name", RESAMPLED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_resampling(device, name, dtype):
    torch.manual_seed(1)
    for sizes in SIZES:
        assert_multilinear(*RESAMPLED[name], [drawn(*sizes, dtype=dtype, device=device)], (4, 4))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_of_every_layout(device, name, layout):
    torch.manual_seed(2)
    x = drawn(2, 6, 4, 2, device=device)
    assert_multilinear(*RESAMPLED[name], [LAYOUTS[layout](x)], (4, 4))
    assert_multilinear(*RESAMPLED[name], [x], (4, 4), layout=layout)
    assert RESAMPLED[name][0](LAYOUTS[layout](x)).is_contiguous(memory_format=torch.channels_last)


def test_pooling_of_odd_sizes_is_pytorchs(device):
    for sizes in ((2, 3, 5, 4), (2, 3, 2, 7)):
        assert_multilinear(*RESAMPLED["avg_pool2x2"], [drawn(*sizes, device=device)], (4, 4))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_silu(device, dtype, layout):
    torch.manual_seed(3)
    for sizes in ((), (1,), (7,), (3, 40), (2, 5, 3), (2, 16, 3, 5), (1, 3, 1, 1, 2)):
        x = drawn(*sizes, dtype=dtype, device=device).mul(4)
        x = LAYOUTS[layout](x) if x.dim() > 1 else x
        dy = drawn(*sizes, dtype=dtype, device=device)
        y, dx = results_of(ladder_torch.silu, [x], lambda y, dy=dy: dy)
        exact, slope = results_of(functional.silu, [x.double().cpu()], torch.ones_like)
        sigmoid = x.double().cpu().sigmoid()
        # The slope s + x s (1 - s) is a difference where x < 0.
        terms = sigmoid + x.double().cpu().abs() * sigmoid * (1 - sigmoid)
        assert_within(y, exact, exact.abs(), 16, name=f"y of {sizes}")
        assert_within(dx, slope * dy.double().cpu(), (terms * dy.double().cpu()).abs(), 16, name=f"dx of {sizes}")
        assert y.dtype == dx.dtype == dtype and y.stride() == dx.stride()
        assert y.stride() == x.stride() or not x.is_contiguous()


@pytest.mark.parametrize("t_dtype", [torch.int32, torch.int64, torch.float32, torch.float16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_timestep_embedding(device, t_dtype, dtype):
    for n, dim in ((1, 1), (2, 2), (5, 33), (9, 64)):
        t = torch.linspace(0, 999, n).to(t_dtype).to(device)
        y = ladder_torch.timestep_embedding(t, dim, dtype=dtype)
        half = dim // 2
        angles = t.double().cpu()[:, None] * torch.exp(-math.log(10000) * torch.arange(half) / max(half, 1))
        exact = torch.cat([angles.cos(), angles.sin(), torch.zeros(n, dim % 2)], 1)
        # The angle's roundings, of a logarithm up to 9.2 among them, and the result's.
        limit = torch.cat([angles, angles, torch.zeros(n, dim % 2)], 1) * 32 * 2.0**-24
        error = (y.double().cpu() - exact).abs()
        assert y.dtype == dtype and (error <= limit + torch.finfo(dtype).eps * exact.abs() + 2.0**-23).all()


def test_timestep_embedding_has_a_gradient(device):
    t = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    ladder_torch.timestep_embedding(t, 2).sum().backward()
    torch.testing.assert_close(t.grad, t.detach().cos() - t.detach().sin())


def test_kernels_run(kernels):
    x = drawn(2, 8, 4, 4, dtype=torch.bfloat16, device=kernels).requires_grad_()
    for name, passes in (("silu", ("silu/forward", "silu/backward")),
                         ("avg_pool2x2", ("resample/pool", "resample/pool_backward")),
                         ("upsample2x", ("resample/upsample", "resample/upsample_backward"))):  # fmt: skip
        with Calls() as calls:
            SMALL[name](x).sum().backward()
        assert calls.made == {("bf16", each): 1 for each in passes}
    with Calls() as calls:
        for dtype in (torch.int64, torch.int32):
            ladder_torch.timestep_embedding(torch.ones(3, dtype=dtype, device=kernels), 8)
    assert calls.made == {("fp32", "embedding/timestep"): 2}


@pytest.mark.parametrize("name", SMALL)
def test_nothing_in_is_nothing_out(device, name):
    for sizes in ((0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 0, 4)):
        x = torch.empty(sizes, device=device, requires_grad=True)
        y = SMALL[name](x)
        assert y.numel() == 0 and torch.autograd.grad(y.sum(), x)[0].shape == x.shape
    assert ladder_torch.timestep_embedding(torch.empty(0, device=device), 4).shape == (0, 4)


def test_pytorchs_own_checks_of_the_operators(device):
    x = drawn(2, 6, 4, 2, device=device)
    for name in SMALL:
        operator, backward = getattr(OPS, name).default, getattr(OPS, f"{name}_backward").default
        for given in (x, x.contiguous()):
            torch.library.opcheck(operator, (given.clone().requires_grad_(),))
        torch.library.opcheck(backward, (operator(x), x) if name == "silu" else (operator(x),))
    torch.library.opcheck(OPS.timestep_embedding.default, (torch.arange(3, device=device), 5, torch.bfloat16))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(device, dynamic):
    torch._dynamo.reset()

    def f(x, t):
        y = ladder_torch.upsample2x(ladder_torch.silu(ladder_torch.avg_pool2x2(x)))
        return y + ladder_torch.timestep_embedding(t, 8, dtype=x.dtype)[:, :, None, None]

    compiled = torch.compile(f, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (2, 4):
        x, t = drawn(2, 8, rows, 6, device=device).requires_grad_(), torch.tensor([3, 999], device=device)
        assert torch.equal(compiled(x, t), f(x, t))
        mine, theirs = (torch.autograd.grad(each(x, t).square().sum(), x)[0] for each in (compiled, f))
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()


@pytest.mark.parametrize("name", SMALL)
def test_a_second_derivative_is_refused_by_name(device, name):
    x = drawn(2, 8, 2, 2, device=device).requires_grad_()
    gradient = torch.autograd.grad(SMALL[name](x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=f"ladder::{name} has no second derivative"):
        gradient[0].sum().backward()


@pytest.mark.parametrize(
    "error, words, call",
    [
        (TypeError, "silu: x is torch.int64", lambda: ladder_torch.silu(torch.arange(3))),
        (TypeError, "upsample2x: x is torch.bool", lambda: ladder_torch.upsample2x(torch.ones(1, 1, 2, 2) > 0)),
        (
            ValueError,
            r"avg_pool2x2: x is \(3, 4\), and \(n, channels, h, w\)",
            lambda: ladder_torch.avg_pool2x2(torch.ones(3, 4)),
        ),
        (ValueError, r"t is \(1, 1\), and \(n,\)", lambda: ladder_torch.timestep_embedding(torch.ones(1, 1), 4)),
        (ValueError, "dim is 0", lambda: ladder_torch.timestep_embedding(torch.ones(1), 0)),
        (TypeError, "t is torch.complex64", lambda: ladder_torch.timestep_embedding(torch.ones(1) * 1j, 4)),
        (TypeError, "dtype is torch.int32", lambda: ladder_torch.timestep_embedding(torch.ones(1), 4, torch.int32)),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(error, words, call):
    with pytest.raises(error, match=words):
        call()
