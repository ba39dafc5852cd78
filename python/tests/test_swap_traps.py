"""Models changed by other code before or after swap(): offloading, replaced forwards, parametrizations, half a pair of
parameters, other types; edm's classes; and a report without rows."""

import copy
import functools

import pytest
import torch
from bounds import assert_near
from cases import allowed
from swapping import SUMS, assert_equal_to_the_formula, assert_restored, called, image, layers, randomised, results
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import ladder_torch
from ladder_torch.stand_in import StandIn


@pytest.fixture(autouse=True)
def without_tf32():
    with allowed(torch.backends.cudnn.conv, "ieee"):
        yield


# --- Offloading, and forwards that are replaced


def offload(model):
    """Offloads like accelerate.cpu_offload: parameters are stored elsewhere and present only during a forward."""

    def with_weights(module, kept, *args):
        for name, value in kept.items():
            setattr(module, name, nn.Parameter(value))
        try:
            return module._old_forward(*args)
        finally:
            to_meta(module, kept)

    def to_meta(module, names):
        for name in names:
            setattr(module, name, nn.Parameter(getattr(module, name).to("meta")))

    for module in model.modules():
        kept = {name: value.detach() for name, value in module.named_parameters(recurse=False)}
        if kept:
            module._old_forward = module.forward
            module.forward = functools.partial(with_weights, module, kept)
            to_meta(module, kept)


def outputs_equal(model, before, x=None):
    x = image() if x is None else x
    assert_near(model(x).detach(), before(x).detach(), sums_of=SUMS)


@pytest.mark.parametrize("first", ["swap", "offload"])
def test_an_offloaded_model_computes_as_before(device, first):
    model = layers(nn.SiLU()).to(device)
    before, x = copy.deepcopy(model), image().to(device)
    for step in (ladder_torch.swap, offload) if first == "swap" else (offload, ladder_torch.swap):
        step(model)
    outputs_equal(model, before, x)
    ladder_torch.unswap(model)
    outputs_equal(model, before, x)
    report = ladder_torch.swap(model)
    assert {row["note"] for row in report} == {"its forward was replaced"}
    outputs_equal(model, before, x)


def test_accelerates_own_offload():
    accelerate = pytest.importorskip("accelerate")
    model = layers(nn.SiLU())
    before = copy.deepcopy(model)
    ladder_torch.swap(model)
    accelerate.cpu_offload(model, torch.device("cpu"))
    outputs_equal(model, before)
    ladder_torch.unswap(model)
    outputs_equal(model, before)


@pytest.mark.parametrize("at", [1, 2])
def test_a_forward_replaced_after_swap_is_called(device, at):
    model, seen = layers(nn.SiLU()).to(device), []
    before, x = copy.deepcopy(model), image().to(device)
    ladder_torch.swap(model)
    inner = model[at].forward

    def forward(x):
        seen.append(at)
        return inner(x)

    model[at].forward = forward
    outputs_equal(model, before, x)
    assert seen == [at]
    del model[at].forward
    outputs_equal(model, before, x)
    assert "group_norm_act" in called(model, x) and seen == [at]


# --- Classes made on top of a swapped one


def dynamic_class(module):
    """Changes the module's class to a dynamic subclass, as FSDP2 does; modules may share such a class."""
    module.__class__ = type(f"FSDP{type(module).__name__}", (Marker, type(module)), {"own": 1})


class Marker:
    pass


def parametrize(module):
    parametrizations.weight_norm(module, dim=None)


@pytest.mark.parametrize("change", [parametrize, dynamic_class])
@pytest.mark.parametrize("at, kind", [(0, nn.Conv2d), (1, nn.GroupNorm)])
def test_a_class_made_on_top_of_a_swapped_one_stays(change, at, kind):
    model = layers(nn.SiLU())
    before = copy.deepcopy(model)
    ladder_torch.swap(model)
    change(model[at]), change(before[at])
    outputs_equal(model, before)
    ladder_torch.unswap(model)
    assert not any(isinstance(each, StandIn) for each in model.modules())
    assert isinstance(model[at], kind) and type(model[at]).__name__ == type(before[at]).__name__
    assert [each.__name__ for each in type(model[at]).__mro__] == [each.__name__ for each in type(before[at]).__mro__]
    assert torch.equal(model(image()), before(image()))
    assert list(model.state_dict()) == list(before.state_dict())


