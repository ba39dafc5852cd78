"""python -m ladder_torch.export: a checkpoint's weights, normalizer and settings, and what is refused before it writes."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ladder_torch
import policy_network as network
import unet_common as common
from ladder_torch import export, library

if not library.halves():
    pytest.skip("the files are read by a library of the package", allow_module_level=True)


class Foreign:
    """Not a plain value."""


SCHEDULER = {"num_train_timesteps": 50, "beta_schedule": "squaredcos_cap_v2", "clip_sample": True}
LEROBOT = {
    "type": "diffusion",
    "n_obs_steps": 2,
    "horizon": 16,
    "n_action_steps": 8,
    "input_features": {"observation.state": {"type": "STATE", "shape": [10]}},
    "output_features": {"action": {"type": "ACTION", "shape": [2]}},
    "down_dims": [32, 64, 128],
    "kernel_size": 5,
    "n_groups": 8,
    "diffusion_step_embed_dim": 32,
    "use_film_scale_modulation": True,
    "noise_scheduler_type": "DDIM",
    "num_train_timesteps": 10,
    "beta_schedule": "squaredcos_cap_v2",
    "beta_start": 0.0001,
    "beta_end": 0.02,
    "prediction_type": "epsilon",
    "clip_sample": True,
    "clip_sample_range": 1.0,
    "num_inference_steps": 4,
}


@pytest.fixture
def exported(tmp_path, capsys):
    """Exports a checkpoint; returns (exit status, what was printed, the file). A refusal leaves no file."""

    def call(checkpoint, *words, name="policy.ckpt", to="out.safetensors"):
        path, out = tmp_path / name, tmp_path / to
        if isinstance(checkpoint, bytes):
            path.write_bytes(checkpoint)
        elif checkpoint is not None:
            torch.save(checkpoint, path)
        before = sorted(tmp_path.iterdir())
        status = export.main([str(path), str(out), *words])
        captured = capsys.readouterr()
        if status:
            assert captured.err.count("\n") == 1 and not captured.out and sorted(tmp_path.iterdir()) == before
        return status, captured.out + captured.err, out

    return call


def tensors_of():
    return network.tiny().module.state_dict()


def config(policy=(), scheduler=(), **more):
    target = {"_target_": "diffusers.schedulers.scheduling_ddpm.DDPMScheduler", **SCHEDULER, **dict(scheduler)}
    return {"horizon": 8, "policy": {"noise_scheduler": target, "model": {"n_groups": 4}, **dict(policy)}, **more}


def workspace(cfg=None, **more):
    """A checkpoint as Diffusion Policy's trainer writes them, whose averaged weights are the tiny ones."""
    parts = {"model." + name: tensor for name, tensor in tensors_of().items()}
    parts |= {
        "normalizer.params_dict.obs.scale": torch.full((10,), 2.0),
        "normalizer.params_dict.obs.offset": torch.arange(10.0),
        "normalizer.params_dict.obs.input_stats.min": torch.zeros(10),
        "normalizer.params_dict.action.scale": torch.tensor([0.5, 4.0]),
        "normalizer.params_dict.action.offset": torch.tensor([1.0, -1.0]),
        "mask_generator._dummy_variable": torch.zeros(0),
        "obs_encoder.conv1.weight": torch.zeros(3),
    }
    trained = {name: tensor + 1 for name, tensor in parts.items()}
    return {"cfg": cfg or config(), "state_dicts": {"model": trained, "ema_model": parts, "optimizer": {}}, **more}


def write_lerobot(folder, settings):
    tensors = {network.lerobot_name(name): tensor for name, tensor in tensors_of().items()}
    common.save_tensors(folder / "model.safetensors", {**tensors, "normalize_inputs.mean": torch.zeros(2)})
    (folder / "config.json").write_text(json.dumps(settings))
    return tensors


def assert_tiny(module):
    expected = tensors_of()
    assert module.state_dict().keys() == expected.keys()
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def settings_in(file):
    return json.loads(common.load_tensors(file)[1][network.METADATA_KEY])


def test_a_checkpoint_becomes_its_averaged_weights_configuration_and_normalizer(exported):
    status, told, out = exported(workspace(config({"num_inference_steps": 16})))
    assert status == 0 and "ema_model; actions of 2, observations of 20, channels 32, 64, 128, 5 taps, 4 groups" in told
    assert "horizon 8, 16 ddpm steps of 50; normalizer of obs and action" in told
    held = network.load(out)
    assert_tiny(held.module)
    assert held.horizon == 8 and held.module.final_conv[0].block[1].num_groups == 8
    assert held.module.mid_modules[0].blocks[0].block[1].num_groups == 4
    assert held.scheduler == {"_class_name": "DDPMScheduler", **SCHEDULER} and settings_in(out)["steps"] == 16
    torch.testing.assert_close(held.normalized(torch.ones(1, 20)), 2 + torch.arange(10.0).repeat(2)[None])
    torch.testing.assert_close(held.actions(torch.ones(1, 3, 2)), torch.tensor([0.0, 0.5]).expand(1, 3, 2))
    assert not any("obs_encoder" in name for name in common.load_tensors(out)[0])
    assert out.stat().st_mode & 0o077 == Path(out.parent / "policy.ckpt").stat().st_mode & 0o077


