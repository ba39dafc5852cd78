"""policy: noise and time steps are those of diffusers' schedulers in a loop of their steps, as policies have it."""

import re
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import ladder_torch
import policy_network as network
from ladder_torch.unet1d import exact_fp32

OBSERVATION = torch.linspace(-1, 1, 40).view(2, 20)
TRAINED = network.tiny().scheduler


@pytest.fixture
def diffusers():
    return pytest.importorskip("diffusers", reason="./ladder setup --torch fetches it")


@torch.no_grad()
@exact_fp32()  # PyTorch's convolutions on a GPU take TF32 by default
def looped(module, scheduler, generator, observation=OBSERVATION, x=None, **options):
    """Actions by the module and diffusers' scheduler, as Diffusion Policy and LeRobot make them."""
    device, samples = next(module.parameters()).device, len(observation)
    x = torch.randn((samples, 16, 2), generator=generator, device=device) if x is None else x
    for t in scheduler.timesteps:
        prediction = module(x, t.to(device).expand(samples), global_cond=observation.to(device))
        x = scheduler.step(prediction, t, x, generator=generator, **options).prev_sample
    return x


def compare(kernels, scheduler, steps=None, custom=None, eta=0.0):
    """Our actions and those of the loop with equal seeds, and what the generators draw next."""
    module = network.tiny().module.to(kernels)
    if custom:
        scheduler.set_timesteps(timesteps=custom)
    elif steps:
        scheduler.set_timesteps(steps)
    policy = ladder_torch.policy(module, scheduler, samples=2, eta=eta)
    ours, theirs = (torch.Generator(kernels).manual_seed(5) for _ in range(2))
    actions = policy.sample(OBSERVATION.to(kernels), ours)
    if not scheduler.num_inference_steps and not custom:
        scheduler.set_timesteps(scheduler.config.num_train_timesteps)
    expected = looped(module, scheduler, theirs, **({"eta": eta} if eta else {}))
    assert policy.steps == len(scheduler.timesteps)
    assert (actions - expected).abs().max() <= 2e-5
    assert torch.equal(*(torch.randn(3, generator=each, device=kernels) for each in (ours, theirs)))
    return policy


@pytest.mark.parametrize(
    "kind, config, options",
    [
        ("DDPMScheduler", {}, {}),
        ("DDPMScheduler", {"steps_offset": 1}, {"steps": 3}),  # the last step, at time step 1, draws too
        ("DDPMScheduler", {"timestep_spacing": "trailing"}, {"steps": 4}),
        ("DDPMScheduler", {}, {"custom": [9, 4, 3, 0]}),
        ("DDIMScheduler", {}, {"steps": 5}),
        ("DDIMScheduler", {}, {"steps": 4, "eta": 0.7}),  # a draw at every step
    ],
)
def test_equal_seeds_give_the_actions_of_diffusers(kernels, diffusers, kind, config, options):
    policy = compare(kernels, getattr(diffusers, kind).from_config({**TRAINED, **config}), **options)
    chosen = f"{policy.steps} steps: as the scheduler's set_timesteps() chose"
    assert policy.notes == ([chosen] if options else [])


def test_custom_timesteps_are_not_taken_where_steps_are_said(kernels, diffusers):
    scheduler = diffusers.DDPMScheduler.from_config(TRAINED)
    scheduler.set_timesteps(timesteps=[9, 4, 3, 0])
    assert ladder_torch.policy(network.tiny().module.to(kernels), scheduler, steps=2).steps == 2


@pytest.mark.parametrize("name", ["DPMSolverMultistepScheduler", "EulerDiscreteScheduler"])
def test_other_schedulers_are_refused_by_name(kernels, diffusers, name):
    module = network.tiny().module.to(kernels)
    with pytest.raises(ValueError, match=f"^policy: the scheduler's _class_name '{name}' is not supported"):
        ladder_torch.policy(module, getattr(diffusers, name)())