def test_a_second_swap_of_what_was_parametrized_since():
    model = layers(nn.SiLU())
    ladder_torch.swap(model)
    parametrize(model[0])
    before = copy.deepcopy(model)
    assert ladder_torch.swap(model)[0]["note"] == "parametrized: weight"
    outputs_equal(model, before)
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.Conv2d
    outputs_equal(model, before)
    assert ladder_torch.swap(model)[0]["swapped"]


# --- Parameters and inputs of other kinds


@pytest.mark.parametrize("missing, value", [("weight", 1.0), ("bias", 0.0)])
@pytest.mark.parametrize("activation", [nn.SiLU, nn.Tanh])
def test_a_norm_with_one_parameter(device, missing, value, activation):
    model, x = layers(activation()).to(device), image().to(device)
    nn.init.constant_(getattr(model[1], missing), value)
    exact = results(copy.deepcopy(model).double(), x.double())
    setattr(model[1], missing, None)
    before = copy.deepcopy(model)
    assert all(row["swapped"] for row in ladder_torch.swap(model, (x,)))
    mine = results(model, x)
    assert set(exact) - set(mine) == {f"1.{missing}"}
    for name, result in mine.items():
        assert_near(result, exact[name].cpu(), name, SUMS)
    ladder_torch.unswap(model)
    assert torch.equal(model(x), before(x))


def complex_linear():
    return nn.Linear(5, 4, dtype=torch.complex64)


def complex_conv():
    return nn.Conv2d(3, 4, 3, padding=1, dtype=torch.complex64)


def counts(x):
    return (10 * x).long()


@pytest.mark.parametrize("module, inputs", [
    (complex_linear(), lambda x: torch.complex(x, -x).contiguous()),
    (complex_conv(), lambda x: torch.complex(x, -x).to(memory_format=torch.channels_last)),
    (nn.AvgPool2d(2), counts),
])  # fmt: skip
@pytest.mark.parametrize("with_example", [False, True])
def test_complex_numbers_and_integers_are_pytorchs(device, module, inputs, with_example):
    model = nn.Sequential(module)
    x = inputs(image())
    expected = model(x)
    report = ladder_torch.swap(model, (x,) if with_example else None)
    assert torch.equal(model(x), expected)
    if with_example:
        assert report[0]["note"].startswith("gets only inputs that are not fp32, bf16 or fp16")
    else:
        assert isinstance(module, StandIn)
    ladder_torch.unswap(model)


# --- The random numbers


def test_an_example_leaves_the_random_numbers_alone(device):
    model = layers(nn.SiLU(), nn.Dropout(0.5)).to(device)
    x = image().to(device)
    states = torch.get_rng_state(), torch.cuda.get_rng_state_all() if device == "cuda" else []
    ladder_torch.swap(model, (x,))
    assert torch.equal(torch.get_rng_state(), states[0])
    if device == "cuda":
        assert all(map(torch.equal, torch.cuda.get_rng_state_all(), states[1]))


# --- edm's classes, and unknown classes


