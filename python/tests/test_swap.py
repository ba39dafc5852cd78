"""swap() and unswap(): what is swapped and what stays, values and gradients, and that a model remains what it was."""

import copy
import io
import json
import pickle

import pytest
import torch
from bounds import assert_near
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, weight_norm
from torch.utils._python_dispatch import TorchDispatchMode

import ladder_torch
import unet
import unet_common
from ladder_torch import blocks, measure

DIFFUSERS = "diffusers==0.42.1 with huggingface_hub, importlib_metadata, regex, requests, safetensors and pillow"
SUMS = 4096  # terms that an output of these small networks depends on: 2.4e-4 of a tensor's norm is allowed


class GroupNorm32(nn.GroupNorm):
    """As guided-diffusion has it."""

    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)


class SiLU(nn.Module):
    """As guided-diffusion has it."""

    def forward(self, x):
        return x * torch.sigmoid(x)


class QKVAttentionLegacy(nn.Module):
    """As guided-diffusion has it."""

    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def parts(self, qkv):
        n, width, length = qkv.shape
        return qkv.reshape(n * self.n_heads, width // self.n_heads, length).chunk(3, dim=1)

    def forward(self, qkv):
        q, k, v = self.parts(qkv)
        weight = torch.einsum("bct,bcs->bts", q, k) / q.shape[1] ** 0.5
        return torch.einsum("bts,bcs->bct", weight.softmax(-1), v).reshape(qkv.shape[0], -1, qkv.shape[2])


class QKVAttention(QKVAttentionLegacy):
    """As guided-diffusion has it."""

    def parts(self, qkv):
        return [part.reshape(-1, part.shape[1] // self.n_heads, part.shape[2]) for part in qkv.chunk(3, dim=1)]


class ScaleShiftBlock(nn.Module):
    """guided-diffusion's ResBlock with use_scale_shift_norm, which takes its Sequentials apart."""

    def __init__(self, channels=8):
        super().__init__()
        self.in_layers = nn.Sequential(GroupNorm32(4, channels), SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
        self.out_layers = nn.Sequential(GroupNorm32(4, channels), SiLU(), nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x):
        h = self.in_layers[-1](self.in_layers[:-1](x))
        return x + self.out_layers[1:](self.out_layers[0](h) * 1.5 + 0.5)


def layers(*more, channels=8, **kwargs):
    first, last = (nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, channels), (channels, 4)))
    return randomised(nn.Sequential(first, nn.GroupNorm(4, channels, **kwargs), *more, last))


def randomised(model):
    """Values that no layer is blind to, channels_last."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + 0.1)
    return model.to(memory_format=torch.channels_last)


def image(*sizes, seed=1):
    x = torch.randn(sizes or (2, 3, 6, 5), generator=torch.Generator().manual_seed(seed))
    return x.to(memory_format=torch.channels_last)


def results(model, *inputs):
    """The output and the gradients, by name, the input's among them."""
    x = inputs[0].detach().requires_grad_()
    y = model(x, *inputs[1:])
    y = y if isinstance(y, torch.Tensor) else y.sample
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.dtype)
    wanted = {"x": x, **dict(model.named_parameters())}
    gradients = torch.autograd.grad(y, list(wanted.values()), dy)
    return {"y": y.detach(), **dict(zip(wanted, gradients))}


def assert_equal_to_the_formula(model, *inputs, dtype=torch.float64):
    """`model`, swapped, against the same in double precision, unswapped."""
    exact = copy.deepcopy(model)
    ladder_torch.unswap(exact)
    expected = results(exact.to(dtype), *(each.to(dtype) if each.is_floating_point() else each for each in inputs))
    largest = max(each.norm() for each in expected.values())
    for name, result in results(model, *inputs).items():
        if expected[name].norm() < 1e-9 * largest:  # zero but for rounding, as of the bias of attention's keys
            assert result.norm() < 1e-5 * largest, name
        else:
            assert_near(result, expected[name], name, SUMS)


class Called(TorchDispatchMode):
    """The operators that a `with` calls, whatever their namespace."""

    def __enter__(self):
        self.names = []
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name().partition("::")[2])
        return function(*args, **(kwargs or {}))


def called(model, *inputs):
    with torch.no_grad(), Called() as calls:
        model(*inputs)
    return calls.names


def norms(report):
    """Its rows of GroupNorm and of guided-diffusion's SiLU."""
    return [row for row in report if row["kind"].startswith(("GroupNorm", "SiLU"))]


def types(model):
    return [type(module) for module in model.modules()]


def assert_restored(model, before, *inputs):
    """unswap() gives back the types, and the bits, of `before`, a copy."""
    ladder_torch.unswap(model)
    assert types(model) == types(before)
    mine, theirs = results(model, *inputs), results(before, *inputs)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


