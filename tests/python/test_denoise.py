"""`./ladder denoise`: the verb's errors and command lines. denoise_policy, as built: files, one-line errors."""

import json
import math
import struct
import subprocess
from pathlib import Path

import pytest

from cli import build, denoise, device, run
from cli.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "emulator" / "policy" / denoise.PROGRAM
FEW = ("--config", "tiny", "--steps", "1", "--scheduler", "ddim")  # quick, on the emulator


def program(*arguments, cwd=None):
    if not BUILT.exists():
        pytest.skip(f"{denoise.PROGRAM} is not built: ./ladder build --preset emulator {denoise.PROGRAM}")
    return subprocess.run([BUILT, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


def npy(path, shape, values, descr="<f4"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".ljust(117) + "\n"
    code = {"<f4": "f", "<f8": "d"}[descr]
    data = struct.pack(f"<{len(values)}{code}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)
    return path


def read_npy(path):
    data = path.read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10 : 10 + length])  # a Python dictionary, written by our own program
    return header["shape"], struct.unpack(f"<{math.prod(header['shape'])}f", data[10 + length :])


def safetensors(path, tensors, metadata=None):
    """Write fp32 tensors {name: (shape, values)}."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (shape, values) in tensors.items():
        held = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(held)]}
        data += held
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


# --- The verb


@pytest.fixture
def verb(monkeypatch):
    """Run the verb; returns the build targets and the program's command line."""
    handed = []
    monkeypatch.setattr(device, "choose", lambda wanted: device.Choice("emulator", "for a test"))
    monkeypatch.setattr(build, "build", lambda preset, targets: handed.append(targets))
    monkeypatch.setattr(run, "handed_over", lambda command: handed.append([str(word) for word in command]))

    def call(*arguments):
        handed.clear()
        denoise.main([str(argument) for argument in arguments])
        return handed

    call.handed = handed
    return call


def test_what_the_verb_hands_on(verb, tmp_path):
    policy = safetensors(tmp_path / "p.safetensors", {})
    built, (name, *words) = verb("--config", "tiny", "--seed", "7", "--device=emulator")
    assert built == [denoise.PROGRAM]
    assert name.endswith(f"/policy/{denoise.PROGRAM}")
    assert words == ["--config=tiny", "--seed=7"]
    assert verb(tmp_path, "--random", "--all")[1][1:] == [str(tmp_path), "--random", "--all"]
    words = verb(policy, "--random", "--scheduler", "ddim", "--steps=16", "--dtype", "bf16")[1][1:]
    assert words == [str(policy), "--random", "--scheduler=ddim", "--steps=16", "--dtype=bf16"]


def test_what_the_verb_refuses_before_a_build(verb, tmp_path):
    policy = safetensors(tmp_path / "p.safetensors", {})
    for says, *arguments in (
        ("needs a policy's file or folder, or --config tiny",),
        ("needs a policy's file or folder, or --config tiny", policy, "--config", "tiny"),
        ("there is no file or folder 'nowhere'", "nowhere", "--random"),
        ("an observation is missing", policy),
        ("exclude each other", policy, "--random", "--observation", policy),
        ("--observation: there is no file 'o.npy'", policy, "--observation", "o.npy"),
        ("--noise: there is no file 'n'", policy, "--random", "--noise", "n"),
        ("--scheduler-config: there is no file 's'", policy, "--random", "--scheduler-config", "s"),
        ("invalid choice: 'large'", "--config", "large"),
        ("invalid choice: 'euler'", "--config", "tiny", "--scheduler", "euler"),
        ("invalid choice: 'tf32'", "--config", "tiny", "--dtype", "tf32"),
        ("a whole number from 1 to 1000000, not '0'", "--config", "tiny", "--steps", "0"),
        ("not '1.5'", "--config", "tiny", "--eta", "1.5"),
        ("not '-1'", "--config", "tiny", "--seed", "-1"),
        ("not '0'", "--config", "tiny", "--batch", "0"),
        ("not '0'", "--config", "tiny", "--horizon", "0"),
        ("a name that ends in .npy", "--config", "tiny", "--out", "actions"),
        ("there is no folder 'no'", "--config", "tiny", "--out", "no/actions.npy"),
        ("--json needs --time", "--config", "tiny", "--json", "t.json"),
        ("an emulated kernel has no speed", "--config", "tiny", "--time"),
        ("unrecognized arguments: --velocity", "--config", "tiny", "--velocity"),
    ):
        with pytest.raises(UsageError, match=says):
            verb(*arguments)
        assert verb.handed == []


# --- The program


def test_the_description_of_its_flags_is_fresh():
    done = program("--describe")
    assert (done.returncode, done.stderr) == (0, "")
    file = ROOT / "policy" / f"{denoise.PROGRAM}.json"
    assert done.stdout == file.read_text(encoding="utf-8"), f"{denoise.PROGRAM} --describe > {file}"


def test_tiny_answers(tmp_path):
    done = program("--config", "tiny", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "channels 32, 64, 128; an observation of 20; 16 actions of 2; 10 ddpm steps of 10; fp32" in done.stdout
    assert "on the emulator" in done.stdout and "wrote actions.npy" in done.stdout
    shape, actions = read_npy(tmp_path / "actions.npy")
    assert shape == (1, 16, 2)
    assert all(map(math.isfinite, actions))
    assert len(set(actions)) > 16


def tiny_file(path, prefix="", **more):
    """Write a policy file with the golden policy's shapes and all weights 0."""
    golden = json.loads((ROOT / "tests" / "golden" / "policy_tiny.json").read_text(encoding="utf-8"))
    tensors = {
        prefix + each["name"]: (each["shape"], [0.0] * math.prod(each["shape"])) for each in golden["parameters"]
    }
    return safetensors(path, {**tensors, **more})


def test_units_of_actions_are_said(tmp_path):
    numbers = {f"unnormalize_outputs.buffer_action.{what}": ([2], [1.0, 2.0]) for what in ("mean", "std")}
    normalizer = {f"normalizer.params_dict.action.{what}": ([2], [1.0, 2.0]) for what in ("scale", "offset")}
    few = ("--random", "--steps", "1", "--scheduler", "ddim")
    units = "in the network's units, as a rule normalised"
    for prefix, more, says in (
        ("diffusion.unet._orig_mod.", numbers, f"actions are {units}: not applied: unnormalize_outputs"),
        ("module.", {}, f"observations and actions are {units}: the file has no normalizer"),
        ("", normalizer, ""),
    ):
        done = program(tiny_file(tmp_path / "p.safetensors", prefix, **more), *few, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert says in done.stdout and (units in done.stdout) == bool(says)


LEROBOT = {  # config.json of the golden policy's shapes, without pictures
    "type": "diffusion",
    "n_obs_steps": 2,
    "horizon": 16,
    "n_action_steps": 8,
    "normalization_mapping": {"VISUAL": "MEAN_STD", "STATE": "MIN_MAX", "ENV": "MIN_MAX", "ACTION": "MIN_MAX"},
    "input_features": {
        "observation.state": {"type": "STATE", "shape": [2]},
        "observation.environment_state": {"type": "ENV", "shape": [8]},
    },
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
    "num_inference_steps": 2,
}


def lerobot_folder(folder, config=None, buffers=None, pipeline=None):
    """Write a folder as LeRobot's save_pretrained does; `pipeline` is the state of its unnormalizer."""
    folder.mkdir(exist_ok=True)
    tiny_file(folder / "model.safetensors", "diffusion.unet.", **(buffers or {}))
    (folder / "config.json").write_text(json.dumps({**LEROBOT, **(config or {})}, indent=4))
    if pipeline:
        state_file = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
        safetensors(folder / state_file, pipeline)
        step = {
            "registry_name": "unnormalizer_processor",
            "config": {"eps": 1e-08, "features": LEROBOT["output_features"], "norm_map": {"ACTION": "MIN_MAX"}},
            "state_file": state_file,
        }
        told = {"name": "policy_postprocessor", "steps": [step, {"registry_name": "device_processor", "config": {}}]}
        (folder / "policy_postprocessor.json").write_text(json.dumps(told, indent=2))
    return folder


def test_a_folder_of_lerobot(tmp_path):
    """Actions of all weights 0 are noise, clamped; LeRobot's formula un-normalises them."""
    low, high = [-3.0, 10.0], [5.0, 10.5]
    ends = {"min": ([2], low), "max": ([2], high)}
    buffers = {f"unnormalize_outputs.buffer_action.{end}": held for end, held in ends.items()}
    pipeline = {f"action.{end}": held for end, held in ends.items()}

    def actions(folder, *arguments):
        done = program(folder, "--random", "--batch", "3", *arguments, "--out", tmp_path / "a.npy")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return *read_npy(tmp_path / "a.npy"), done.stdout

    shape, normalised, says = actions(lerobot_folder(tmp_path / "bare"), "--all")
    assert shape == (3, 16, 2)
    assert "16 actions of 2; 2 ddim steps of 10; fp32" in says
    assert "actions are in the network's units, as a rule normalised: the folder has neither" in says
    for folder, source in (
        (lerobot_folder(tmp_path / "older", buffers=buffers), "unnormalize_outputs"),
        (lerobot_folder(tmp_path / "newer", pipeline=pipeline), "policy_postprocessor.json"),
    ):
        shape, found, says = actions(folder, "--all")
        assert shape == (3, 16, 2)
        assert f"actions in the robot's units: MIN_MAX, from {source}" in says and "as a rule normalised" not in says
        for i, (x, y) in enumerate(zip(normalised, found, strict=True)):
            assert y == pytest.approx((x + 1) / 2 * (high[i % 2] - low[i % 2]) + low[i % 2], abs=2e-6)
        shape, executed, says = actions(folder)
        assert shape == (3, 8, 2)
        assert "actions 1 to 8 of 0 to 15, which LeRobot executes (--all writes every one)" in says
        assert executed == tuple(x for n in range(3) for x in found[32 * n + 2 : 32 * n + 18])
    assert "; 5 ddpm steps of 10;" in actions(folder, "--steps", "5", "--scheduler", "ddpm")[2]


def test_errors_of_a_folder_are_a_line(tmp_path):
    folder = lerobot_folder(tmp_path / "policy")
    for says, config in (
        ("prediction_type 'noise' is not supported; there are: epsilon, sample", {"prediction_type": "noise"}),
        ("noise_scheduler_type 'EULER' is not supported; there are: DDPM, DDIM", {"noise_scheduler_type": "EULER"}),
        ("use_film_scale_modulation false, but the tensors", {"use_film_scale_modulation": False}),
        ("kernel_size 3, but the tensors of model.safetensors have 5", {"kernel_size": 3}),
        ("n_groups 0 is not supported: a whole number", {"n_groups": 0}),
    ):
        lerobot_folder(folder, config)
        done = program(folder, "--random", cwd=tmp_path)
        assert done.returncode == 1 and says in done.stderr, done.stderr
        assert done.stderr.startswith(f"denoise_policy: '{folder / 'config.json'}': ")
        assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "actions.npy").exists()
    lerobot_folder(folder)
    done = program(folder, "--random", "--out", folder / "model.safetensors")
    assert (done.returncode, "is the file of the policy" in done.stderr) == (2, True)


def test_what_an_answer_depends_on(tmp_path):
    def actions(*arguments):
        done = program(*FEW, "--out", tmp_path / "a.npy", *arguments)
        assert done.returncode == 0, done.stderr
        return read_npy(tmp_path / "a.npy")

    one = npy(tmp_path / "one.npy", [20], [i / 20 for i in range(20)])
    two = npy(tmp_path / "two.npy", [2, 20], [i / 40 for i in range(40)])
    initial = {"initial": ([2, 16, 2], [math.sin(i) for i in range(64)])}
    noise = safetensors(tmp_path / "noise.safetensors", initial)
    shape, of_one = actions("--observation", one)
    assert shape == (1, 16, 2)
    assert actions("--observation", one) == (shape, of_one)
    assert actions("--observation", one, "--graph", "off") == (shape, of_one)
    assert actions("--observation", one, "--seed", "1") != (shape, of_one)
    assert actions("--observation", two)[0] == (2, 16, 2)
    of_noise = actions("--observation", two, "--noise", noise)
    assert actions("--observation", two, "--noise", noise, "--seed", "3") == of_noise
    assert actions("--observation", one, "--batch", "3")[0] == (3, 16, 2)
    assert actions("--horizon", "8", "--groups", "4")[0] == (1, 8, 2)


@pytest.mark.parametrize(
    ("kind", "says", "of_step"),
    [
        ("off", "the network's operations", {"conv1d/block", "conv1d/fprop", "diffusion/ddpm_step"}),
        ("v02", "one kernel, policy/step v02_weight_stream: --use", {"policy/step"}),
    ],
)
def test_it_explains_a_step(tmp_path, kind, says, of_step):
    done = program("--config", "tiny", "--explain", "--use", f"policy/step={kind}", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"a step is {says}" in done.stdout
    operations = done.stdout.split("a step is")[1].splitlines()[1:]
    passes = {word for line in operations for word in line.split() if "/" in word}
    assert passes == {"gemm/fprop", "diffusion/q_sample", "diffusion/noise", *of_step}
    assert not (tmp_path / "actions.npy").exists()


@pytest.mark.parametrize("flag", ["--out", "--json"])
@pytest.mark.parametrize("name", ["the policy", "--observation", "--noise", "--scheduler-config"])
def test_no_input_is_written_over(tmp_path, flag, name):
    """The output names an input directly, or through a link."""
    given = tmp_path / "input"
    given.write_bytes(b"input")
    (tmp_path / "link").symlink_to(given)
    words = [given, "--random"] if name == "the policy" else ["--config", "tiny", name, given]
    for out in (given, tmp_path / "link"):
        outputs = [flag, out] if flag == "--out" else ["--time", flag, out]
        done = program(*words, *outputs, cwd=tmp_path)
        says = f"denoise_policy: {flag} '{out}' is the file of {name}: name another to write\n"
        assert (done.returncode, done.stderr) == (2, says)
    assert given.read_bytes() == b"input"


def test_errors_are_a_line_and_write_no_action(tmp_path):
    def fields(**more):
        path = tmp_path / f"s{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"_class_name": "DDPMScheduler", **more}))
        return path

    numbers = [0.5] * 20
    text = tmp_path / "text.npy"
    text.write_text("no array")
    pickled = tmp_path / "policy.ckpt"
    pickled.write_bytes(b"\x80\x02}q\x00.")
    no_json = tmp_path / "no.json"
    no_json.write_text("{")
    brackets = tmp_path / "brackets.json"
    brackets.write_text('{"x": ' + "[" * 300_000 + "]" * 300_000 + "}")
    nan = npy(tmp_path / "nan.npy", [20], [*numbers[:19], math.nan])
    infinite = npy(tmp_path / "inf.npy", [20], [*numbers[:19], math.inf])
    short = npy(tmp_path / "short.npy", [19], numbers[:19])
    double = npy(tmp_path / "double.npy", [20], numbers, "<f8")
    none = npy(tmp_path / "none.npy", [0, 20], [])
    deep = npy(tmp_path / "deep.npy", [1, 1, 20], numbers)
    two = npy(tmp_path / "two.npy", [2, 20], numbers * 2)
    sample = [0.0] * 32
    noise = safetensors(tmp_path / "noise.safetensors", {"initial": ([1, 16, 2], sample)})
    wide = safetensors(tmp_path / "wide.safetensors", {"initial": ([1, 16, 3], [0.0] * 48)})
    wrong = safetensors(tmp_path / "wrong.safetensors", {"initial": ([1, 16, 2], [*sample[:31], math.nan])})
    tiny = ("--config", "tiny")
    for status, says, *arguments in (
        (2, "name a policy's file or folder, or --config tiny"),
        (2, "name a policy's file or folder, or --config tiny", pickled, *tiny),
        (2, "an observation is missing", pickled),
        (1, "is a pickle, as torch.save writes checkpoints: python3 -m ladder_torch.export", pickled, "--random"),
        (1, "No such file", "none.safetensors", "--random"),
        (1, "has no config.json, as a folder of LeRobot's save_pretrained has", tmp_path, "--random"),
        (1, "has no network of a Diffusion Policy", noise, "--random"),
        (1, "a text file", text, "--random"),
        (1, "a NumPy array", two, "--random"),
        (2, "--config: one of tiny, not 'large'", "--config", "large"),
        (2, "--dtype: one of fp32, bf16, fp16, not 'tf32'", *tiny, "--dtype", "tf32"),
        (2, "--graph: one of on, off, not 'maybe'", *tiny, "--graph", "maybe"),
        (2, "--scheduler: one of ddpm, ddim, not 'euler'", *tiny, "--scheduler", "euler"),
        (2, "--eta: a number in [0, 1], not '2'", *tiny, "--eta", "2"),
        (2, "--eta is ddim's", *tiny, "--eta", "0.5"),
        (2, "--steps: a number in [1, 1000000], not '0'", *tiny, "--steps", "0"),
        (2, "11 steps: from 1 to 10, as many as the scheduler was trained with", *tiny, "--steps", "11"),
        (2, "horizon 15: 3 levels halve it 2 times, so that it is a multiple of 4", *tiny, "--horizon", "15"),
        (
            2,
            "groups 5: they divide the channels of every level, 32, 64, 128, as 1, 2, 4, 8, 16, 32 do",
            *tiny,
            "--groups",
            "5",
        ),
        (2, "--use 'conv1d'", *tiny, "--use", "conv1d"),
        (2, "has no version 'v99'", *tiny, "--use", "conv1d/block=v99"),
        (2, "conv3x3", *tiny, "--use", "conv3x3/fprop=v01"),
        (2, "--time is for a GPU", *tiny, "--time"),
        (2, "--json requires --time", *tiny, "--json", "t.json"),
        (2, "--velocity", *tiny, "--velocity"),
        (2, "--random", *tiny, "--random", "--observation", two),
        (1, "No such file", *tiny, "--observation", "nowhere.npy"),
        (1, "no .npy file", *tiny, "--observation", text),
        (1, "dtype '<f8' instead of float32", *tiny, "--observation", double),
        (1, "has shape [19]: [20] is expected, or [n, 20]", *tiny, "--observation", short),
        (1, "has shape [0, 20]", *tiny, "--observation", none),
        (1, "has shape [1, 1, 20]", *tiny, "--observation", deep),
        (1, "number 19 of observation 0 is nan", *tiny, "--observation", nan),
        (1, "number 19 of observation 0 is inf", *tiny, "--observation", infinite),
        (2, "has 2 observations", *tiny, "--observation", two, "--batch", "3"),
        (1, "cannot be read", *tiny, "--noise", "nowhere.safetensors"),
        (1, "has no tensor 'steps'", *tiny, "--noise", noise),
        (1, "'initial' is [1, 16, 3] in fp32, [1, 16, 2] in fp32 is expected", *FEW, "--noise", wide),
        (1, "'initial' is [1, 16, 2] in fp32, [2, 16, 2]", *FEW, "--noise", noise, "--batch", "2"),
        (1, "'initial' has a number that is not finite", *FEW, "--noise", wrong),
        (1, "cannot be read", *tiny, "--scheduler-config", "nowhere.json"),
        (1, "is no JSON object", *tiny, "--scheduler-config", no_json),
        (1, "is nested deeper than", *tiny, "--scheduler-config", brackets),
        (1, "'/dev/zero' has more than", *tiny, "--scheduler-config", "/dev/zero"),
        (2, "num_train_timesteps 2147483647", *tiny, "--scheduler-config", fields(num_train_timesteps=2**31 - 1)),
        (2, "num_train_timesteps 1.5", *tiny, "--scheduler-config", fields(num_train_timesteps=1.5)),
        (2, "squaredcos_cap_v2", *tiny, "--scheduler-config", fields(beta_schedule="cubic")),
        (2, "epsilon, sample, v_prediction", *tiny, "--scheduler-config", fields(prediction_type="noise")),
        (2, "fixed_small", *tiny, "--scheduler-config", fields(variance_type="fixed_large_log")),
        (2, "thresholding", *tiny, "--scheduler-config", fields(thresholding=True)),
        (2, "DDPMScheduler, DDIMScheduler", *tiny, "--scheduler-config", fields(_class_name="PNDMScheduler")),
        (1, "no", *FEW, "--out", tmp_path / "no" / "actions.npy"),
    ):
        done = program(*arguments, cwd=tmp_path)
        assert done.returncode == status, (arguments, done.stderr)
        assert says in done.stderr, (arguments, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert not (tmp_path / "actions.npy").exists(), arguments