def test_a_state_dict_is_enough_and_what_it_does_not_say_is_printed(exported):
    tensors = {f"noise_pred_net.{name}": tensor for name, tensor in tensors_of().items()}
    status, told, out = exported({**tensors, "vision_encoder.conv1.weight": torch.zeros(3)}, "--horizon", "32")
    assert status == 0 and "groups 8: the default" in told and "clip_sample true, num_train_timesteps 100" in told
    assert "in the network's units, as a rule normalised" in told and "horizon 32" in told
    assert_tiny(network.load(out).module)
    assert settings_in(out) == {"horizon": 32}


def test_python_objects_are_read_only_if_trusted(exported):
    status, told, _ = exported(workspace(pickles=Foreign()))
    assert status == 1 and "--trust-pickle" in told
    status, told, out = exported(workspace(pickles=Foreign()), "--trust-pickle")
    assert status == 0
    assert_tiny(network.load(out).module)


def test_lerobots_tensors_stay_as_they_are_and_its_settings_join_them(exported, tmp_path):
    tensors = write_lerobot(tmp_path, LEROBOT)
    assert "diffusion.unet.down_modules.0.0.conv1.block.0.weight" in tensors
    status, told, out = exported(None, name="model.safetensors")
    assert status == 0 and "default" not in told and "4 ddim steps of 10" in told
    assert "in the network's units, as a rule normalised: not applied: normalize_inputs" in told
    assert common.load_tensors(out)[0].keys() == {*tensors, "normalize_inputs.mean"}
    held, settings = network.load(out), settings_in(out)
    assert_tiny(held.module)
    assert held.scheduler == {
        "_class_name": "DDIMScheduler",
        **{key: LEROBOT[key] for key in held.scheduler if key != "_class_name"},
    }
    assert (settings["groups"], settings["horizon"], settings["steps"]) == (8, 16, 4)
    again = exported(None, name="out.safetensors")[2]  # its own file, over itself
    assert settings_in(again) == settings
    assert exported(None, name=".")[0] == 0 and settings_in(out) == settings  # the folder


def test_a_given_scheduler_replaces_the_files_with_its_steps(exported, tmp_path):
    file = tmp_path / "scheduler_config.json"
    given = {"_class_name": "DDIMScheduler", "num_train_timesteps": 10, "lambda_min_clipped": -math.inf}
    file.write_text(json.dumps(given))
    status, told, out = exported(workspace(config({"num_inference_steps": 16})), "--scheduler-config", str(file))
    assert status == 0 and "10 ddim steps of 10" in told and "steps" not in settings_in(out)


TENSORS = tensors_of()
WIDE = network.ConditionalUnet1D(2, 20, 32, (32, 64), kernel_size=9).state_dict()