# --- What is swapped


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Mish, nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("options", [{"eps": 0.3}, {"affine": False}])
def test_a_norm_and_its_activation_in_one(activation, options):
    model = layers(activation(), **options)
    before = copy.deepcopy(model)
    report = ladder_torch.swap(model, (image(),))
    assert_equal_to_the_formula(model, image())
    own = [name for name in called(model, image()) if activation.__name__.lower() in name]
    together = activation is not nn.Tanh
    assert all(row["swapped"] for row in report) and len(own) == (0 if together else 1)
    assert report[1]["kind"] == (f"GroupNorm + {activation.__name__}" if together else "GroupNorm")
    assert_restored(model, before, image())


def test_the_tiny_unet_of_guided_diffusion():
    model = unet.UNet(unet.CONFIGS["tiny"]).to(memory_format=torch.channels_last)
    unet_common.randomise(model, 0)
    before, inputs = copy.deepcopy(model), (image(2, 3, 8, 8), torch.tensor([0, 999]))
    report = ladder_torch.swap(model, inputs)
    kinds = (nn.GroupNorm, nn.Conv2d, nn.Linear)
    assert [row["module"] for row in report] == [n for n, each in before.named_modules() if isinstance(each, kinds)]
    assert all(row["swapped"] for row in report)
    alone = [row["module"] for row in report if row["kind"] == "GroupNorm"]
    assert alone and all(name.endswith(".norm") for name in alone), "attention's norms have no activation"
    assert_equal_to_the_formula(model, *inputs)
    names = called(model, *inputs)
    assert names.count("group_norm_act") == len(norms(report)) and "native_group_norm" not in names
    assert_restored(model, before, *inputs)


@pytest.mark.parametrize("options", [{}, {"resnet_time_scale_shift": "scale_shift", "downsample_type": "resnet",
                                         "upsample_type": "resnet", "act_fn": "mish"}])  # fmt: skip
def test_a_tiny_unet_of_diffusers(options):
    diffusers = pytest.importorskip("diffusers", reason=f"needs {DIFFUSERS}")
    model = diffusers.UNet2DModel(
        sample_size=8, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8, attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), **options,
    ).to(memory_format=torch.channels_last)  # fmt: skip
    unet_common.randomise(model, 0)
    before, inputs = copy.deepcopy(model), (image(2, 3, 8, 8), torch.tensor([0, 999]))
    report = ladder_torch.swap(model, inputs)
    rows = {row["module"]: row for row in report}
    assert rows and all(row["swapped"] or row["note"].startswith("stride (2, 2)") for row in report)
    act = "Mish" if options else "SiLU"
    assert rows["mid_block.resnets.0.norm1"]["kind"] == f"GroupNorm + {act}"
    assert rows["mid_block.resnets.0.norm2"]["kind"] == ("GroupNorm" if options else f"GroupNorm + {act}")
    assert_equal_to_the_formula(model, *inputs)
    assert_restored(model, before, *inputs)


class Rows(nn.Linear):
    """Of an image, its channels as features: not itself swapped, what is in it is."""

    def __init__(self):
        super().__init__(1, 1)
        self.inner = nn.Linear(8, 5)

    def forward(self, x):
        return self.inner(x.movedim(1, -1)).movedim(-1, 1) * self.weight + self.bias


@pytest.mark.parametrize(
    "module, operator",
    [
        (nn.Conv2d(8, 5, 3, padding=1), "conv2d_3x3"),
        (nn.Conv2d(8, 5, 3, padding=1, bias=False), "conv2d_3x3"),
        (nn.Conv2d(8, 5, 1), "linear"),
        (nn.Conv2d(8, 5, 1, bias=False), "linear"),
        (Rows(), "linear"),
        (nn.AvgPool2d(2), "avg_pool2x2"),
        (nn.AvgPool2d((2, 2)), "avg_pool2x2"),
    ],
)
def test_a_module_alone(module, operator):
    model = randomised(nn.Sequential(nn.GroupNorm(1, 8), module))
    before, x = copy.deepcopy(model), image(2, 8, 6, 4)
    report = ladder_torch.swap(model, (x,))
    assert report[-1]["swapped"] and called(model, x).count(operator) == 1
    assert_equal_to_the_formula(model, x)
    other = image(2, 8, 7, 4).contiguous()
    assert_near(model(other).detach(), before(other).detach(), sums_of=SUMS)
    assert operator not in called(model[1], other), "other layouts, and odd sizes, are PyTorch's"
    assert model[1](x[:0]).shape == before[1](x[:0]).shape
    assert_restored(model, before, x)


