"""policy: the U-Net in a live module is found by its parts, and a step of it decides whether it is the network of its names."""

import pytest
import torch

import ladder_torch
import policy_network as network

SCHEDULER = {**network.tiny().scheduler, "_class_name": "DDIMScheduler"}
OBSERVATION = torch.linspace(-1, 1, 20)[None]
NOISE = (torch.linspace(-2, 2, 32).view(1, 16, 2),)


def prepared(module, device):
    return ladder_torch.policy(module.to(device), SCHEDULER, steps=1)


def actions(policy):
    return policy.sample(OBSERVATION.to(policy.device), noise=(NOISE[0].to(policy.device),))


def unet():
    return network.tiny().module


def replaced(module, kind, make):
    for child_name, child in module.named_children():
        if isinstance(child, kind):
            setattr(module, child_name, make())
        else:
            replaced(child, kind, make)
    return module


# --- Modules with the names of the network and another forward


def with_silu():
    return replaced(unet(), torch.nn.Mish, torch.nn.SiLU)


def with_eps(eps):
    module = unet()
    for each in module.modules():
        if isinstance(each, torch.nn.GroupNorm):
            each.eps = eps
    return module


def with_hook(change):
    module = unet()
    module.mid_modules[0].register_forward_hook(lambda module, inputs, output: change(output))
    return module


def with_class(forward):
    module = unet()
    module.__class__ = type("Mine", (network.ConditionalUnet1D,), {"forward": forward})
    return module


def with_own_forward():
    module = unet()
    module.forward = lambda *inputs, **named: 2 * network.ConditionalUnet1D.forward(module, *inputs, **named)
    return module


def halved(module, sample, t, global_cond):
    return network.ConditionalUnet1D.forward(module, sample, t, global_cond) / 2


def published(module, sample, timestep, local_cond=None, global_cond=None, **_):
    return network.ConditionalUnet1D.forward(module, sample, timestep, global_cond)


def broken(module, sample, t, global_cond):
    raise KeyError("obs")


@pytest.mark.parametrize(
    "make, says",
    [
        (with_silu, r"numbers up to [\d.]+: a SiLU at '"),
        (lambda: with_eps(0.1), r"differs by 0.*: eps 0.1 at 'mid_modules.0.blocks.0.block.1'"),
        (lambda: with_hook(torch.zeros_like), "differs by .*: hooks at 'mid_modules.0'"),
        (with_own_forward, "differs by .*: a forward of its own"),
        (lambda: with_class(halved), "Mine .* differs by .*: its forward, or that of a part, is another one"),
        (lambda: with_class(broken), "Mine .*throws KeyError: 'obs'"),
        (lambda: with_class(lambda module, x, t, global_cond: x[:, 1:]), r"returns \(1, 15, 2\), and \(1, 16, 2\)"),
        (lambda: with_class(lambda module, x, t, global_cond: x * torch.nan), "differs by nan"),
    ],
)
def test_another_forward_is_refused_with_a_likely_cause(kernels, make, says):
    with pytest.raises(ValueError, match=f"^policy: the forward of .*{says}") as wrong:
        prepared(make(), kernels)
    assert "\n" not in str(wrong.value)


def test_settings_without_an_effect_are_noted(kernels):
    assert prepared(unet(), kernels).notes == []
    assert prepared(with_class(published), kernels).notes == []
    assert prepared(with_hook(lambda output: None), kernels).notes == ["not computed: hooks at 'mid_modules.0'"]
    assert "not computed: eps 1.1e-05" in prepared(with_eps(1.1e-5), kernels).notes[0]


def test_the_trial_leaves_the_module_as_it_is(kernels):
    module = replaced(
        unet(), torch.nn.Identity, lambda: torch.nn.Dropout(0.5)
    )  # as in training: half of the numbers are 0
    module.final_conv.eval()
    module.register_buffer("calls", torch.zeros(1), persistent=False)
    module.register_forward_pre_hook(lambda module, inputs: module.calls.add_(torch.rand(1, device=kernels)) and None)
    modes = [each.training for each in module.modules()]
    tensors = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    precisions = torch.backends.cudnn.conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    torch.manual_seed(3)
    expected = torch.rand(4), torch.rand(4, device=kernels)
    torch.manual_seed(3)
    prepared(module, kernels)
    assert all(torch.equal(torch.rand(4, device=one.device), one) for one in expected)
    assert [each.training for each in module.modules()] == modes and module.calls == 0
    assert all(torch.equal(tensor, tensors[name].to(kernels)) for name, tensor in module.state_dict().items())
    assert precisions == (torch.backends.cudnn.conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision)


