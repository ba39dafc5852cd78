"""attention_qkv: values, gradients, layouts, refusals, and what PyTorch's tools say of the operators."""

import math

import pytest
import torch
from cases import LAYOUTS, Calls, allowed, results_of

import ladder_torch

FORWARD, BACKWARD = torch.ops.ladder.attention_qkv.default, torch.ops.ladder.attention_qkv_backward.default
ORDERS = ["legacy", "new"]


def drawn(n, t, heads, d, dtype=torch.float32, device="cpu"):
    return torch.randn(n, t, 3 * heads * d).to(dtype).to(device)


def heads_of(x, heads, order):
    """[n, heads, t, d] of o (order None), or of q, k and v."""
    if order is None:
        return x.unflatten(2, (heads, -1)).transpose(1, 2)
    sizes, at = ((heads, 3, -1), 3) if order == "legacy" else ((3, heads, -1), 2)
    return [each.transpose(1, 2) for each in x.unflatten(2, sizes).unbind(at)]


def merged(parts, order):
    return torch.stack([x.transpose(1, 2) for x in parts], 3 if order == "legacy" else 2).flatten(2)


def formula(qkv, heads, order):
    q, k, v = heads_of(qkv, heads, order)
    return ((q @ k.mT / math.sqrt(q.shape[3])).softmax(3) @ v).transpose(1, 2).flatten(2)


def magnitudes(qkv, d_o, heads, order):
    """Of the sums that o and dqkv are made of, without signs, and the largest of q.k / sqrt(d)."""
    q, k, v = heads_of(qkv, heads, order)
    d_o, scale = heads_of(d_o, heads, None).abs(), 1 / math.sqrt(q.shape[3])
    p = (q @ k.mT * scale).softmax(3)
    q, k, v = (each.abs() for each in (q, k, v))
    o = p @ v
    ds = p * (d_o @ v.mT + (d_o * o).sum(3, keepdim=True)) * scale
    scores = (q @ k.mT * scale).amax().item() if qkv.numel() else 0
    return [o.transpose(1, 2).flatten(2), merged([ds @ k, ds.mT @ q, p.mT @ d_o], order)], scores


