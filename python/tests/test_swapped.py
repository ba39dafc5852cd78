"""A swapped model remains what it was; the example and the choice of swap(), and its errors."""

import copy
import io
import json
import pickle

import pytest
import torch
from bounds import assert_near
from swapping import SUMS, Called, ScaleShiftBlock, assert_restored, image, layers, norms, randomised, types
from torch import nn

import ladder_torch
from ladder_torch import measure

# --- A model remains what it was


def test_parameters_state_and_optimizer_go_on():
    mine, theirs = layers(nn.SiLU()), layers(nn.SiLU())
    optimizers = [torch.optim.AdamW(model.parameters(), 0.01) for model in (mine, theirs)]
    parameters = list(mine.parameters())
    for step in range(4):
        if step == 2:
            ladder_torch.swap(mine)
        for model, optimizer in zip((mine, theirs), optimizers):
            optimizer.zero_grad()
            model(image(seed=step)).square().sum().backward()
            optimizer.step()
    assert all(a is b for a, b in zip(mine.parameters(), parameters))
    for (name, a), b in zip(mine.named_parameters(), theirs.parameters()):
        assert_near(a.detach(), b.detach(), name, SUMS)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(mine.state_dict(), strict=True)
    assert_near(theirs(image()).detach(), mine(image()).detach(), sums_of=SUMS)
    fresh = layers(nn.SiLU())
    mine.load_state_dict(fresh.state_dict(), strict=True)
    assert_near(mine(image()).detach(), fresh(image()).detach(), sums_of=SUMS)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), saved])
def test_a_copy_is_swapped_and_of_its_own(copied):
    model = randomised(nn.Sequential(nn.Conv2d(3, 8, 1), ScaleShiftBlock(), nn.GroupNorm(2, 8), nn.SiLU()))
    before = copy.deepcopy(model)
    ladder_torch.swap(model)
    other = copied(model)
    assert types(other) == types(model) != types(before)
    assert torch.equal(other(image()), model(image()))
    assert not {id(each) for each in other.parameters()} & {id(each) for each in model.parameters()}
    assert_restored(other, before, image())
    assert types(model) != types(before), "the copy alone was unswapped"


@pytest.mark.parametrize("first", ["swap", "compile"])
def test_compiled_whole(first):
    model = layers(nn.SiLU())
    if first == "swap":
        ladder_torch.swap(model)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    if first == "compile":
        compiled(image())
        report = ladder_torch.swap(compiled, (image(),))
        assert report[1]["module"] == "_orig_mod.1" and report[1]["swapped"]
    assert torch.equal(compiled(image()), model(image()))
    assert "group_norm_act" in graphs[-1].code and "silu" in graphs[-1].code
    assert len(graphs) == (1 if first == "swap" else 2)
    torch._dynamo.reset()


def test_autocast():
    model = layers(nn.SiLU())
    exact = copy.deepcopy(model).double()(image().double())
    ladder_torch.swap(model)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(image())
    # Some roundings to bf16 one after the other.
    assert y.dtype == torch.bfloat16 and (y.double() - exact).norm() < 0.02 * exact.norm()


# --- The example, the choice, and errors


def test_an_example_leaves_no_trace():
    model = nn.Sequential(nn.BatchNorm2d(3), *layers(nn.SiLU(), nn.Dropout(0.5)), nn.GroupNorm(2, 4))
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    report = ladder_torch.swap(model, (image(),))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    assert not any(each._forward_pre_hooks for each in model.modules())
    assert [row["note"] for row in norms(report)] == ["with 3; not timed: no GPU", "not timed: no GPU"]
    assert {row["us_before"] for row in report} == {None} and norms(report)[0]["problem"] == "2x8x6x5 float32"


