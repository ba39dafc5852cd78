"""The network and schedulers of reference/pytorch/policy_network.py, and its scripts."""

import json
import sys
from pathlib import Path

import pytest
import torch

import policy_golden
import policy_network as policy
from worker import Refusal


def test_the_published_network_has_the_published_number_of_parameters():
    with torch.device("meta"):
        module = policy.ConditionalUnet1D(2, 1028)
        large = policy.ConditionalUnet1D(2, 132, diffusion_step_embed_dim=128, down_dims=(512, 1024, 2048))
    count = {name: p.numel() for name, p in module.named_parameters()}
    film = sum(number for name, number in count.items() if "cond_encoder" in name)
    time = sum(number for name, number in count.items() if "step_encoder" in name)
    assert (sum(count.values()), film, time) == (79_947_266, 18_421_760, 525_568)
    assert sum(p.numel() for p in large.parameters()) // 1_000_000 == 251


def test_names_are_the_published_ones():
    names = policy.tiny().module.state_dict()
    for layer in (
        "diffusion_step_encoder.1",
        "diffusion_step_encoder.3",
        "down_modules.0.0.blocks.0.block.0",
        "down_modules.0.0.blocks.1.block.1",
        "down_modules.0.0.cond_encoder.1",
        "down_modules.0.0.residual_conv",
        "down_modules.0.2.conv",
        "mid_modules.1.blocks.0.block.0",
        "up_modules.1.2.conv",
        "final_conv.0.block.1",
        "final_conv.1",
    ):
        assert f"{layer}.weight" in names and f"{layer}.bias" in names
    order = ["mid_modules", "diffusion_step_encoder", "up_modules", "down_modules", "final_conv"]
    assert list(dict.fromkeys(name.split(".")[0] for name in names)) == order
    for absent in ("down_modules.0.1.residual_conv", "down_modules.2.2.conv", "mid_modules.0.residual_conv"):
        assert f"{absent}.weight" not in names


def test_a_forward_pass_of_the_published_size():
    torch.manual_seed(0)
    module = policy.ConditionalUnet1D(2, 1028)
    with torch.no_grad():
        out = module(torch.randn(2, 16, 2), torch.tensor([7, 99]), torch.randn(2, 1028))
    assert out.shape == (2, 16, 2) and out.isfinite().all()


@torch.no_grad()
def test_the_time_embedding_has_sines_first_and_both_ends_of_the_frequencies():
    told = policy.TimeEmbedding(8)(torch.tensor([3]), torch.float64)[0]
    angles = 3 * torch.tensor([1, 10000 ** (-1 / 3), 10000 ** (-2 / 3), 1e-4], dtype=torch.float64)
    torch.testing.assert_close(told, torch.cat([angles.sin(), angles.cos()]))


@torch.no_grad()
def test_a_residual_block_is_its_formula():
    torch.manual_seed(0)
    cond, x = torch.randn(3, 5), torch.randn(3, 8, 6)
    for predict_scale in (True, False):
        block = policy.ResidualBlock(8, 16, 5, 3, 8, predict_scale)
        film = torch.nn.functional.linear(torch.nn.functional.mish(cond), *block.cond_encoder[1].parameters())
        scale, shift = (film[:, :16], film[:, 16:]) if predict_scale else (1, film)
        hidden = block.blocks[0](x).movedim(1, 2)
        hidden = (scale[:, None] if predict_scale else 1) * hidden + shift[:, None]
        expected = block.blocks[1](hidden.movedim(1, 2)) + block.residual_conv(x)
        torch.testing.assert_close(block(x, cond), expected)


