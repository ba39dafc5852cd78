"""conv2d_3x3 and its module: values, gradients, layouts, refusals, and PyTorch's checks of the operators."""

import copy

import pytest
import torch
from cases import LAYOUTS, Calls, allowed, assert_compiled_alike, assert_multilinear, drawn
from torch.nn import functional

import ladder_torch

FORWARD, DGRAD, WGRAD = (getattr(torch.ops.ladder, f"conv2d_3x3{of}").default for of in ("", "_dgrad", "_wgrad"))


def formula(x, w, bias=None):
    return functional.conv2d(x, w, bias, padding=1)


def check(x, w, bias=None, tf32=True, **more):
    n, c, rows, columns = x.shape
    pixels = n * rows * columns
    lengths = [9 * c + 1, 9 * w.shape[0], pixels, pixels]
    tf32 = tf32 and x.dtype == torch.float32
    assert_multilinear(ladder_torch.conv2d_3x3, formula, (x, w, bias), lengths, tf32=tf32, **more)


def operands(n, c, h, w, k, dtype=torch.float32, device="cpu", bias_dtype=None):
    return (drawn(n, c, h, w, dtype=dtype, device=device), drawn(k, c, 3, 3, dtype=dtype, device=device),
            drawn(k, dtype=bias_dtype or dtype, device=device))  # fmt: skip


@pytest.mark.parametrize("bias", [torch.float32, torch.bfloat16, torch.float64, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_each_type(device, dtype, bias):
    torch.manual_seed(1)
    x, w, b = operands(2, 16, 6, 5, 24, dtype, device, bias)
    check(x, w, b if bias else None)


@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 1, 1), (2, 40, 1, 1, 3), (1, 3, 5, 7, 40), (3, 5, 1, 4, 7), (2, 33, 4, 3, 17), (1, 32, 8, 8, 32)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sizes(device, dtype, sizes):
    torch.manual_seed(2)
    check(*operands(*sizes, dtype, device))


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_tf32_is_as_pytorch_allows_it(kernels, precision):
    torch.manual_seed(3)
    with allowed(torch.backends.cudnn.conv, precision), Calls() as calls:
        check(*operands(1, 8, 4, 4, 8, device=kernels), tf32=precision == "tf32")
    word = "tf32" if precision == "tf32" else "fp32"
    assert calls.made == {(word, f"conv3x3/{name}"): 1 for name in ("fprop", "dgrad", "wgrad")}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout):
    torch.manual_seed(4)
    x, w, bias = operands(2, 6, 3, 5, 10, torch.bfloat16, device)
    check(LAYOUTS[layout](x), w, bias)
    check(x, LAYOUTS[layout](w), bias)
    check(x, w, bias, layout=layout)


def test_a_16_bit_bias_is_not_cast(kernels):
    for bias_dtype, word in ((torch.bfloat16, True), (torch.float32, False)):
        check(*operands(2, 16, 3, 3, 40, torch.bfloat16, kernels, bias_dtype))
        lines = [each["problem"] for each in ladder_torch.explain() if "h3 w3 c16 k40 bias" in each["problem"]]
        assert ["params16" in line for line in lines[-2:]] == [word, word], lines


def test_gradients_lie_as_pytorchs_do(device):
    x, w, bias = operands(2, 6, 3, 5, 10, device=device)
    for weight in (w, w.contiguous()):
        weight.requires_grad_()
        y = ladder_torch.conv2d_3x3(x.requires_grad_(), weight, bias)
        dx, dw = torch.autograd.grad(y.sum(), (x, weight))
        assert y.is_contiguous(memory_format=torch.channels_last) and dx.stride() == x.stride()
        assert dw.stride() == weight.stride()


@pytest.mark.parametrize("sizes", [(0, 3, 4, 4, 5), (2, 3, 0, 4, 5), (2, 0, 4, 4, 5), (2, 3, 4, 4, 0)])
def test_nothing_in_is_nothing_out(device, sizes):
    x, w, bias = (each.requires_grad_() for each in operands(*sizes, device=device))
    y = ladder_torch.conv2d_3x3(x, w, bias)
    gradients = torch.autograd.grad(y.sum(), (x, w, bias))
    assert torch.equal(y, bias.reshape(1, -1, 1, 1).expand(y.shape)) and y.shape == (sizes[0], sizes[4], *sizes[2:4])
    assert [each.shape for each in gradients] == [x.shape, w.shape, bias.shape]
    assert not any(each.any() for each in gradients[:2]) and (gradients[2] == sizes[0] * sizes[2] * sizes[3]).all()


