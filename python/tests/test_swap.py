"""swap() and unswap(): what is swapped and what stays, with values and gradients."""

import copy

import pytest
import torch
from bounds import assert_near
from cases import allowed
from swapping import (
    DIFFUSERS,
    SUMS,
    GroupNorm32,
    QKVAttention,
    QKVAttentionLegacy,
    ScaleShiftBlock,
    assert_equal_to_the_formula,
    assert_restored,
    called,
    image,
    layers,
    norms,
    randomised,
    types,
)
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, weight_norm

import ladder_torch
import unet
import unet_common
from ladder_torch import blocks

# --- Swapped modules


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
    """Applies a Linear to the channels of an image. The class itself is not swapped, its child is."""

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
    with allowed(torch.backends.cudnn.conv, "ieee"):
        yield


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


# --- Modules that are not swapped


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
        """improved-diffusion's QKVAttention: heads are part of the batch."""

        def __init__(self):
            super().__init__(1)
            del self.n_heads


class Misnamed:
    class QKVAttentionLegacy(QKVAttention):
        """QKVAttention's order of channels under the name of the other class."""


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
    nn.init.zeros_(block.conv2.weight), nn.init.zeros_(block.conv2.bias)  # hides the layers before it
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
    assert {row["note"] for row in report} == {
        "gets only inputs that are not fp32, bf16 or fp16, or whose channels are not innermost"
    }
    assert not any(row["swapped"] for row in report) and types(model) == types(before)
