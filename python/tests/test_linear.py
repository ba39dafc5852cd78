"""linear, conv2d_1x1 and Linear: values, gradients, layouts, refusals, and PyTorch's checks of the operators."""

import copy
import math

import pytest
import torch
from cases import LAYOUTS, Calls, allowed, assert_compiled_alike, assert_multilinear, assert_within, drawn, results_of
from torch.nn import functional

import ladder_torch

FORWARD, DGRAD, WGRAD = (getattr(torch.ops.ladder, f"linear{of}").default for of in ("", "_dgrad", "_wgrad"))


def formula(x, w, bias=None, residual=None):
    y = functional.linear(x, w, bias)
    return y if residual is None else y + residual


def check(x, w, bias=None, residual=None, **more):
    rows = math.prod(x.shape[:-1])
    lengths = [x.shape[-1] + 2, w.shape[0], rows, *[rows] * (bias is not None), 1]
    assert_multilinear(ladder_torch.linear, formula, (x, w, bias, residual), lengths, **more)


def operands(*leading, k, n, dtype=torch.float32, device="cpu", bias_dtype=None):
    return (torch.randn(*leading, k).to(dtype).to(device), drawn(n, k, dtype=dtype, device=device),
            drawn(n, dtype=bias_dtype or dtype, device=device), torch.randn(*leading, n).to(dtype).to(device))  # fmt: skip


