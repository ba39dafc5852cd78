"""attention_qkv and attention: values, gradients, layouts, refusals, and PyTorch's checks of the operators."""

import math

import pytest
import torch
from cases import LAYOUTS, Calls, allowed, results_of

import ladder_torch

FORWARD, BACKWARD = torch.ops.ladder.attention_qkv.default, torch.ops.ladder.attention_qkv_backward.default
SEPARATE, SEPARATE_BACKWARD = torch.ops.ladder.attention.default, torch.ops.ladder.attention_backward.default
ORDERS = ["legacy", "new"]


def drawn(n, t, heads, d, dtype=torch.float32, device="cpu"):
    return torch.randn(n, t, 3 * heads * d).to(dtype).to(device)


def parts_of(qkv, heads, order):
    """Returns q, k and v [n, heads, t, d]."""
    sizes, at = ((heads, 3, -1), 3) if order == "legacy" else ((3, heads, -1), 2)
    return [each.transpose(1, 2) for each in qkv.unflatten(2, sizes).unbind(at)]


def formula(q, k, v):
    return (q @ k.mT / math.sqrt(q.shape[3])).softmax(3) @ v


def magnitudes(q, k, v, d_o):
    """Returns the sums of o, dq, dk and dv over absolute values of their terms, and the largest |q|.|k| / sqrt(d)."""
    scale = 1 / math.sqrt(q.shape[3])
    p = (q @ k.mT * scale).softmax(3)
    q, k, v, d_o = (each.abs() for each in (q, k, v, d_o))
    o = p @ v
    ds = p * (d_o @ v.mT + (d_o * o).sum(3, keepdim=True)) * scale
    return [o, ds @ k, ds.mT @ q, p.mT @ d_o], (q @ k.mT * scale).amax().item()


def assert_attention(o, gradients, q, k, v, d_o, tf32=False):
    """Asserts |error| <= (6 u + 2 s + (t + d + 16) e) magnitude, for tensors [n, heads, t, d].

    u is the unit roundoff of the type (for TF32 that of truncation), for intermediate values such as p and ds; e is
    that of fp32; s is a score's error, (d e + 2 u if TF32) scores."""
    doubles = [each.detach().double().cpu() for each in (q, k, v, d_o)]
    exact = results_of(formula, doubles[:3], lambda y: doubles[3])
    sums, scores = magnitudes(*doubles)
    (t, d), fp32 = q.shape[2:], torch.finfo(torch.float32).eps / 2
    unit = 2.0**-10 if tf32 else torch.finfo(q.dtype).eps / 2
    relative = 6 * unit + 2 * (d * fp32 + (2 * unit if tf32 else 0)) * scores + (t + d + 16) * fp32
    for name, result, wanted, magnitude in zip(("o", "dq", "dk", "dv"), [o, *gradients], exact, sums):
        assert result.dtype == q.dtype
        error = (result.double().cpu() - wanted).abs()
        limit = relative * magnitude + torch.finfo(q.dtype).tiny
        assert (error <= limit).all(), f"{name} of {q.shape}: {(error / limit).max():.3g} times what is allowed"