def test_a_module_of_half_precision_is_tried_in_fp32(kernels):
    assert prepared(unet().half(), kernels).notes == []
    double = ladder_torch.policy(unet().double().to(kernels), SCHEDULER, steps=1, dtype=torch.float32)
    assert torch.equal(actions(double), actions(prepared(unet(), kernels)))
    with pytest.raises(ValueError, match="a SiLU at"):
        prepared(with_silu().bfloat16(), kernels)


def test_versions_of_use_are_not_those_of_the_trial(kernels):
    with ladder_torch.use("policy/step", "v02"):  # of bf16
        policy = ladder_torch.policy(unet().bfloat16().to(kernels), SCHEDULER, steps=1)
    assert {row["pass"] for row in policy.explain()} >= {"policy/step"}


# --- LeRobot's names


class LeRobotsBlock(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.conv1, self.conv2 = block.blocks
        self.cond_encoder, self.residual_conv = block.cond_encoder, block.residual_conv

    def forward(self, x, cond):
        scale, shift = self.cond_encoder(cond)[:, :, None].chunk(2, dim=1)
        return self.conv2(scale * self.conv1(x) + shift) + self.residual_conv(x)


def lerobots():
    module = unet()
    module.mid_modules = torch.nn.ModuleList(map(LeRobotsBlock, module.mid_modules))
    for levels in (module.down_modules, module.up_modules):
        for i, (first, second, resample) in enumerate(levels):
            conv = getattr(resample, "conv", resample)
            levels[i] = torch.nn.ModuleList([LeRobotsBlock(first), LeRobotsBlock(second), conv])
    return module


def test_lerobots_module_is_the_same_network(kernels):
    names = {name.removeprefix("diffusion.unet.") for name in map(network.lerobot_name, unet().state_dict())}
    assert lerobots().state_dict().keys() == names
    assert torch.equal(actions(prepared(lerobots(), kernels)), actions(prepared(unet(), kernels)))


# --- A U-Net in a larger module


class Holder(torch.nn.Module):
    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def encoder():  # with other groups than the U-Net
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.GroupNorm(4, 16))


def published_policy():
    scale = torch.nn.ParameterDict({"scale": torch.ones(2), "offset": torch.zeros(2)})
    normalizer = Holder(params_dict=torch.nn.ParameterDict({"action": scale}))
    return Holder(obs_encoder=encoder(), model=unet(), normalizer=normalizer)


def lerobots_policy():
    names = ("normalize_inputs", "unnormalize_outputs")
    return Holder(
        **{name: Holder(buffer_action=torch.nn.ParameterDict({"mean": torch.zeros(2)})) for name in names},
        diffusion=Holder(rgb_encoder=encoder(), unet=lerobots()),
    )


@pytest.mark.parametrize(
    "make, name, says",
    [
        (published_policy, "model", "normalizer: not applied"),
        (lerobots_policy, "diffusion.unet", "normalize_inputs and unnormalize_outputs: not applied"),
        (lambda: Holder(diffusion=Holder(unet=Holder(_orig_mod=lerobots()))), "unet._orig_mod", "has no normalizer"),
    ],
)
def test_a_whole_policy_is_answered_by_its_unet_and_its_units_are_said(kernels, make, name, says):
    with pytest.warns(UserWarning, match=f"^policy: .*{name}' of Holder.*normalised .*{says}"):
        policy = prepared(make(), kernels)
    assert says in policy.notes[0]
    assert torch.equal(actions(policy), actions(prepared(unet(), kernels)))


def test_wrappers_are_looked_through(kernels, recwarn):
    expected = actions(prepared(unet(), kernels))
    for wrapped in (torch.compile(unet()), Holder(module=unet()), Holder(module=torch.compile(unet()))):
        policy = prepared(wrapped, kernels)
        assert torch.equal(actions(policy), expected) and policy.notes == []
    assert not [warned for warned in recwarn if "policy" in str(warned.message)]


def test_one_of_several_unets_has_to_be_passed(kernels):
    with pytest.raises(ValueError, match="Holder has 2 U-Nets, 'model', 'ema_model': pass one of them"):
        prepared(Holder(model=unet(), ema_model=unet()), kernels)
