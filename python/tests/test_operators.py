"""Operators of torch.ops.ladder called without the package's functions, with what does not fit together."""

import pytest
import torch

import ladder_torch


def ones(*sizes):
    return torch.ones(sizes)


def tensors(given):
    return sum(isinstance(x, torch.Tensor) for x in given)


def channels_innermost(x):
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if isinstance(x, torch.Tensor) and x.dim() >= 3 else x


IMAGE, EVEN, CHANNELS = ones(2, 8, 3, 5), ones(2, 8, 4, 2), ones(8)
OPERATORS = {
    "group_norm_act": (IMAGE, CHANNELS, CHANNELS, 4, 1e-5, "silu"),
    "group_norm_act_backward": (IMAGE, IMAGE, CHANNELS, CHANNELS, ones(2, 4), ones(2, 4), 4, "silu"),
    "conv2d_3x3": (IMAGE, ones(6, 8, 3, 3), ones(6), False),
    "conv2d_3x3_dgrad": (ones(2, 6, 3, 5), ones(6, 8, 3, 3), False),
    "linear": (ones(2, 3, 8), ones(6, 8), ones(6), ones(2, 3, 6), "silu", False),
    "linear_dgrad": (ones(2, 3, 6), ones(6, 8), False),
    "linear_wgrad": (ones(2, 3, 6), ones(2, 3, 8), ones(6), False),
    "attention": (*[ones(2, 3, 2, 32)] * 3, False),
    "attention_backward": (*[ones(2, 3, 2, 32)] * 5, ones(2, 2, 3), False),
    "attention_qkv": (ones(2, 3, 192), 2, "legacy", False),
    "attention_qkv_backward": (ones(2, 3, 64), ones(2, 3, 192), ones(2, 3, 64), ones(2, 2, 3), 2, "legacy", False),
    "silu": (IMAGE,),
    "silu_backward": (IMAGE, IMAGE),
    "avg_pool2x2": (EVEN,),
    "avg_pool2x2_backward": (EVEN,),
    "upsample2x": (EVEN,),
    "upsample2x_backward": (EVEN,),
    "conv2d_3x3_wgrad": (ones(2, 6, 3, 5), IMAGE, ones(6, 8, 3, 3), ones(6), False),
}
NONSENSE = {
    "no dimensions": lambda x: x.sum(),
    "one dimension": lambda x: x.flatten().repeat(2),
    "integers": lambda x: x.int(),
    "complex": lambda x: x.to(torch.complex64),
    "twice the sizes": lambda x: x.repeat([2] * x.dim()),
}
# A tensor that stands alone may have any sizes, and silu's any number of them.
NO_NONSENSE = {(name, "twice the sizes") for name, given in OPERATORS.items() if tensors(given) == 1}
NO_NONSENSE |= {("silu", "no dimensions"), ("silu", "one dimension")}
CASES = [
    (name, i, nonsense)
    for name, given in OPERATORS.items()
    for i, x in enumerate(given)
    for nonsense in NONSENSE
    if isinstance(x, torch.Tensor) and (name, nonsense) not in NO_NONSENSE
]


@pytest.mark.parametrize("name, at, nonsense", CASES)
def test_nonsense_is_refused_in_one_sentence(kernels, name, at, nonsense):
    operator, given = getattr(torch.ops.ladder, name).default, [*OPERATORS[name]]
    given = [x.to(kernels) if isinstance(x, torch.Tensor) else x for x in given]
    operator(*given)
    given[at] = NONSENSE[nonsense](given[at])
    with pytest.raises(RuntimeError, match="sizes, types or devices of its tensors do not fit together"):
        operator(*given)


@pytest.mark.parametrize("name", OPERATORS)
def test_fakes_promise_the_sizes_types_and_strides_that_come(device, name):
    operator = getattr(torch.ops.ladder, name).default
    for given in (OPERATORS[name], [channels_innermost(x) for x in OPERATORS[name]]):
        outcomes = []
        for where in (device, "meta"):
            y = operator(*(x.to(where) if isinstance(x, torch.Tensor) else x for x in given))
            outcomes.append([(x.shape, x.dtype, x.stride()) for x in (y if isinstance(y, tuple) else (y,))])
        assert outcomes[0] == outcomes[1]


def test_functions_take_the_meta_device():
    x, w = ones(2, 8, 4, 4).to("meta"), ones(6, 8, 3, 3).to("meta").requires_grad_()
    y = ladder_torch.avg_pool2x2(ladder_torch.silu(ladder_torch.conv2d_3x3(x, w)))
    tokens = ladder_torch.linear(y.flatten(2).mT, ones(192, 6).to("meta"))
    ladder_torch.attention_qkv(tokens, 2).sum().backward()
    assert w.grad.shape == w.shape


@pytest.mark.parametrize("groups, activation", [(0, "silu"), (-1, "silu"), (3, "silu"), (4, "tanh")])
def test_group_norm_refuses_what_is_no_tensor_too(kernels, groups, activation):
    with pytest.raises(RuntimeError):
        torch.ops.ladder.group_norm_act(IMAGE.to(kernels), None, None, groups, 1e-5, activation)


@pytest.mark.parametrize("t, dim", [(ones(), 4), (ones(2, 2), 4), (ones(2), 0), (ones(2), -1)])
def test_timestep_embedding_refuses_nonsense(kernels, t, dim):
    with pytest.raises(RuntimeError):
        torch.ops.ladder.timestep_embedding(t.to(kernels), dim, torch.float32)


@pytest.mark.parametrize("heads, order", [(0, "legacy"), (-2, "new"), (2**62, "legacy"), (5, "legacy"), (2, "other")])
def test_attention_refuses_nonsense(kernels, heads, order):
    with pytest.raises(RuntimeError, match="attention_qkv"):
        torch.ops.ladder.attention_qkv(ones(2, 3, 192).to(kernels), heads, order, False)