def test_an_example_with_names_and_a_module_that_it_does_not_call():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.never = layers(nn.SiLU()), nn.GroupNorm(2, 4)

        def forward(self, x, *, twice):
            return [self.layers(x) for _ in range(2 if twice else 1)]

    report = ladder_torch.swap(Model(), ((image(),), {"twice": True}))
    assert [(row["module"], row["swapped"]) for row in report] == [
        ("layers.0", True), ("layers.1", True), ("layers.3", True), ("never", False)]  # fmt: skip
    assert report[3]["note"] == "not called by the example"


def test_an_example_that_fails_leaves_the_model_alone():
    model = layers(nn.SiLU())
    before = types(model)
    with pytest.raises(ValueError, match=r"\(8, 5, 3, 3\) is wanted"):
        ladder_torch.swap(model, (image(2, 5, 4, 4),))
    assert types(model) == before and not any(each._forward_pre_hooks for each in model.modules())


def test_only_what_is_faster_is_swapped(monkeypatch):
    """The clock is a fake: a swapped call of 8 channels takes 10 us, of 16 channels 30, and an unswapped one 20."""
    timed = []

    def clock(call):
        with Called() as calls:
            call()
        swapped = "group_norm_act" in calls.names
        timed.append(swapped)
        assert any("backward" in name or "grad" in name for name in calls.names), (
            "a model that trains is timed with its gradients"
        )
        return (10.0 if len(timed) <= 2 else 30.0) if swapped else 20.0

    monkeypatch.setattr(measure, "can_time", lambda use: True)
    monkeypatch.setattr(measure, "microseconds", clock)
    model = randomised(nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(4, 8), nn.SiLU(), nn.GroupNorm(4, 8), nn.SiLU(),
                                     nn.Conv2d(8, 16, 1), nn.GroupNorm(4, 16)))  # fmt: skip
    report = ladder_torch.swap(model, (image(),), only=lambda name, module: isinstance(module, nn.GroupNorm))
    assert timed == [False, True, False, True], "equal problems are timed once"
    assert [(row["us_before"], row["us_after"], row["swapped"]) for row in norms(report)] == [
        (20.0, 10.0, True), (20.0, 10.0, True), (20.0, 30.0, False)]  # fmt: skip
    assert norms(report)[2]["note"] == "PyTorch's is no slower" and type(model[6]) is nn.GroupNorm
    assert " 20.0 " in str(report)
    chosen = types(model)
    for choice in (report, report.to_json()):
        ladder_torch.unswap(model)
        assert [row["swapped"] for row in norms(ladder_torch.swap(model, only=choice))] == [True, True, False]
        assert types(model) == chosen
    assert len(timed) == 4


def test_only():
    model = nn.ModuleDict({"a": layers(nn.SiLU()), "ab": layers(nn.SiLU())})

    def chosen(only):
        return [row["module"] for row in norms(ladder_torch.swap(model, only=only)) if row["swapped"]]

    assert chosen(None) == ["a.1", "ab.1"]
    assert chosen("a") == chosen(["a.1"]) == chosen(lambda name, module: name[1] == ".") == ["a.1"]
    assert type(model["ab"][1]) is nn.GroupNorm, "a second swap begins anew"
    assert ladder_torch.swap(model, only=["a"])[-1]["note"] == "not in only"
    assert chosen([]) == []
    assert json.loads(ladder_torch.swap(model).to_json())[1]["module"] == "a.1"


@pytest.mark.parametrize(
    "error, words, arguments",
    [
        (TypeError, "swap: model is a list, and a torch.nn.Module is wanted", ([],)),
        (TypeError, "swap: example is a list; the model's", (layers(), [image()])),
        (TypeError, "swap: example is a tuple; the model's", (layers(), (image(), {}))),
        (ValueError, "swap: only has '7', and Sequential has no such module", (layers(), None, ["7"])),
        (ValueError, "swap: only begins as a report's JSON does, but is none", (layers(), None, "[1")),
        (ValueError, "swap: only begins as a report's JSON does, but is none", (layers(), None, '[{"a": 1}]')),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(error, words, arguments):
    with pytest.raises(error, match=words.replace("[", r"\[")):
        ladder_torch.swap(*arguments)