def test_guided_diffusions_own_classes_by_name():
    model = randomised(nn.Sequential(nn.Conv2d(3, 8, 1), ScaleShiftBlock()))
    before = copy.deepcopy(model)
    report = ladder_torch.swap(model, (image(),))
    assert [row["swapped"] for row in norms(report)] == [True] * 4
    assert_equal_to_the_formula(model, image(), dtype=torch.float32)  # GroupNorm32 takes no other
    assert model[1].in_layers[0](image(2, 8, 4, 4).bfloat16()).dtype == torch.bfloat16
    names = called(model, image())
    assert names.count("group_norm_act") == 2 and names.count("silu") == 1, "out_layers come apart"
    assert_restored(model, before, image())


@pytest.mark.parametrize("kind", [QKVAttention, QKVAttentionLegacy])
def test_guided_diffusions_attention(kind):
    model = nn.Sequential(kind(2))
    before, qkv = copy.deepcopy(model), torch.randn(3, 24, 7, generator=torch.Generator().manual_seed(5))
    innermost = qkv.mT.contiguous().mT
    assert ladder_torch.swap(model, (qkv,))[0]["swapped"] and "attention_qkv" in called(model, qkv)
    for x in (qkv, innermost):
        assert_equal_to_the_formula(model, x)
    assert model(qkv).is_contiguous() and model(innermost).mT.is_contiguous()
    assert_restored(model, before, qkv)


def test_what_one_activation_does_elsewhere_it_still_does():
    act = nn.SiLU()
    model = randomised(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Sequential(nn.GroupNorm(2, 8), act), nn.Sequential(act)))
    assert norms(ladder_torch.swap(model))[0]["kind"] == "GroupNorm + SiLU"
    assert_equal_to_the_formula(model, image())
    seen = []
    act.register_forward_hook(lambda *_: seen.append(1))
    model(image())
    assert len(seen) == 2, "a hook of later splits the two again"


@pytest.fixture
def without_tf32():
    precision = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    yield
    torch.backends.cudnn.conv.fp32_precision = precision


def test_kernels_run_and_are_named(kernels, without_tf32):
    model = layers(nn.SiLU()).to(kernels)
    report = ladder_torch.swap(model, (image().to(kernels),))
    rows = {row["module"]: row for row in report}
    assert "groupnorm/forward v" in rows["1"]["version"] and "silu" in rows["1"]["problem"]
    assert all("conv3x3/fprop v" in rows[name]["version"] for name in "03")
    if kernels == "cuda":
        assert all(row["us_before"] > 0 and row["us_after"] > 0 for row in report)
    ladder_torch.swap(model)
    assert_near(model(image().to(kernels)), layers(nn.SiLU()).double()(image().double()), sums_of=SUMS)


# --- What stays


def hooked(register):
    model = layers(nn.SiLU())
    getattr(model[1], register)(lambda *_: None)
    return model


def patched():
    model = layers(nn.SiLU())
    model[1].forward = model[1].forward
    return model


class Own(nn.GroupNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class Glide:
    class GroupNorm32(nn.GroupNorm):
        def forward(self, x):
            return functional.silu(super().forward(x.float()).to(x.dtype))


class Wider:
    class GroupNorm32(GroupNorm32):
        def forward(self, x, scale=1):
            return scale * super().forward(x)


class Hard:
    class SiLU(nn.Module):
        def forward(self, x):
            return functional.hardswish(x)


class Improved:
    class QKVAttention(QKVAttention):
        """improved-diffusion's: heads are in the batch."""

        def __init__(self):
            super().__init__(1)
            del self.n_heads


class Misnamed:
    class QKVAttentionLegacy(QKVAttention):
        """The other order, by a wrong name."""


def with_norm(norm):
    return randomised(nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.SiLU()))