@pytest.mark.parametrize("bias", [torch.float32, torch.bfloat16, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_each_type(device, dtype, bias):
    torch.manual_seed(1)
    x, w, b, residual = operands(10, 5, k=24, n=16, dtype=dtype, device=device, bias_dtype=bias)
    check(x, w, b if bias else None, residual)
    check(x, w, b if bias else None)


def test_a_16_bit_bias_is_not_cast(kernels):
    for bias_dtype, word in ((torch.bfloat16, True), (torch.float32, False)):
        check(*operands(9, k=24, n=40, dtype=torch.bfloat16, device=kernels, bias_dtype=bias_dtype)[:3])
        lines = [each["problem"] for each in ladder_torch.explain() if "m9 n40 k24 bias" in each["problem"]]
        assert ["params16" in line for line in lines[-2:]] == [word, word], lines


@pytest.mark.parametrize("sizes", [((), 3, 5), ((1,), 1, 1), ((7,), 40, 3), ((2, 3, 4), 33, 17), ((65,), 8, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sizes(device, dtype, sizes):
    torch.manual_seed(2)
    leading, k, n = sizes
    check(*operands(*leading, k=k, n=n, dtype=dtype, device=device))


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_tf32_is_as_pytorch_allows_it(kernels, precision):
    torch.manual_seed(3)
    word = "tf32" if precision == "tf32" else "fp32"
    with allowed(torch.backends.cuda.matmul, precision), Calls() as calls:
        check(*operands(9, k=16, n=8, device=kernels), tf32=precision == "tf32")
    assert calls.made == {(word, f"gemm/{name}"): 1 for name in ("fprop", "dgrad", "wgrad")}
    x, w = drawn(1, 8, 3, 3, device=kernels), drawn(6, 8, 1, 1, device=kernels)
    with allowed(torch.backends.cudnn.conv, precision), Calls() as calls:
        ladder_torch.conv2d_1x1(x, w)
    assert calls.made == {(word, "gemm/fprop"): 1}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout):
    torch.manual_seed(4)
    x, w, bias, residual = operands(3, 7, k=6, n=10, dtype=torch.bfloat16, device=device)
    check(LAYOUTS[layout](x), w, bias, residual)
    check(x, LAYOUTS[layout](w), bias, LAYOUTS[layout](residual))
    check(x, w, bias, residual, layout=layout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_silu_with_and_without_gradients(device, dtype):
    torch.manual_seed(5)
    inputs = operands(4, k=16, n=64, dtype=dtype, device=device)
    doubles = [each.double().cpu() for each in inputs]
    z, magnitude = formula(*doubles), formula(*(each.abs() for each in doubles))
    y = ladder_torch.linear(*inputs, activation="silu")
    # silu's slope is at most 1.1.
    assert_within(y, functional.silu(z), 1.1 * magnitude, 32)
    results = results_of(lambda *each: ladder_torch.linear(*each, activation="silu"), inputs, torch.ones_like)
    expected = results_of(lambda *each: functional.silu(formula(*each)), doubles, torch.ones_like)
    for result, exact in zip(results, expected):
        bound = 8 * torch.finfo(dtype).eps * exact.abs().max() + 1e-5  # z, its slope and the product are rounded
        assert ((result.double().cpu() - exact).abs() <= bound).all()


def test_the_kernels_epilogue_has_silu_where_nothing_is_differentiated(kernels):
    x, w, bias, _ = operands(4, k=16, n=8, dtype=torch.bfloat16, device=kernels)
    with Calls() as calls:
        ladder_torch.linear(x, w, bias, activation="silu")
    assert calls.made == {("bf16", "gemm/fprop"): 1}
    with Calls() as calls:
        ladder_torch.linear(x, w.requires_grad_(), bias, activation="silu").sum().backward()
    passes = ("gemm/fprop", "silu/forward", "silu/backward", "gemm/wgrad")
    assert calls.made == {("bf16", each): 1 for each in passes}
    with pytest.raises(RuntimeError, match="silu is an operator of its own"):
        FORWARD(x, w, bias, None, "silu", False)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias", [True, False])
def test_1x1_convolutions(device, bias, layout):
    torch.manual_seed(6)
    x, w, b = (drawn(*sizes, device=device) for sizes in ((2, 6, 3, 5), (10, 6, 1, 1), (10,)))
    with allowed(torch.backends.cudnn.conv, "ieee"):
        inputs = (LAYOUTS[layout](x), w, b if bias else None)
        assert_multilinear(ladder_torch.conv2d_1x1, functional.conv2d, inputs, [7, 10, 30, 30], layout=layout)
    assert ladder_torch.conv2d_1x1(x, w).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("leading, k, n", [((0,), 3, 5), ((2, 0), 3, 5), ((2,), 0, 5), ((2,), 3, 0)])
def test_nothing_in_is_nothing_out(device, leading, k, n):
    inputs = [each.requires_grad_() for each in operands(*leading, k=k, n=n, device=device)]
    y = ladder_torch.linear(*inputs)
    gradients = torch.autograd.grad(y.sum(), inputs)
    assert y.shape == (*leading, n) and [each.shape for each in gradients] == [each.shape for each in inputs]
    assert not gradients[1].any() and (gradients[2] == math.prod(leading)).all()
    if k == 0:
        assert torch.equal(y, inputs[2] + inputs[3])


def test_only_the_gradients_that_are_needed_are_computed(kernels):
    for needed, passes in enumerate(({"gemm/dgrad"}, {"gemm/wgrad"}, set(), set())):
        inputs = operands(4, k=8, n=16, dtype=torch.bfloat16, device=kernels)
        inputs[needed].requires_grad_()
        with Calls() as calls:
            ladder_torch.linear(*inputs).sum().backward()
        assert [each.grad is None for each in inputs] == [i != needed for i in range(4)]
        assert {name for _, name in calls.made} == {"gemm/fprop"} | passes


def test_pytorchs_own_checks_of_the_operators(device):
    x, w, bias, residual = operands(2, 3, k=8, n=6, device=device)
    for more in ((bias, residual), (None, None)):
        inputs = [each if each is None else each.clone().requires_grad_() for each in (x, w, *more)]
        torch.library.opcheck(FORWARD, (*inputs, "identity", True))
        torch.library.opcheck(FORWARD, (x, w, *more, "silu", False))
        torch.library.opcheck(WGRAD, (residual, x, more[0], True))
    torch.library.opcheck(DGRAD, (residual, w, True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(device, dynamic):
    module, w = ladder_torch.Linear(8, 6).to(device), drawn(6, 6, 1, 1, device=device)

    def f(x):
        y = ladder_torch.linear(module(x * 2), w.flatten(1), activation="silu") + 1
        return ladder_torch.conv2d_1x1(y.movedim(-1, 1), w)

    assert_compiled_alike(f, module, 2, None, 5, 8, dynamic=dynamic, channels_last=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype):
    torch._dynamo.reset()
    module, x = ladder_torch.Linear(8, 6).to(device), torch.randn(5, 8, device=device, requires_grad=True)
    residual = torch.randn(5, 6, device=device)
    for run in (module, torch.compile(module, fullgraph=True, backend="aot_eager")):
        with torch.autocast(device, dtype=dtype):
            y = run(x)
        assert torch.equal(y, ladder_torch.linear(x.to(dtype), module.weight.to(dtype), module.bias))
        gradients = torch.autograd.grad(y.sum(), (x, *module.parameters()))
        assert [each.dtype for each in gradients] == [torch.float32] * 3
    with torch.autocast(device, dtype=dtype):
        assert ladder_torch.linear(x.to(dtype), module.weight, module.bias, residual).dtype == dtype
        assert FORWARD(x, module.weight, module.bias, residual, "identity", False).dtype == dtype


def test_a_second_derivative_is_refused_by_name(device):
    inputs = [each.requires_grad_() for each in operands(2, k=8, n=3, device=device)]
    for of in inputs[:2]:
        gradient = torch.autograd.grad(ladder_torch.linear(*inputs).square().sum(), of, create_graph=True)
        with pytest.raises(RuntimeError, match="ladder::linear has no second derivative"):
            gradient[0].sum().backward()


@pytest.mark.parametrize(
    "error, words, change",
    [
        (ValueError, "no activation 'relu'; there are identity, silu", {"activation": "relu"}),
        (ValueError, r"x is \(\), and \(..., features\)", {"x": torch.ones(())}),
        (ValueError, r"w is \(6, 4\) and x \(2, 8\): \(6, 8\)", {"w": torch.ones(6, 4)}),
        (ValueError, r"bias is \(8,\) and x \(2, 8\): \(6,\)", {"bias": torch.ones(8)}),
        (ValueError, r"residual is \(6,\) and x \(2, 8\): \(2, 6\)", {"residual": torch.ones(6)}),
        (ValueError, "w is on meta and x on cpu", {"w": torch.ones(6, 8, device="meta")}),
        (TypeError, "x is torch.int32", {"x": torch.ones(2, 8, dtype=torch.int32)}),
        (TypeError, "w is torch.float16 and x torch.float32", {"w": torch.ones(6, 8, dtype=torch.float16)}),
        (TypeError, "residual is torch.float64 and x", {"residual": torch.ones(2, 6, dtype=torch.float64)}),
        (TypeError, "bias is torch.int64", {"bias": torch.ones(6, dtype=torch.int64)}),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(error, words, change):
    given = {"x": torch.ones(2, 8), "w": torch.ones(6, 8), "bias": torch.ones(6), **change}
    with pytest.raises(error, match=f"^linear: .*{words}"):
        ladder_torch.linear(**given)


def test_what_is_wrong_with_a_1x1_convolution():
    x = torch.ones(2, 8, 3, 3)
    with pytest.raises(ValueError, match=r"conv2d_1x1: w is \(6, 8, 3, 3\) and x \(2, 8, 3, 3\): \(6, 8, 1, 1\)"):
        ladder_torch.conv2d_1x1(x, torch.ones(6, 8, 3, 3))
    with pytest.raises(ValueError, match=r"conv2d_1x1: x is \(8, 3, 3\)"):
        ladder_torch.conv2d_1x1(x[0], torch.ones(6, 8, 1, 1))


def test_the_module_stands_in_for_pytorchs(device):
    for bias in (True, False):
        theirs, ours = torch.nn.Linear(8, 6, bias).to(device), ladder_torch.Linear(8, 6, bias).to(device)
        ours.load_state_dict(theirs.state_dict(), strict=True)
        theirs.load_state_dict(ours.state_dict(), strict=True)
        x = torch.randn(2, 3, 8, device=device)
        for module in (ours, copy.deepcopy(ours), ours.double()):
            torch.testing.assert_close(module(x.to(module.weight.dtype)).float(), theirs(x))