# --- The README's lines for LeRobot

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


class LeRobotsModel(torch.nn.Module):
    """LeRobot's DiffusionModel, as far as the README's lines use it: attributes, and the loop that they replace."""

    def __init__(self, module, scheduler, steps):
        super().__init__()
        self.unet, self.noise_scheduler, self.num_inference_steps = module, scheduler, steps
        self.config = SimpleNamespace(horizon=16)

    def conditional_sample(self, batch_size, global_cond=None, generator=None, noise=None):
        assert batch_size == len(global_cond)
        self.noise_scheduler.set_timesteps(self.num_inference_steps)
        return looped(self.unet, self.noise_scheduler, generator, observation=global_cond, x=noise)


@pytest.mark.parametrize("kind, steps", [("DDPMScheduler", 10), ("DDPMScheduler", 4), ("DDIMScheduler", 5)])
def test_the_readmes_lines_replace_lerobots_loop(kernels, diffusers, kind, steps):
    (lines,) = re.findall(r"((?:^    .*\n)+)", README[README.index("LeRobot sees to") :].partition("## ")[0], re.M)[:1]
    assert "conditional_sample" in lines and lines.count("\n") == 4
    model = LeRobotsModel(network.tiny().module.to(kernels), getattr(diffusers, kind).from_config(TRAINED), steps)
    observation, noise = OBSERVATION[:1].to(kernels), torch.linspace(-1, 1, 32, device=kernels).view(1, 16, 2)

    def answers():  # as LeRobot 0.3.3 calls it, and as 0.4.2 does
        generator = torch.Generator(kernels).manual_seed(5)
        yield model.conditional_sample(1, global_cond=observation, generator=generator)
        torch.manual_seed(5)
        yield model.conditional_sample(1, global_cond=observation, noise=None)
        if kind == "DDIMScheduler":
            yield model.conditional_sample(1, global_cond=observation, noise=noise)

    expected = list(answers())
    exec(
        compile(textwrap.dedent(lines), "README.md", "exec"),
        {"ladder_torch": ladder_torch, "lerobot_policy": SimpleNamespace(diffusion=model)},
    )
    assert "conditional_sample" in vars(model)
    for actions, theirs in zip(answers(), expected, strict=True):
        assert (actions - theirs).abs().max() <= 2e-5
    if kind == "DDPMScheduler":
        with pytest.raises(ValueError, match="^policy: noise is"):
            model.conditional_sample(1, global_cond=observation, noise=noise)


# --- Tests without diffusers


class DDPMScheduler:
    """A stand-in for diffusers': its configuration, and its time steps once they are set."""

    custom_timesteps, num_inference_steps = False, None

    def __init__(self, **config):
        self.config = {**TRAINED, **config}


def test_a_draw_for_each_step_but_that_at_time_step_0(kernels):
    module = network.tiny().module.to(kernels, torch.bfloat16)
    policy = ladder_torch.policy(module, TRAINED, samples=2, steps=4)
    generator = torch.Generator(kernels).manual_seed(1)
    shape = {"size": (2, 16, 2), "generator": generator, "device": kernels, "dtype": torch.bfloat16}
    initial, *of_steps = [torch.randn(**shape) for _ in range(4)]
    noise = initial, torch.stack([*of_steps, torch.full_like(initial, 1e3)])
    observation = OBSERVATION.to(kernels)
    expected = policy.sample(observation, noise=noise)
    assert torch.equal(policy.sample(observation, torch.Generator(kernels).manual_seed(1)), expected)


