"""policy: a live module's answers against the network and the scheduler of reference/pytorch in float64."""

import gc

import pytest
import torch

import ladder_torch
import policy_golden
import policy_network as network

HELD = network.tiny()
OBSERVATION, INITIAL, NOISE = policy_golden.inputs()
DDIM = {**HELD.scheduler, "_class_name": "DDIMScheduler"}


class Scheduler:
    """Base of fake diffusers schedulers, which are identified by class name and have a configuration."""

    def __init__(self, config):
        self.config = {"_use_default_values": ["clip_sample_range"], **config}


class DDPMScheduler(Scheduler):
    pass


def module_on(device, dtype=torch.float32):
    return network.tiny().module.to(device, dtype)


def on(device, *tensors):
    return [tensor.to(device) for tensor in tensors]


def formula(kind, steps, observation=OBSERVATION):
    scheduler = network.Scheduler(HELD.scheduler, kind, steps, torch.float64)
    tensors = [tensor.double() for tensor in (observation, INITIAL, NOISE)]
    with torch.no_grad():
        return scheduler.trajectory(network.tiny().module.double(), *tensors)[1][-1]


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 2e-5), (torch.bfloat16, 0.05)], ids=["fp32", "bf16"])
def test_an_answer_is_the_formulas(kernels, dtype, limit):
    policy = ladder_torch.policy(module_on(kernels, dtype), DDPMScheduler(HELD.scheduler), samples=3)
    assert (policy.observation, policy.horizon, policy.action_dim, policy.steps) == (20, 16, 2, 10)
    assert "10 ddpm steps of 10" in repr(policy)
    observation, initial, noise = on(kernels, OBSERVATION, INITIAL, NOISE)
    answer = policy.sample(observation, noise=(initial, noise))
    assert (answer.cpu() - formula("ddpm", 10)).abs().max() <= limit
    rows = policy.explain()
    assert {"conv1d/block", "diffusion/ddpm_step"} <= {row["pass"] for row in rows} or "policy/step" in str(rows)
    assert sum(row["calls"] for row in rows) > policy.steps


def test_ddim_has_no_noise_but_the_first(kernels):
    policy = ladder_torch.policy(module_on(kernels), DDIM, samples=3, steps=5)
    observation, initial = on(kernels, OBSERVATION, INITIAL)
    first = policy.sample(observation, noise=(initial,))
    assert (first.cpu() - formula("ddim", 5)).abs().max() <= 2e-5
    other = policy.sample(-observation, noise=(initial,))
    assert (other.cpu() - formula("ddim", 5, -OBSERVATION)).abs().max() <= 2e-5
    assert torch.equal(policy.sample(observation.double(), noise=(initial,)), first), "what it was before"


def test_noise_is_of_pytorchs_generator(kernels):
    policy = ladder_torch.policy(module_on(kernels), HELD.scheduler, steps=2)
    observation = OBSERVATION[:1].to(kernels)
    answers = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        answers.append(policy.sample(observation))
    assert torch.equal(answers[0], answers[2]) and not torch.equal(answers[0], answers[1])
    generator = torch.Generator(kernels).manual_seed(1)
    assert torch.equal(policy.sample(observation, generator), answers[0])
    assert not torch.equal(policy.sample(observation, generator), answers[0])


def test_use_and_notes(kernels):
    with ladder_torch.use("conv1d/block", "v01"), ladder_torch.use("policy/step", "off"):
        policy = ladder_torch.policy(module_on(kernels), {"_class_name": "DDIMScheduler"}, steps=2)
    assert "by default" in policy.notes[0]
    of_blocks = {row["version"] for row in policy.explain() if row["pass"] == "conv1d/block"}
    assert of_blocks == {ladder_torch.versions("conv1d/block")[0]}


def test_an_action_that_is_no_number_is_not_given(kernels):
    policy = ladder_torch.policy(module_on(kernels), DDIM, steps=2)
    observation = torch.full((1, 20), torch.nan, device=kernels)
    with pytest.raises(FloatingPointError, match="a number of the observation is not finite"):
        policy.sample(observation)
    assert policy.sample(observation, check=False).shape == (1, 16, 2)
    infinite = torch.full((1, 16, 2), torch.inf, device=kernels)
    with pytest.raises(FloatingPointError, match="an action is not finite"):
        policy.sample(torch.zeros_like(observation), noise=(infinite,))


def without(name):
    module = network.tiny().module
    del module._modules[name]
    return module


@pytest.mark.parametrize(
    "made, options, says",
    [
        (lambda: torch.nn.Linear(3, 4), {}, "Linear"),
        (lambda: without("final_conv"), {}, "'ConditionalUnet1D' .*'final_conv.0.block.0.weight' and 5 more are"),
        (network.tiny, {"steps": 11}, "11 steps: from 1 to 10"),
        (network.tiny, {"steps": 0}, "0 steps: from 1 to 10"),
        (network.tiny, {"horizon": 10}, "horizon 10"),
        (network.tiny, {"eta": 0.5}, "eta 0.5: from 0 to 1, and 0 for ddpm"),
        (network.tiny, {"samples": 0}, "0 samples, and 1 to 65535 are wanted"),
        (network.tiny, {"samples": 65536}, "65536 samples, and 1 to 65535 are wanted"),
        (network.tiny, {"dtype": torch.float64}, "torch.float64, and one of torch.float32"),
        (torch.nn.Identity, {}, "'Identity' has no network of a Diffusion Policy"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(kernels, made, options, says):
    module = made()
    module = getattr(module, "module", module).to(kernels)
    with pytest.raises(ValueError, match=f"^policy: .*{says}") as wrong:
        ladder_torch.policy(module, HELD.scheduler, **options)
    assert "\n" not in str(wrong.value) and "/tmp" not in str(wrong.value)


def test_tensors_of_other_sizes_are_refused_with_the_right_ones(kernels):
    policy = ladder_torch.policy(module_on(kernels), HELD.scheduler, steps=1)
    with pytest.raises(ValueError, match=r"\(1, 19\) on .*, and an observation of \(1, 20\)"):
        policy.sample(torch.zeros(1, 19, device=kernels))
    observation = torch.zeros(1, 20, device=kernels)
    with pytest.raises(ValueError, match=r"noise is \(1, 16, 3\) on .*, and \(1, 16, 2\)"):
        policy.sample(observation, noise=(torch.zeros(1, 16, 3, device=kernels),))
    with pytest.raises(ValueError, match=r"noise is \(0, 1, 16, 2\) on .*, and \(1, 1, 16, 2\)"):
        policy.sample(observation, noise=(torch.zeros(1, 16, 2, device=kernels),))


def test_its_memory_ends_with_it(kernels):
    policy = ladder_torch.policy(module_on(kernels), HELD.scheduler, steps=1)
    number = policy._number
    del policy
    gc.collect()
    like = torch.zeros(1, 20, device=kernels)
    operator = torch.ops.ladder_emulator if kernels == "cpu" else torch.ops.ladder_kernels
    with pytest.raises(RuntimeError, match=f"there is no policy {number}"):
        operator.policy_answer(like, like, like, number)


def test_on_a_cpu_it_needs_the_emulator():
    with ladder_torch.cpu("formula"), pytest.raises(RuntimeError, match="only the emulator answers"):
        ladder_torch.policy(network.tiny().module, HELD.scheduler)