def check(qkv, heads, order="legacy", tf32=False, layout="contiguous"):
    n, t, channels = qkv.shape
    d_o = LAYOUTS[layout](torch.randn(n, t, channels // 3).to(qkv))
    o, dqkv = results_of(lambda x: ladder_torch.attention_qkv(x, heads, order), [qkv], lambda y: d_o)
    assert o.is_contiguous() and dqkv.is_contiguous()
    o, d_o = (each.unflatten(2, (heads, -1)).transpose(1, 2) for each in (o, d_o))
    assert_attention(o, parts_of(dqkv, heads, order), *parts_of(qkv, heads, order), d_o, tf32)


def check_separate(q, k, v, d_o=None):
    d_o = torch.randn_like(q) if d_o is None else d_o
    o, *gradients = results_of(ladder_torch.attention, (q, k, v), lambda y: d_o)
    assert_attention(o, gradients, q, k, v, d_o)


# Layouts of [n, heads, t, d]: contiguous; [n, t, heads, d]; a view into a projection; layouts that must be copied.
VIEWS = {
    "heads outside": lambda x: x.contiguous(),
    "tokens outside": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "of a projection": lambda x: torch.cat([x, x, x], 3).transpose(1, 2).contiguous().transpose(1, 2)[..., 32:64],
    "expanded": lambda x: x[:, :1].expand(x.shape),
    "odd address": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "odd rows": lambda x: torch.cat([x, x[..., :1]], 3)[..., :-1],
    "d outside": lambda x: x.mT.contiguous().mT,
    "one token": lambda x: x[:, :, :1].expand(x.shape),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_each_type(device, dtype, order):
    torch.manual_seed(1)
    check(drawn(2, 20, 2, 32, dtype, device), 2, order)


# Kernels take d of 32 and 64 and up to 1024 tokens; the formula computes other sizes.
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


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_separate_tensors_as_they_lie(device, dtype, view):
    torch.manual_seed(5)
    q, k, v, d_o = (torch.randn(2, 3, 20, 32).to(dtype).to(device) for _ in range(4))
    for at in range(4):
        given = [VIEWS[view](x) if i == at else x for i, x in enumerate((q, k, v, d_o))]
        check_separate(*given)


@pytest.mark.parametrize("n, t, heads, d", [(1, 1, 1, 32), (1, 33, 2, 64), (2, 5, 2, 7)])
def test_sizes_of_separate_tensors(device, n, t, heads, d):
    torch.manual_seed(6)
    for dtype in (torch.float32, torch.float16, torch.float64):
        check_separate(*(torch.randn(n, heads, t, d).to(dtype).to(device) for _ in range(3)))


def test_what_kernels_can_load_is_not_copied(kernels):
    q, k, v = (torch.randn(2, 3, 20, 32).bfloat16().to(kernels) for _ in range(3))
    lying = {"heads outside": "q_head640 q_token32", "of a projection": "q_image5760 q_head96 q_token288"}
    for view, strides in lying.items():
        ladder_torch.attention(VIEWS[view](q), VIEWS["tokens outside"](k), VIEWS["tokens outside"](v))
        problems = [row["problem"] for row in ladder_torch.explain()]
        assert f"n2 t20 heads3 d32 separate {strides} bf16" in problems


@pytest.mark.parametrize("n, t", [(0, 3), (2, 0)])
def test_nothing_in_is_nothing_out(device, n, t):
    qkv = drawn(n, t, 2, 32, device=device).requires_grad_()
    o = ladder_torch.attention_qkv(qkv, 2)
    assert o.shape == (n, t, 64) and torch.autograd.grad(o.sum(), qkv)[0].shape == qkv.shape
    q = torch.empty(n, 2, t, 32, device=device)
    assert ladder_torch.attention(q, q, q).shape == q.shape


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


def test_pytorchs_own_checks_of_the_operators_of_separate_tensors(device):
    for d in (32, 8):
        q, k, v = (torch.randn(2, 5, 3, d, device=device) for _ in range(3))
        torch.library.opcheck(SEPARATE, [each.clone().requires_grad_() for each in (q, k, v)] + [True])
        o, lse = SEPARATE(q, k, v, True)
        torch.library.opcheck(SEPARATE_BACKWARD, (o, q, k, v, o, lse, True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(device, dynamic):
    torch._dynamo.reset()

    def f(x):
        o = ladder_torch.attention_qkv(x * 2, 2).unflatten(2, (2, -1)).transpose(1, 2)
        return ladder_torch.attention(o, o + 1, o * 2) + 1

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


@pytest.mark.parametrize(
    "error, words, change",
    [
        (ValueError, r"q is \(5, 64\), and \(n, heads, tokens, d\)", {"q": torch.ones(5, 64)}),
        (ValueError, r"k is \(2, 1, 7, 32\) and q \(2, 1, 5, 32\)", {"k": torch.ones(2, 1, 7, 32)}),
        (TypeError, "v is torch.float64 and q torch.float32", {"v": torch.ones(2, 1, 5, 32, dtype=torch.float64)}),
        (TypeError, "q is torch.int64", {"q": torch.ones(2, 1, 5, 32, dtype=torch.int64)}),
    ],
)
def test_what_is_wrong_with_separate_tensors(error, words, change):
    with pytest.raises(error, match=f"^attention: {words}"):
        ladder_torch.attention(**{name: torch.ones(2, 1, 5, 32) for name in "qkv"} | change)