# Results of diffusers 0.42.1 in fp32: x after one step from X, for the network's output EPS and the noise NOISE.
X, EPS, NOISE = (
    torch.tensor(values) for values in ([0.31, -1.7, 0.004, 2.2], [-0.6, 0.9, 1.3, -0.2], [1.1, -0.4, 0.25, -2.0])
)
COSINE, LINEAR, SCALED = ("squaredcos_cap_v2", 100), ("linear", 1000), ("scaled_linear", 1000)
STEPPED = [
    (COSINE, "ddpm", 100, 0, [1.124685525894165, -0.4690651297569275, 0.2344028353691101, -1.913636326789856]),
    (COSINE, "ddpm", 100, 50, [0.5283774733543396, -1.7342745065689087, 0.0037258490920066833, 1.7981412410736084]),
    (COSINE, "ddpm", 100, 99, [0.32517775893211365, -1.0, -0.028671734035015106, 1.0]),
    (COSINE, "ddim", 16, 0, [-0.3520357012748718, 0.643875777721405, 1.0329959392547607, 0.037084534764289856]),
    (COSINE, "ddim", 16, 8, [0.40437474846839905, -0.3316080570220947, -0.10941869020462036, 0.7204394936561584]),
    (COSINE, "ddim", 8, 4, [0.47729748487472534, -0.5683096051216125, -0.2863244414329529, 0.8421052694320679]),
    (LINEAR, "ddpm", 1000, 0, [0.4625758230686188, -1.739609718322754, 0.0391867496073246, 1.8951730728149414]),
    (LINEAR, "ddpm", 1000, 500, [0.4214158356189728, -1.733114242553711, 0.02594558149576187, 1.9897907972335815]),
    (LINEAR, "ddpm", 1000, 999, [0.316016286611557, -1.0, -0.009001527912914753, 1.0]),
    (SCALED, "ddpm", 1000, 500, [0.3962807059288025, -1.725436806678772, 0.017893541604280472, 2.041282892227173]),
    (SCALED, "ddim", 16, 8, [0.38995546102523804, -0.19912737607955933, 0.05531013011932373, 0.6443929672241211]),
]


@pytest.mark.parametrize("betas, kind, steps, index, expected", STEPPED)
def test_a_step_is_that_of_diffusers(betas, kind, steps, index, expected):
    config = {"beta_schedule": betas[0], "num_train_timesteps": betas[1]}
    for dtype in (torch.float32, torch.float64):
        scheduler = policy.Scheduler(config, kind, steps, dtype)
        told = scheduler.step(X.to(dtype), EPS, scheduler.rows[index], NOISE.to(dtype))
        torch.testing.assert_close(told, torch.tensor(expected, dtype=dtype), rtol=0, atol=5e-7)


def test_what_the_scheduler_does_not_compute_is_refused_by_name():
    for field, value in (("variance_type", "learned"), ("beta_schedule", "sigmoid"), ("prediction_type", "sample")):
        with pytest.raises(Refusal, match=f"{field} '{value}'"):
            policy.Scheduler({field: value})
    for steps in (0, 101):
        with pytest.raises(Refusal, match="1 to 100"):
            policy.Scheduler({}, "ddim", steps)
    with pytest.raises(Refusal, match="local conditioning is not supported"):
        policy.ConditionalUnet1D(2, 20, local_cond_dim=4)


def splitmix64(s):
    wrap = (1 << 64) - 1
    s = (s + 0x9E3779B97F4A7C15) & wrap
    z = ((s ^ s >> 30) * 0xBF58476D1CE4E5B9) & wrap
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & wrap
    return z ^ z >> 31


def test_made_up_weights_are_those_of_the_formula():
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # published
    tensors = policy.tiny().module.state_dict()
    fan_in = {
        "down_modules.1.0.blocks.0.block.0": 32 * 5,
        "up_modules.0.2.conv": 64 * 4,
        "mid_modules.0.cond_encoder.1": 52,
    }
    for i, (name, tensor) in enumerate(tensors.items()):
        layer, _, which = name.rpartition(".")
        for j in (0, tensor.numel() - 1):
            value = 2 * ((splitmix64((i << 32) + j) >> 40) * 2.0**-24) - 1
            if layer in fan_in:
                value /= fan_in[layer] ** 0.5
            elif layer.endswith("block.1"):
                value = value / 4 + (which == "weight")
            else:
                continue
            assert tensor.flatten()[j] == torch.tensor(value, dtype=torch.float32), name


def test_the_golden_file_is_what_the_script_makes():
    held, made = json.loads(policy_golden.OUT.read_text()), json.loads(policy_golden.text(policy_golden.golden()))
    for kind in ("ddpm", "ddim"):
        for what in ("prediction", "trajectory"):
            told, expected = (torch.tensor(file[kind].pop(what), dtype=torch.float64) for file in (made, held))
            torch.testing.assert_close(told, expected, rtol=0, atol=1e-11)
    assert made == held


def test_fp32_follows_the_golden_file_and_its_last_noise_is_not_used():
    held, golden = policy.tiny(), json.loads(policy_golden.OUT.read_text())
    observation, initial, noise = policy_golden.inputs()
    noise[-1] = 1e3
    for kind, steps in (("ddpm", 10), ("ddim", policy_golden.DDIM_STEPS)):
        _, states = policy.Scheduler(held.scheduler, kind, steps).trajectory(held.module, observation, initial, noise)
        torch.testing.assert_close(
            states.double(), torch.tensor(golden[kind]["trajectory"]).double(), rtol=0, atol=1e-4
        )