def check(qkv, heads, order="legacy", tf32=False, layout="contiguous"):
    """|error| <= (6 u + 2 s + (t + d + 16) e) magnitude: u the unit roundoff of the type (of TF32 cut off where it is) for what is
    rounded on the way, p and ds among them, e that of fp32, and s a score's error, (d e + 2 u if TF32) scores."""
    n, t, channels = qkv.shape
    gradient = LAYOUTS[layout](torch.randn(n, t, channels // 3).to(qkv))
    results = results_of(lambda x: ladder_torch.attention_qkv(x, heads, order), [qkv], lambda y: gradient)
    doubles = [qkv.detach().double().cpu(), gradient.double().cpu()]
    exact = results_of(lambda x: formula(x, heads, order), doubles[:1], lambda y: doubles[1])
    sums, scores = magnitudes(*doubles, heads, order)
    fp32, d = torch.finfo(torch.float32).eps / 2, channels // 3 // heads
    unit = 2.0**-10 if tf32 else torch.finfo(qkv.dtype).eps / 2
    relative = 6 * unit + 2 * (d * fp32 + (2 * unit if tf32 else 0)) * scores + (t + d + 16) * fp32
    for name, result, wanted, magnitude in zip(("o", "dqkv"), results, exact, sums):
        assert result.dtype == qkv.dtype and result.is_contiguous()
        error = (result.double().cpu() - wanted).abs()
        limit = relative * magnitude + torch.finfo(qkv.dtype).tiny
        assert (error <= limit).all(), f"{name} of {qkv.shape}: {(error / limit).max():.3g} times what is allowed"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_each_type(device, dtype, order):
    torch.manual_seed(1)
    check(drawn(2, 20, 2, 32, dtype, device), 2, order)


# Kernels take d of 32 and 64 and 1024 tokens; the others are the formula's.
@pytest.mark.parametrize("n, t, heads, d", [(1, 1, 1, 32), (1, 65, 3, 32), (2, 17, 1, 64), (1, 5, 2, 7), (2, 3, 5, 1)])
def test_sizes(device, n, t, heads, d):
    torch.manual_seed(2)
    for dtype in (torch.float32, torch.bfloat16):
        check(drawn(n, t, heads, d, dtype, device), heads)


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_tf32_is_as_pytorch_allows_it(kernels, precision):
    torch.manual_seed(3)
    with allowed(torch.backends.cuda.matmul, precision), Calls() as calls:
        check(drawn(1, 24, 1, 32, device=kernels), 1, tf32=precision == "tf32")
    word = "tf32" if precision == "tf32" else "fp32"
    assert calls.made == {(word, f"attention/{name}"): 1 for name in ("forward", "backward")}


def test_what_no_kernel_takes_is_pytorchs(kernels):
    with Calls() as calls:
        for t, d in ((1025, 32), (3, 16)):
            qkv = drawn(1, t, 1, d, torch.bfloat16, kernels).requires_grad_()
            ladder_torch.attention_qkv(qkv, 1).sum().backward()
            assert qkv.grad.isfinite().all()
    assert calls.made == {}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout):
    torch.manual_seed(4)
    qkv = drawn(2, 6, 2, 32, device=device)
    check(LAYOUTS[layout](qkv), 2)
    check(qkv, 2, layout=layout)


@pytest.mark.parametrize("n, t", [(0, 3), (2, 0)])
def test_nothing_in_is_nothing_out(device, n, t):
    qkv = drawn(n, t, 2, 32, device=device).requires_grad_()
    o = ladder_torch.attention_qkv(qkv, 2)
    assert o.shape == (n, t, 64) and torch.autograd.grad(o.sum(), qkv)[0].shape == qkv.shape


def test_without_gradients_only_the_forward_pass_runs(kernels):
    with Calls() as calls:
        assert not ladder_torch.attention_qkv(drawn(1, 4, 1, 32, torch.bfloat16, kernels), 1).requires_grad
    assert calls.made == {("bf16", "attention/forward"): 1}


@pytest.mark.parametrize("order", ORDERS)
def test_pytorchs_own_checks_of_the_operators(device, order):
    qkv = drawn(2, 5, 2, 32, device=device)
    torch.library.opcheck(FORWARD, (qkv.clone().requires_grad_(), 2, order, True))
    o, lse = FORWARD(qkv, 2, order, True)
    torch.library.opcheck(BACKWARD, (o, qkv, o, lse, 2, order, True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(device, dynamic):
    torch._dynamo.reset()

    def f(x):
        return ladder_torch.attention_qkv(x * 2, 2) + 1

    compiled = torch.compile(f, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for t in (5, 6):
        x = drawn(2, t, 2, 32, device=device).requires_grad_()
        outcomes = []
        for run in (compiled, f):
            y = run(x)
            outcomes.append([y, *torch.autograd.grad(y.square().sum(), x)])
        assert all(torch.equal(*pair) and pair[0].stride() == pair[1].stride() for pair in zip(*outcomes))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype):
    qkv = drawn(2, 5, 2, 32, device=device).requires_grad_()
    with torch.autocast(device, dtype=dtype):
        o = ladder_torch.attention_qkv(qkv, 2)
        raw, _ = FORWARD(qkv, 2, "legacy", False)
        within = torch.autograd.grad(o.sum(), qkv, retain_graph=True)[0]
    assert o.dtype == raw.dtype == dtype and torch.equal(o, ladder_torch.attention_qkv(qkv.to(dtype), 2))
    assert within.dtype == torch.float32 and torch.equal(within, torch.autograd.grad(o.sum(), qkv)[0])


def test_a_second_derivative_is_refused_by_name(device):
    qkv = drawn(2, 5, 2, 32, device=device).requires_grad_()
    gradient = torch.autograd.grad(ladder_torch.attention_qkv(qkv, 2).square().sum(), qkv, create_graph=True)
    with pytest.raises(RuntimeError, match="ladder::attention_qkv has no second derivative"):
        gradient[0].sum().backward()


@pytest.mark.parametrize(
    "error, words, change",
    [
        (ValueError, "no order 'other'; there are legacy, .* and new", {"order": "other"}),
        (ValueError, r"qkv is \(5, 192\), and \(n, tokens, 3 channels\)", {"qkv": torch.ones(5, 192)}),
        (ValueError, "192 channels for q, k and v of 5 heads", {"heads": 5}),
        (ValueError, "192 channels for q, k and v of 0 heads", {"heads": 0}),
        (ValueError, "0 channels for q, k and v of 2 heads", {"qkv": torch.ones(2, 5, 0)}),
        (TypeError, "qkv is torch.int32", {"qkv": torch.ones(2, 5, 192, dtype=torch.int32)}),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(error, words, change):
    with pytest.raises(error, match=f"^attention_qkv: {words}"):
        ladder_torch.attention_qkv(**{"qkv": torch.ones(2, 5, 192), "heads": 2, **change})