def test_time_steps_that_were_set_are_taken(kernels):
    module, custom = network.tiny().module.to(kernels), DDPMScheduler()
    custom.custom_timesteps, custom.timesteps = True, torch.tensor([9, 4, 3, 0])
    answers = []
    for scheduler, steps in ((custom, None), (DDPMScheduler(), 4)):
        policy = ladder_torch.policy(module, scheduler, samples=2, steps=steps)
        noise = [torch.ones(size, device=kernels) for size in ((2, 16, 2), (4, 2, 16, 2))]
        answers.append(policy.sample(OBSERVATION.to(kernels), noise=noise))
    assert not torch.allclose(*answers)
    custom.timesteps = torch.tensor([10, 0])
    with pytest.raises(ValueError, match="^policy: time step 10: 0 to 9 are right"):
        ladder_torch.policy(module, custom)


def test_betas_may_be_a_tensor(kernels):
    module, betas = network.tiny().module.to(kernels), torch.linspace(0.01, 0.2, 10, dtype=torch.float64)
    answers = [
        ladder_torch.policy(module, DDPMScheduler(trained_betas=form), samples=2, steps=2).sample(
            OBSERVATION.to(kernels),
            noise=(torch.ones(2, 16, 2, device=kernels), torch.ones(2, 2, 16, 2, device=kernels)),
        )
        for form in (betas, betas.numpy(), betas.tolist())
    ]
    assert torch.equal(answers[0], answers[1]) and torch.equal(answers[0], answers[2])


@pytest.mark.parametrize(
    "scheduler, options, error, says",
    [
        (
            None,
            {},
            TypeError,
            "scheduler is of type NoneType, and diffusers' DDPMScheduler or DDIMScheduler, or a dict",
        ),
        ("ddpm", {}, TypeError, "scheduler is of type str"),
        (DDPMScheduler, {}, TypeError, "scheduler is of type type"),
        (DDPMScheduler(trained_betas=torch.ones(3)), {}, ValueError, "3 trained_betas for 10"),
        ({**TRAINED, "_class_name": "Other", "lambda_min": -torch.inf}, {}, ValueError, "_class_name 'Other'"),
        ({**TRAINED, "beta_start": torch.inf}, {}, ValueError, "beta_start"),
        (TRAINED, {"steps": 2.5}, TypeError, "steps is 2.5, and a whole number"),
        (TRAINED, {"steps": 2**32 + 5}, ValueError, "steps: from 1 to 10"),
        (TRAINED, {"horizon": "16"}, TypeError, "horizon is '16', and a whole number"),
        (TRAINED, {"samples": None}, TypeError, "samples is None, and a whole number"),
        (TRAINED, {"eta": "half"}, TypeError, "eta is 'half', and a number"),
        (TRAINED, {"eta": torch.nan}, ValueError, "eta is nan, and a finite number"),
    ],
)
def test_what_is_no_setting_is_said_in_a_line(kernels, scheduler, options, error, says):
    with pytest.raises(error, match=f"^policy: .*{says}") as wrong:
        ladder_torch.policy(network.tiny().module.to(kernels), scheduler, **options)
    assert "\n" not in str(wrong.value)


def test_what_is_no_tensor_or_module_is_said_in_a_line(kernels):
    policy = ladder_torch.policy(network.tiny().module.to(kernels), TRAINED, steps=1)
    observation = torch.zeros(1, 20, device=kernels)
    for call, says in (
        (lambda: policy.sample([0.0] * 20), r"a value of type list, and an observation of \(1, 20\)"),
        (lambda: policy.sample(None), "a value of type NoneType, and an observation"),
        (lambda: policy.sample(observation, noise=([0.0], None)), "noise is a value of type list, and"),
        (
            lambda: policy.sample(observation, noise=(torch.zeros(1, 16, 2, device=kernels), 3)),
            "noise is a value of type int",
        ),
        (lambda: ladder_torch.policy({}, TRAINED), "unet is of type dict, and a torch.nn.Module"),
    ):
        with pytest.raises(TypeError, match=f"^policy: {says}") as wrong:
            call()
        assert "\n" not in str(wrong.value)
    with pytest.raises(ValueError, match="^policy: the module is on meta, and on cuda or cpu it is wanted"):
        ladder_torch.policy(network.tiny().module.to("meta"), TRAINED)