# --- policy_parity.py and policy_speed.py

STAND_IN = """
import argparse, json, sys
import numpy, torch
import unet_common, policy_network as policy
parser = argparse.ArgumentParser()
parser.add_argument("policy")
for flag in ("observation", "noise", "scheduler-config", "scheduler", "steps", "dtype", "out"):
    parser.add_argument("--" + flag, required=True)
told = parser.parse_args()
held, noise = policy.load(told.policy), unet_common.load_tensors(told.noise)[0]
module = held.module.to({"fp32": torch.float32, "bf16": torch.bfloat16}[told.dtype])
scheduler = policy.Scheduler(json.load(open(told.scheduler_config)), told.scheduler, int(told.steps))
observation = held.normalized(torch.from_numpy(numpy.load(told.observation)))
states = scheduler.trajectory(module, observation, noise["initial"], noise["steps"])[1]
numpy.save(told.out, held.actions(states[-1]).numpy() + WRONG)
"""


@pytest.mark.parametrize("wrong", [0, 1e-3])
def test_parity_compares_a_program_with_float64(wrong, tmp_path, monkeypatch, capsys):
    pytest.importorskip("safetensors")
    import policy_parity
    import unet_common as common

    pairs = {"obs": (torch.full((10,), 2.0), torch.arange(10.0)), "action": torch.tensor([[0.5, 4.0], [1.0, -1.0]])}
    tensors = policy.tiny().module.state_dict()
    for field, (scale, offset) in pairs.items():
        tensors |= {f"{policy.NORMALIZER}{field}.scale": scale, f"{policy.NORMALIZER}{field}.offset": offset}
    told = policy.metadata(8, 16, policy.TINY_SCHEDULER)
    common.save_tensors(tmp_path / "policy.safetensors", tensors, told)
    (tmp_path / "program.py").write_text(STAND_IN.replace("WRONG", str(wrong)))
    monkeypatch.setenv("PYTHONPATH", str(Path(policy.__file__).parent))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(policy_parity, "PREDICTED_AT", (0.5,))
    words = [tmp_path / "policy.safetensors", "--json", tmp_path / "out.json", "--seeds", 1, "--dtypes", "fp32"]
    words += ["--steps", 5, "--device", "cpu", "--program", f"{sys.executable} {tmp_path / 'program.py'}"]
    status = policy_parity.main(list(map(str, words)))
    record = json.loads((tmp_path / "out.json").read_text())
    parts = record["dtypes"]["fp32"]
    assert set(parts) == {"actions", "prediction at 5"}
    assert all(0 < part["pytorch"]["worst"] < 1e-4 for part in parts.values())
    if wrong:
        assert status == 1 and not parts["actions"]["good"] and "NOT within" in capsys.readouterr().out
        assert parts["actions"]["ladder"]["median"] == pytest.approx(4e-3, rel=0.05)  # an action's scale is up to 4
    else:
        assert status == 0 and all(part["good"] for part in parts.values())


def test_speed_records_as_far_as_its_budget_goes(tmp_path, monkeypatch):
    import policy_speed

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "out.json"
    words = f"--json {out} --size tiny --device cpu --samplers ddim8 --batches 1 --answers 3".split()
    assert policy_speed.main([*words, "--only", "streaming", "tiny_fp32_operators", "tiny_bf16_compile"]) == 1
    record = json.loads(out.read_text())
    streaming, operators, compiled = record["variants"].values()
    assert {row["how"] for row in streaming["rows"]} == {"read", "copy"} and "error" not in streaming
    assert [(row["n"], row["sampler"], row["how"]) for row in operators["rows"]] == [(1, "ddim8", "eager")]
    assert operators["rows"][0]["ms"] > 0 and record["versions"]["torch"]
    assert "torch.compile is timed on a GPU only" in compiled["error"]
    assert policy_speed.main([*words, "--only", "streaming", "--budget", "0"]) == 1
    assert "--budget are spent" in json.loads(out.read_text())["variants"]["streaming"]["error"]


def test_the_bytes_of_a_step_are_those_of_convolutions_and_norms():
    import policy_speed

    with torch.device("meta"):
        module = policy.ConditionalUnet1D(2, 1028)
    assert policy_speed.step_bytes(module, 2) == 2 * 60_999_938
