"""The limits that the README lists are still there, each as it says."""

import pytest
import torch
from swapping import image, layers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import ladder_torch


@pytest.fixture
def swapped():
    model = layers(nn.SiLU())
    ladder_torch.swap(model)
    return model


def test_transformed_gradients_raise(swapped):
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: swapped(x).sum())(image())
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.vmap(swapped)(image().unsqueeze(1))


def test_flops_are_not_counted(swapped):
    with FlopCounterMode(display=False) as counter:
        swapped(image())
    assert counter.get_total_flops() == 0


def test_a_symbolic_trace_raises_and_an_export_works(swapped):
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(swapped)
    assert torch.equal(torch.export.export(swapped, (image(),)).module()(image()), swapped(image()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_swapped_linear_is_not_quantised():
    model = nn.Sequential(nn.Linear(4, 4))
    ladder_torch.swap(model)
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert type(quantised[0]) is type(model[0])


def test_global_hooks_do_not_see_what_runs_as_one(swapped):
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        swapped(image())
    finally:
        handle.remove()
    assert seen == [swapped[0], swapped[3], swapped]