@pytest.mark.parametrize(
    "checkpoint, says",
    [
        (b"", "no checkpoint that can be read"),
        (b"not a pickle", "no checkpoint"),
        ([1, 2], "this is a list"),
        ({"state_dicts": {"optimizer": {}}}, "neither ema_model nor model"),
        ({"a": 1}, "no named tensors"),
        ({"a": torch.zeros(2)}, "no network of a Diffusion Policy: none of its 1 tensors"),
        ({**TENSORS, "local_cond_encoder.0.weight": torch.zeros(2)}, "local conditioning is not supported"),
        ({**TENSORS, "mid_modules.0.cond_encoder.1.weight": torch.zeros(2, 2)}, "[2, 2]"),
        ({name: tensor for name, tensor in TENSORS.items() if name != "final_conv.1.bias"}, "'final_conv.1.bias'"),
        ({**TENSORS, "final_conv.1.bias": torch.tensor([0, math.nan])}, "'final_conv.1.bias' has a number that is not"),
        ({**TENSORS, **{f"ema.{name}": tensor for name, tensor in TENSORS.items()}}, "two networks"),
        (WIDE, "taps of a convolution: 1, 3, 5 or 7, not 9"),
        ({**TENSORS, "normalizer.params_dict.action.scale": torch.ones(2)}, "action.offset' is missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tensors_that_denoise_refuses_are_refused(exported, checkpoint, says):
    status, told, out = exported(checkpoint)
    assert status == 1 and says in told and str(out) not in told, told


@pytest.mark.parametrize(
    "cfg, says",
    [
        (config({"model": {"n_groups": 0}}), "its groups 0 is not supported: a whole number from 1 to"),
        (config({"n_groups": 3}), "groups 3: they divide the channels of every level, 32, 64, 128, as 1, 2, 4, 8, 16"),
        (config({"horizon": 10}), "horizon 10: 3 levels halve it 2 times, so that it is a multiple of 4"),
        (config({"num_inference_steps": 51}), "51 steps: from 1 to 50"),
        (config({"num_inference_steps": "4"}), 'its steps "4" is not supported: a whole number'),
        (config({"noise_scheduler": "DDPM"}), "its scheduler is no JSON object"),
        (
            config(scheduler={"_target_": "diffusers.DPMSolverMultistepScheduler"}),
            "_class_name 'DPMSolverMultistepScheduler' is not supported; there are: DDPM",
        ),
        (config(scheduler={"prediction_type": "flow"}), "prediction_type 'flow' is not supported; there are: epsilon"),
        (config(scheduler={"beta_schedule": "sigmoid"}), "beta_schedule 'sigmoid' is not supported; there are: linear"),
        (
            config(scheduler={"beta_schedule": "linear", "beta_end": math.nan}),
            'beta_end "nan" is not supported: a number',
        ),
        (config(scheduler={"variance_type": "learned"}), "variance_type 'learned' is not supported; there are: fixed"),
        (config(scheduler={"timestep_spacing": "log"}), "timestep_spacing 'log' is not supported; there are: leading"),
        (config(scheduler={"thresholding": True}), "thresholding is not supported: it must be false"),
        (config(scheduler={"clip_sample_range": 0}), "clip_sample_range is 0: more than 0"),
        (config(scheduler={"num_train_timesteps": 0}), "num_train_timesteps 0 is not supported: a whole number from 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_denoise_refuses_are_refused(exported, cfg, says):
    status, told, out = exported(workspace(cfg))
    assert status == 1 and says in told and "policy.ckpt" in told and str(out) not in told, told


@pytest.mark.parametrize(
    "setting, says",
    [
        ({"type": "act"}, "type 'act' is not supported; there are: diffusion"),
        ({"kernel_size": 3}, "kernel_size 3, but the tensors of model.safetensors have 5"),
        ({"down_dims": [32, 64]}, "down_dims [32, 64], but the tensors of model.safetensors have [32, 64, 128]"),
        ({"n_groups": 5}, "groups 5: they divide"),
        ({"noise_scheduler_type": "DPM"}, "noise_scheduler_type 'DPM' is not supported; there are: DDPM, DDIM"),
        ({"num_inference_steps": 11}, "num_inference_steps 11 is not supported: a whole number from 1 to 10"),
        ({"n_obs_steps": 3}, "n_obs_steps 3, but the network's observation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_folder_that_denoise_refuses_is_refused(exported, tmp_path, setting, says):
    write_lerobot(tmp_path, {**LEROBOT, **setting})
    status, told, _ = exported(None, name="model.safetensors")
    assert status == 1 and says in told, told


def test_a_missing_setting_of_lerobots_is_refused(exported, tmp_path):
    write_lerobot(tmp_path, {key: value for key, value in LEROBOT.items() if key != "beta_schedule"})
    status, told, _ = exported(None, name="model.safetensors")
    assert status == 1 and "beta_schedule is missing" in told


def test_a_file_that_cannot_be_checked_is_not_written(exported, monkeypatch):
    for name in ("CUDA", "EMULATOR"):
        half = library.Half(name.lower(), "cpu")
        half.file = Path("nowhere") / f"_{name.lower()}.so"
        monkeypatch.setattr(library, name, half)
    status, told, _ = exported(workspace())
    assert status == 1 and "so none is written: ladder_torch was built without _cuda.so" in told


def test_damaged_checkpoints_and_wrong_paths_end_with_a_line(exported, tmp_path):
    torch.save(workspace(), tmp_path / "full.ckpt")
    full = (tmp_path / "full.ckpt").read_bytes()
    for cut in (10, 1000, len(full) // 2, len(full) - 5):
        assert exported(full[:cut])[0] == 1
    assert exported(b"no tensors", name="no.safetensors")[0] == 1
    assert "absent.ckpt: no such file" in exported(None, name="absent.ckpt")[1]
    assert "absent: no such folder" in exported(workspace(), to="absent/out.safetensors")[1]
    (tmp_path / "folder").mkdir()
    assert exported(workspace(), to="folder")[0] == 1
    assert "scheduler.json" in exported(workspace(), "--scheduler-config", str(tmp_path / "scheduler.json"))[1]


def test_a_failed_export_keeps_the_file_of_the_last_one(exported):
    _, _, out = exported(workspace())
    before = out.read_bytes()
    assert exported(workspace(config({"n_groups": 3})))[0] == 1 and out.read_bytes() == before


def test_the_module_is_a_program_with_help_and_usage(tmp_path):
    torch.save(workspace(), tmp_path / "policy.ckpt")
    for words, status, says in (
        (["--help"], 0, "--trust-pickle"),
        (["policy.ckpt"], 2, "required: out"),
        (["policy.ckpt", "out.safetensors", "--groups", "0"], 2, "0: 1 or more is right"),
        (["policy.ckpt", "out.safetensors"], 0, "out.safetensors: ema_model"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ladder_torch.export", *words],
            cwd=tmp_path,
            env={"PYTHONPATH": str(Path(ladder_torch.__file__).resolve().parents[1]), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == status and says in done.stdout + done.stderr, done.stderr
