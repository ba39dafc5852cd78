"""group_norm_act and its modules: values, gradients, layouts, refusals, and PyTorch's checks of the operator."""

import copy
import pickle

import pytest
import torch
from bounds import assert_near
from torch.nn import functional

import ladder_torch

ACTIVATIONS = {
    "identity": lambda z: z,
    "relu": torch.relu,
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "mish": functional.mish,
}
FORWARD, BACKWARD = torch.ops.ladder.group_norm_act.default, torch.ops.ladder.group_norm_act_backward.default


def drawn(*sizes, dtype=torch.float32, device="cpu", channels_last=True):
    x = torch.randn(sizes, dtype=torch.float64).mul(2).add(0.5).to(dtype).to(device)
    return torch.empty_like(x.movedim(1, -1)).movedim(-1, 1).copy_(x) if channels_last and x.dim() > 2 else x


def parameters(channels, dtype=torch.float32, device="cpu"):
    return [torch.randn(channels, dtype=torch.float64).to(dtype).to(device).requires_grad_() for _ in range(2)]


def exact(x, groups, weight, bias, eps, activation, dy):
    """y and the gradients of the formula in double precision, on the CPU."""
    inputs = [each.detach().double().cpu().requires_grad_() for each in (x, weight, bias) if each is not None]
    y = ACTIVATIONS[activation](functional.group_norm(inputs[0], groups, *inputs[1:], eps=eps))
    return [y.detach(), *torch.autograd.grad(y, inputs, dy.double().cpu())]