class Edm:
    """Classes with the names and structure of edm's: no subclasses of PyTorch's, with weights cast to the input's
    type."""

    class Linear(nn.Module):
        def __init__(self, inputs, outputs, bias=True):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(outputs, inputs))
            self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

        def forward(self, x):
            y = x @ self.weight.to(x.dtype).T
            return y if self.bias is None else y + self.bias.to(x.dtype)

    class Conv2d(nn.Module):
        def __init__(self, inputs, outputs, kernel, bias=True, down=False):
            super().__init__()
            self.up, self.down = False, down
            self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel)) if kernel else None
            self.bias = nn.Parameter(torch.empty(outputs)) if kernel and bias else None

        def forward(self, x):
            if self.down:
                x = functional.avg_pool2d(x, 2)
            if self.weight is not None:
                x = functional.conv2d(x, self.weight.to(x.dtype), padding=self.weight.shape[-1] // 2)
            return x if self.bias is None else x + self.bias.to(x.dtype).reshape(1, -1, 1, 1)

    class GroupNorm(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.num_groups, self.eps = min(32, channels // 4), 1e-5
            self.weight, self.bias = (nn.Parameter(torch.empty(channels)) for _ in range(2))

        def forward(self, x):
            pair = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return functional.group_norm(x, self.num_groups, *pair, eps=self.eps)


class EdmBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = Edm.Conv2d(3, 8, 3), Edm.GroupNorm(8), Edm.Conv2d(8, 8, 1, bias=False)
        self.head = Edm.Linear(8, 5)

    def forward(self, x):
        return self.head(self.last(functional.silu(self.norm(self.first(x)))).mean([2, 3]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_edms_classes_are_swapped_by_name(device, dtype):
    model, x = randomised(EdmBlock()).to(device), image().to(device, dtype)
    before = copy.deepcopy(model)
    report = ladder_torch.swap(model, (x,))
    assert [(row["module"], row["swapped"]) for row in report] == [
        (name, True) for name in ("first", "norm", "last", "head")
    ]
    names = called(model, x)
    assert names.count("conv2d_3x3") == 1 and names.count("group_norm_act") == 1 and names.count("linear") == 2
    if dtype == torch.float32:
        assert_equal_to_the_formula(model, x)
    else:
        exact = copy.deepcopy(before).double()(x.double())
        assert (model(x).double() - exact).norm() < 0.05 * exact.norm()  # roundings to bf16 one after the other
    assert_restored(model, before, x)


class Scaled:
    class Linear(Edm.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    class GroupNorm(nn.Module):
        """A class with edm's name and none of its attributes."""

        def forward(self, x):
            return x


class Subclass:
    class Linear(nn.Linear):
        """A subclass of PyTorch's Linear with the name of edm's."""


UNKNOWN = "the forward of this {} is none that is known"


@pytest.mark.parametrize("module, words", [
    (Edm.Conv2d(3, 4, 3, down=True), "down True; False is swapped"),
    (Edm.Conv2d(3, 4, 5), "kernel_size (5, 5); (3, 3) or (1, 1) is swapped"),
    (Edm.Conv2d(3, 4, 0, down=True), UNKNOWN.format("Conv2d")),
    (Scaled.Linear(3, 4), UNKNOWN.format("Linear")),
    (Scaled.GroupNorm(), UNKNOWN.format("GroupNorm")),
    (Subclass.Linear(3, 4), "a subclass of Linear"),
    (ladder_torch.Linear(3, 4), "a subclass of Linear"),
])  # fmt: skip
def test_what_edms_names_do_not_make(module, words):
    before = type(module)
    assert [row["note"] for row in ladder_torch.swap(module)] == [words]
    assert type(module) is before


def test_edms_norm_and_its_activation_in_one():
    model = randomised(nn.Sequential(Edm.Conv2d(3, 8, 3), Edm.GroupNorm(8), nn.SiLU()))
    assert ladder_torch.swap(model)[1]["kind"] == "GroupNorm + SiLU"
    assert_equal_to_the_formula(model, image())
    assert called(model, image()).count("group_norm_act") == 1 and "silu" not in called(model, image())


def test_an_empty_report_says_why():
    class Own(nn.Module):
        pass

    report = ladder_torch.swap(nn.Sequential(Own(), Own(), nn.LayerNorm(3)))
    assert not report and report.to_json() == "[]"
    assert str(report).startswith(
        "nothing to swap in Sequential: no kernel is for its Own (2), LayerNorm (1); there are ker"
    )
    assert all(name in str(report) for name in ("nn.GroupNorm", "nn.Conv2d", "GroupNorm32", "QKVAttentionLegacy"))