def test_only_the_gradients_that_are_needed_are_computed(kernels):
    passes = {0: "conv3x3/dgrad", 1: "conv3x3/wgrad", 2: None}
    for needed in range(3):
        inputs = operands(2, 8, 3, 3, 8, torch.bfloat16, kernels)
        inputs[needed].requires_grad_()
        with Calls() as calls:
            ladder_torch.conv2d_3x3(*inputs).sum().backward()
        assert [each.grad is None for each in inputs] == [i != needed for i in range(3)]
        assert {name for _, name in calls.made} == {"conv3x3/fprop", passes[needed]} - {None}


def test_pytorchs_own_checks_of_the_operators(device):
    for memory_format in (torch.channels_last, torch.contiguous_format):
        x, w, bias = operands(2, 8, 3, 5, 6, device=device)
        w = w.contiguous(memory_format=memory_format)
        for more in (bias, None):
            inputs = [each if each is None else each.clone().requires_grad_() for each in (x, w, more)]
            torch.library.opcheck(FORWARD, (*inputs, True))
            torch.library.opcheck(WGRAD, (FORWARD(x, w, bias, True), x, w, more, True))
        torch.library.opcheck(DGRAD, (FORWARD(x, w, bias, True), w, True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(device, dynamic):
    module = ladder_torch.Conv2d3x3(8, 6).to(device)
    assert_compiled_alike(lambda x: module(x * 2) + 1, module, 2, 8, None, 5, dynamic=dynamic)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype):
    torch._dynamo.reset()
    module = ladder_torch.Conv2d3x3(8, 6).to(device)
    x = drawn(2, 8, 3, 5, device=device).requires_grad_()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for run in (module, compiled):
        with torch.autocast(device, dtype=dtype):
            for given in (x, x.to(dtype)):
                y = run(given)
                assert y.dtype == dtype
        gradients = torch.autograd.grad(y.sum(), (x, *module.parameters()))
        assert [each.dtype for each in gradients] == [torch.float32] * 3
        expected = ladder_torch.conv2d_3x3(x.to(dtype), module.weight.to(dtype), module.bias)
        assert torch.equal(y, expected)


def test_a_second_derivative_is_refused_by_name(device):
    x, w, bias = (each.requires_grad_() for each in operands(2, 8, 3, 3, 8, device=device))
    for of in (x, w):
        y = ladder_torch.conv2d_3x3(x, w, bias)
        gradient = torch.autograd.grad(y.square().sum(), of, create_graph=True)
        with pytest.raises(RuntimeError, match="ladder::conv2d_3x3 has no second derivative"):
            gradient[0].sum().backward()


@pytest.mark.parametrize(
    "error, words, change",
    [
        (ValueError, r"x is \(8, 3, 3\), and \(n, channels, h, w\)", {"x": torch.ones(8, 3, 3)}),
        (ValueError, r"w is \(6, 4, 3, 3\) and x \(2, 8, 5, 5\): \(6, 8, 3, 3\)", {"w": torch.ones(6, 4, 3, 3)}),
        (ValueError, r"w is \(6, 8, 5, 5\)", {"w": torch.ones(6, 8, 5, 5)}),
        (ValueError, r"w is \(\)", {"w": torch.ones(())}),
        (ValueError, r"bias is \(8,\) and x \(2, 8, 5, 5\): \(6,\)", {"bias": torch.ones(8)}),
        (ValueError, "w is on meta and x on cpu", {"w": torch.ones(6, 8, 3, 3, device="meta")}),
        (TypeError, "x is torch.int32", {"x": torch.ones(2, 8, 5, 5, dtype=torch.int32)}),
        (TypeError, "x is torch.complex64", {"x": torch.ones(2, 8, 5, 5, dtype=torch.complex64)}),
        (TypeError, "w is torch.float16 and x torch.float32", {"w": torch.ones(6, 8, 3, 3, dtype=torch.float16)}),
        (TypeError, "bias is torch.int64", {"bias": torch.ones(6, dtype=torch.int64)}),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(error, words, change):
    given = {"x": torch.ones(2, 8, 5, 5), "w": torch.ones(6, 8, 3, 3), "bias": torch.ones(6), **change}
    with pytest.raises(error, match=words):
        ladder_torch.conv2d_3x3(**given)


def test_the_module_stands_in_for_pytorchs(device):
    for bias in (True, False):
        theirs = torch.nn.Conv2d(8, 6, 3, padding=1, bias=bias).to(device)
        ours = ladder_torch.Conv2d3x3(8, 6, bias).to(device)
        ours.load_state_dict(theirs.state_dict(), strict=True)
        theirs.load_state_dict(ours.state_dict(), strict=True)
        assert ours.weight.is_contiguous(memory_format=torch.channels_last)
        x = drawn(2, 8, 3, 3, device=device)
        for module in (ours, copy.deepcopy(ours), ours.double()):
            torch.testing.assert_close(module(x.to(module.weight.dtype)).float(), theirs(x), rtol=1e-2, atol=1e-2)