def check(x, groups, weight, bias, eps=1e-5, activation="silu"):
    x.requires_grad_()
    inputs = [each for each in (x, weight, bias) if each is not None]
    y = ladder_torch.group_norm_act(x, groups, weight, bias, eps, activation)
    assert y.dtype == x.dtype and y.movedim(1, -1).is_contiguous()
    dy = torch.randn_like(y)
    results = [y.detach(), *torch.autograd.grad(y, inputs, dy)]
    # A gradient with respect to x is a difference: of groups of one or two elements all of it is rounding.
    for name, result, wanted in zip(
        ("y", "dx", "dweight", "dbias"), results, exact(x, groups, weight, bias, eps, activation, dy)
    ):
        assert_near(result, wanted, f"{name} of {tuple(x.shape)} in {groups} groups", x.numel() // x.shape[1])
    for result, given in zip(results[1:], inputs):
        assert result.dtype == given.dtype and result.device == given.device


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_activation_in_each_type(device, dtype, activation):
    torch.manual_seed(1)
    check(drawn(2, 32, 4, 4, dtype=dtype, device=device), 8, *parameters(32, dtype, device), activation=activation)


@pytest.mark.parametrize(
    "sizes, groups",
    [((3, 12), 3), ((2, 6, 7), 2), ((1, 33, 5, 3), 11), ((2, 40, 1, 9), 5), ((1, 8, 2, 3, 4), 4), ((1, 4, 2, 1, 3, 2), 1),
     ((2, 320, 2, 2), 32), ((1, 2560, 1, 1), 32)],
)  # fmt: skip
def test_sizes_of_any_rank(device, sizes, groups):
    torch.manual_seed(2)
    check(drawn(*sizes, device=device), groups, *parameters(sizes[1], device=device))


@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_eps(device, eps):
    torch.manual_seed(3)
    check(drawn(2, 16, 3, 3, device=device), 4, *parameters(16, device=device), eps=eps)


def test_without_parameters_and_with_those_of_another_type(device):
    torch.manual_seed(4)
    check(drawn(2, 16, 3, 3, device=device), 4, None, None)
    check(drawn(2, 16, 3, 3, dtype=torch.bfloat16, device=device), 4, *parameters(16, torch.float32, device))
    check(drawn(2, 16, 3, 3, dtype=torch.float64, device=device), 4, *parameters(16, torch.float64, device))
    check(drawn(2, 16, 3, 3, device=device), 4, *parameters(16, torch.bfloat16, device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parameters_of_two_types(device, dtype):
    torch.manual_seed(10)
    parameter_types = (torch.float32, torch.bfloat16, torch.float16)
    for weight_type in parameter_types:
        for bias_type in parameter_types:
            pair = parameters(16, weight_type, device)[0], parameters(16, bias_type, device)[1]
            check(drawn(2, 16, 3, 3, dtype=dtype, device=device), 4, *pair)


@pytest.mark.parametrize("activation", ["identity", "silu"])
def test_one_parameter_alone(device, activation):
    torch.manual_seed(11)
    for dtype in (torch.float32, torch.bfloat16):
        x, (weight, bias) = drawn(2, 16, 3, 3, dtype=dtype, device=device), parameters(16, dtype, device)
        zero, one = torch.zeros_like(bias, requires_grad=True), torch.ones_like(weight, requires_grad=True)
        for given, both in (((weight, None), (weight, zero)), ((None, bias), (one, bias))):
            alone, pair = (ladder_torch.group_norm_act(x, 4, *each, activation=activation) for each in (given, both))
            assert torch.equal(alone, pair)
            check(x, 4, *both, activation=activation)
            mine, theirs = (torch.autograd.grad(y.sum(), weight if given[0] is weight else bias) for y in (alone, pair))
            assert torch.equal(*mine, *theirs)


def test_the_gradients_of_two_types_are_promised():
    x, weight, bias = (torch.empty(sizes, device="meta") for sizes in ((2, 16, 3, 3), (16,), (16,)))
    statistics = torch.empty(2, 4, device="meta")
    gradients = BACKWARD(x, x, weight.bfloat16(), bias, statistics, statistics, 4, "silu")
    assert [each.dtype for each in gradients] == [torch.float32, torch.bfloat16, torch.float32]


def test_the_operator_itself_takes_both_parameters_or_none(device):
    with pytest.raises((ValueError, RuntimeError), match="both of them or none|do not fit together"):
        FORWARD(drawn(2, 8, 3, 3, device=device), torch.ones(8, device=device), None, 4, 1e-5, "silu")


def test_every_layout_and_offset(device):
    torch.manual_seed(5)
    weight, bias = parameters(16, device=device)
    check(drawn(2, 16, 3, 5, device=device, channels_last=False), 4, weight, bias)
    check(drawn(5, 3, 16, 2, device=device).permute(3, 2, 0, 1), 4, weight, bias)
    check(drawn(1, 16, 3, 1, device=device).expand(2, 16, 3, 4).detach(), 4, weight, bias)
    memory = drawn(2 * 16 * 3 * 5 + 1, 1, device=device).flatten()[1:]
    check(memory.view(2, 3, 5, 16).movedim(-1, 1).detach(), 4, weight, bias)


def test_a_gradient_that_is_not_channels_last(device):
    torch.manual_seed(6)
    x, (weight, bias) = drawn(2, 16, 3, 5, device=device).requires_grad_(), parameters(16, device=device)
    y = ladder_torch.group_norm_act(x, 4, weight, bias, activation="silu")
    dy = torch.randn(2, 16, 3, 5, device=device)
    assert_near(torch.autograd.grad(y, x, dy)[0], exact(x, 4, weight, bias, 1e-5, "silu", dy)[1])


def test_nothing_in_is_nothing_out(device):
    x = torch.empty(0, 8, 3, 3, device=device, requires_grad=True)
    weight, bias = parameters(8, device=device)
    y = ladder_torch.group_norm_act(x, 4, weight, bias)
    dx, dweight, dbias = torch.autograd.grad(y.sum(), (x, weight, bias))
    assert y.shape == dx.shape == x.shape and not dweight.any() and not dbias.any()


def test_inputs_frozen_one_by_one(device):
    torch.manual_seed(7)
    for frozen in range(3):
        inputs = [drawn(2, 8, 3, 3, device=device).requires_grad_(), *parameters(8, device=device)]
        inputs[frozen].requires_grad_(False)
        ladder_torch.group_norm_act(inputs[0], 4, *inputs[1:]).sum().backward()
        assert [each.grad is None for each in inputs] == [i == frozen for i in range(3)]


def test_equal_inputs_give_equal_bits(kernels):
    x, (weight, bias) = drawn(2, 32, 8, 8, device=kernels).requires_grad_(), parameters(32, device=kernels)

    def bits():
        y = ladder_torch.group_norm_act(x, 8, weight, bias, activation="silu")
        return [y.detach(), *torch.autograd.grad(y.square().sum(), (x, weight, bias))]

    assert all(torch.equal(a, b) for a, b in zip(bits(), bits()))


def test_pytorchs_own_checks_of_an_operator(device):
    x, (weight, bias) = drawn(2, 8, 3, 5, device=device).requires_grad_(), parameters(8, device=device)
    for more in ((weight, bias), (None, None)):
        torch.library.opcheck(FORWARD, (x, *more, 4, 1e-5, "silu"))
    y, mean, rstd = (each.detach() for each in FORWARD(x, weight, bias, 4, 1e-5, "silu"))
    torch.library.opcheck(BACKWARD, (y, *(each.detach() for each in (x, weight, bias)), mean, rstd, 4, "silu"))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(device, dynamic):
    module = ladder_torch.GN_NHWC(4, 8, activation="silu").to(device)
    compiled = torch.compile(lambda x: module(x * 2) + 1, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 4):
        x = drawn(2, 8, rows, 5, device=device).requires_grad_()
        assert torch.equal(compiled(x), module(x * 2) + 1)
        mine, theirs = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (compiled, lambda x: module(x * 2) + 1))
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()


def test_a_second_derivative_is_refused_by_name(device):
    x, (weight, bias) = drawn(2, 8, 3, 3, device=device).requires_grad_(), parameters(8, device=device)
    gradient = torch.autograd.grad(ladder_torch.group_norm_act(x, 4, weight, bias).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="ladder::group_norm_act has no second derivative"):
        gradient[0].sum().backward()


@pytest.mark.parametrize(
    "error, words, change",
    [
        (ValueError, "no activation 'tanh'; there are identity, relu", {"activation": "tanh"}),
        (ValueError, "8 channels in 3 groups", {"groups": 3}),
        (ValueError, "8 channels in 0 groups", {"groups": 0}),
        (ValueError, r"x is \(8,\), and \(n, channels, ...\)", {"x": torch.ones(8)}),
        (ValueError, r"weight is \(4,\) and x \(2, 8, 3, 3\)", {"weight": torch.ones(4)}),
        (ValueError, "weight is on meta and x on cpu", {"weight": torch.ones(8, device="meta")}),
        (TypeError, "x is torch.int32", {"x": torch.ones(2, 8, 3, 3, dtype=torch.int32)}),
        (TypeError, "weight is torch.int64", {"weight": torch.ones(8, dtype=torch.int64)}),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(error, words, change):
    given = {"x": torch.ones(2, 8, 3, 3), "groups": 4, "weight": torch.ones(8), "bias": torch.ones(8), **change}
    with pytest.raises(error, match=words):
        ladder_torch.group_norm_act(**given)


def test_the_module_stands_in_for_pytorchs(device):
    theirs, ours = torch.nn.GroupNorm(4, 8).to(device), ladder_torch.GN_NHWC(4, 8, activation="silu").to(device)
    with torch.no_grad():
        theirs.weight.normal_(), theirs.bias.normal_()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = drawn(2, 8, 3, 3, device=device)
    for module in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        torch.testing.assert_close(module(x), functional.silu(theirs(x)))
    plain = x.contiguous()
    assert ours(plain).is_contiguous(), "what is NCHW stays so, through PyTorch"
    torch.testing.assert_close(ours.double()(x.double()), functional.silu(theirs.double()(x.double())))
    with pytest.raises(ValueError, match="no activation 'tanh'"):
        ladder_torch.GN_NHWC(4, 8, activation="tanh")


def test_versions_are_chosen_and_explained(kernels):
    x = drawn(2, 24, 3, 3, device=kernels)
    labels = ladder_torch.versions("groupnorm/forward")
    with ladder_torch.use("groupnorm/forward", "v01"):
        used = ladder_torch.group_norm_act(x, 8)
    ladder_torch.group_norm_act(x, 8)
    rows = [
        each for each in ladder_torch.explain() if "h3 w3 c24" in each["problem"] and each["pass"].endswith("/forward")
    ]
    by_hand, promoted = rows[-2:]
    assert (by_hand["version"], by_hand["reason"], by_hand["calls"]) == (labels[0], "--use", 1)
    assert promoted["version"] in labels[1:] and promoted["reason"].startswith("nearest: ")
    assert_near(used, exact(x, 8, None, None, 1e-5, "identity", x)[0])
    for wrong in ("v77", "nonsense"):
        with pytest.raises(ValueError, match=f"has no version '{wrong}'; it has: v01_naive"):
            ladder_torch.use("groupnorm/forward", wrong)
    with pytest.raises(ValueError, match="no pass 'groupnorm/sideways'; there are .*groupnorm/forward"):
        ladder_torch.versions("groupnorm/sideways")


def test_16_bit_parameters_are_not_cast(kernels):
    for dtype in (torch.bfloat16, torch.float16):
        x = drawn(2, 48, 3, 3, dtype=dtype, device=kernels)
        for parameter_dtype, word in ((dtype, True), (torch.float32, False)):
            check(x, 8, *parameters(48, parameter_dtype, kernels))
            lines = [each["problem"] for each in ladder_torch.explain() if "h3 w3 c48" in each["problem"]]
            assert ["params16" in line for line in lines[-2:]] == [word, word], lines


def test_what_no_kernel_takes_pytorch_computes_and_explain_says_so(kernels):
    x = drawn(1, 8, 2, 2, dtype=torch.float64, device=kernels)
    assert_near(ladder_torch.group_norm_act(x, 4), exact(x, 4, None, None, 1e-5, "identity", x)[0])