@pytest.mark.parametrize(
    "build, words",
    [
        (lambda: with_norm(Own(4, 8)), "a subclass of GroupNorm"),
        (lambda: with_norm(Glide.GroupNorm32(4, 8)), "the forward of this GroupNorm32 is none that is known"),
        (lambda: with_norm(Wider.GroupNorm32(4, 8)), "the forward of this GroupNorm32 is none that is known"),
        (lambda: with_norm(Hard.SiLU()), "the forward of this SiLU is none that is known"),
        (lambda: with_norm(parametrizations.weight_norm(nn.GroupNorm(4, 8), dim=None)), "parametrized: weight"),
        (lambda: with_norm(weight_norm(nn.GroupNorm(4, 8), dim=None)), "has hooks"),
        (lambda: hooked("register_forward_hook"), "has hooks"),
        (lambda: hooked("register_forward_pre_hook"), "has hooks"),
        (lambda: hooked("register_full_backward_hook"), "has hooks"),
        (lambda: hooked("register_full_backward_pre_hook"), "has hooks"),
        (patched, "its forward was replaced"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_what_must_stay_stays_and_the_report_says_why(build, words):
    model = build()
    before, expected = types(model), model(image())
    report = [
        row for row in ladder_torch.swap(model, only=lambda name, module: name == "1") if row["note"] != "not in only"
    ]
    assert [(row["swapped"], row["note"]) for row in report] == [(False, words)]
    assert types(model) == before and torch.equal(model(image()), expected)


def conv(**options):
    return randomised(nn.Conv2d(3, 6, **{"kernel_size": 3, "padding": 1, **options}))


@pytest.mark.parametrize("module", [Improved.QKVAttention(), Misnamed.QKVAttentionLegacy(2)])
def test_attention_of_another_kind_stays(module):
    name = type(module).__name__
    assert ladder_torch.swap(module)[0]["note"] == f"the forward of this {name} is none that is known"
    assert not isinstance(module, blocks.StandIn)


@pytest.mark.parametrize(
    "module, words",
    [
        (conv(kernel_size=5, padding=2), "kernel_size (5, 5); (3, 3) or (1, 1) is swapped"),
        (conv(padding=0), "padding (0, 0); (1, 1) is swapped"),
        (conv(kernel_size=1), "padding (1, 1); (0, 0) is swapped"),
        (conv(stride=2), "stride (2, 2); (1, 1) is swapped"),
        (conv(dilation=2), "dilation (2, 2); (1, 1) is swapped"),
        (conv(groups=3), "groups 3; 1 is swapped"),
        (conv(padding_mode="circular"), "padding_mode circular; zeros is swapped"),
        (nn.AvgPool2d(3), "kernel_size 3; 2 or (2, 2) is swapped"),
        (nn.AvgPool2d((2, 1)), "kernel_size (2, 1); 2 or (2, 2) is swapped"),
        (nn.AvgPool2d(2, 1), "stride 1; 2 or (2, 2) is swapped"),
        (nn.AvgPool2d(2, padding=1), "padding 1; 0 or (0, 0) is swapped"),
        (nn.AvgPool2d(2, ceil_mode=True), "ceil_mode True; False is swapped"),
        (nn.AvgPool2d(2, divisor_override=3), "divisor_override 3; None is swapped"),
    ],
)
def test_what_is_set_otherwise_stays(module, words):
    kind, expected = type(module), module(image())
    assert [row["note"] for row in ladder_torch.swap(module)] == [words]
    assert type(module) is kind and torch.equal(module(image()), expected)


def test_nothing_is_taken_in_one_where_the_parent_is_hooked():
    model = layers(nn.SiLU())
    model.register_forward_hook(lambda *_: None)
    report = ladder_torch.swap(model)
    assert type(model) is nn.Sequential and report[1]["kind"] == "GroupNorm"
    assert report[1]["note"] == "alone: the model: has hooks"
    model = layers(nn.SiLU())
    model[2].register_forward_hook(lambda *_: None)
    assert ladder_torch.swap(model)[1]["kind"] == "GroupNorm"


def test_a_block_with_a_forward_of_its_own_does_not_pass_for_diffusers():
    resnet = pytest.importorskip("diffusers.models.resnet", reason=f"needs {DIFFUSERS}")

    class ResnetBlock2D(resnet.ResnetBlock2D):
        def forward(self, input_tensor, temb):
            return super().forward(input_tensor, 2 * temb)

    block = ResnetBlock2D(in_channels=8, temb_channels=4, groups=4)
    nn.init.zeros_(block.conv2.weight), nn.init.zeros_(block.conv2.bias)  # hides what is before it
    report = ladder_torch.swap(block)
    assert type(block) is ResnetBlock2D and [row["kind"] for row in norms(report)] == ["GroupNorm"] * 2
    assert norms(report)[0]["note"] == "alone: the model: the forward of this ResnetBlock2D is none that is known"


def test_other_layouts_and_double_precision_go_to_pytorch():
    model, x = layers(nn.SiLU()).to(memory_format=torch.contiguous_format), image().contiguous()
    before = copy.deepcopy(model)
    assert all(row["swapped"] for row in ladder_torch.swap(model))
    assert torch.equal(model(x), before(x)) and model(x).stride() == before(x).stride()
    assert torch.equal(model.double()(image().double()), before.double()(image().double()))
    report = ladder_torch.swap(model.float(), (x,))
    assert {row["note"] for row in report} == {"gets only inputs of float64 or with channels not innermost"}
    assert not any(row["swapped"] for row in report) and types(model) == types(before)


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
