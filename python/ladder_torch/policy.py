"""policy: answers of a diffusion policy's live module, with all denoising steps in one CUDA graph."""

import json
import math
import operator
import tempfile
import warnings
import weakref
from pathlib import Path

import torch

from . import library, scheduler_state, unet1d
from .define import define
from .versions import rows_of

_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_MOST_SAMPLES = 65535  # the limit of ./ladder denoise --batch
_NO_FORMULA = "policy: on a CPU only the emulator answers, slowly: ladder_torch.cpu('emulator')"


def _formula(condition, initial, steps, policy):
    raise RuntimeError(_NO_FORMULA)


define("policy_answer", "(Tensor condition, Tensor initial, Tensor steps, int policy) -> Tensor", _formula,
       lambda condition, initial, steps, policy: torch.empty_like(initial))  # fmt: skip


class Policy:
    """A prepared policy. `observation`, `horizon`, `action_dim` and `steps` are its sizes; `notes` lists the defaults
    taken and the parts of the module that are not computed. It has a copy of the weights: prepare another one after
    further training."""

    def __init__(self, half, like, samples, told):
        sizes = told["sizes"]
        self.samples, self.observation, self.steps = samples, sizes["observation"], sizes["steps"]
        self.horizon, self.action_dim = sizes["horizon"], sizes["action_dim"]
        self.device, self.notes = like.device, told["notes"]
        self._half, self._number = half, told["number"]
        self._about, self._operations = told["about"], told["operations"]
        self._of_actions = (samples, self.horizon, self.action_dim)
        self._of_noise = (self.steps if sizes["noisy"] else 0, sizes["noise_row"])
        self._drawn_steps, self._drawn_dtype = sizes["drawn"], like.dtype
        weakref.finalize(self, half.ask, policy={"drop": self._number}).atexit = False

    def __repr__(self):
        return f"ladder_torch.policy on {self.device}: {self._about}"

    def explain(self):
        """Returns the version of each problem of an answer with the reason, in the form of ladder_torch.explain()."""
        return rows_of(self._half, self._operations)

    @torch.no_grad()
    def sample(self, observation, generator=None, noise=None, check=True):
        """Returns actions [samples, horizon, action_dim], fp32, for observations [samples, observation].

        Both are in the network's units: no normalizer is applied. Runs on the current stream. The noise is drawn by
        PyTorch, from `generator` or the default one, in the order of diffusers' schedulers in a loop of their steps.
        `noise` overrides this with the initial noise [samples, horizon, action_dim] and, where steps have noise, that
        of the steps [steps, samples, horizon, action_dim]. `check` waits for the answer and throws FloatingPointError
        where an observation or an action is not finite. A CUDA graph cannot capture the call, which replays a graph."""
        sizes = (self.samples, self.observation)
        if not _is(observation, sizes, self.device):
            raise _error(observation, f"{_told(observation)}, and an observation of {sizes} on {self.device} is wanted")
        initial, steps = self._drawn(generator) if noise is None else self._given(*noise)
        condition = torch.nn.functional.mish(observation.double()).float()
        kernels = torch.ops.ladder_emulator if self._half is library.EMULATOR else torch.ops.ladder_kernels
        actions = kernels.policy_answer(condition, initial, steps, self._number)
        if check and not torch.stack([observation.isfinite().all(), actions.isfinite().all()]).all():
            what = "an action" if observation.isfinite().all() else "a number of the observation"
            raise FloatingPointError(f"policy: {what} is not finite")
        return actions

    def _drawn(self, generator):
        def draw():  # in the module's dtype, as in the module's own loop
            return torch.randn(self._of_actions, generator=generator, device=self.device, dtype=self._drawn_dtype)

        initial, rows = draw().float(), torch.zeros(self._of_noise, device=self.device)
        if self._drawn_steps:  # the leading steps have noise
            of_steps = torch.stack([draw() for _ in range(self._drawn_steps)])
            rows[: self._drawn_steps, : initial.numel()] = of_steps.flatten(1)
        return initial, rows

    def _given(self, initial, of_steps=None):
        wanted_of_steps = (self._of_noise[0], *self._of_actions)
        if of_steps is None and isinstance(initial, torch.Tensor):
            of_steps = initial.new_empty((0, *self._of_actions))
        for x, wanted in ((initial, self._of_actions), (of_steps, wanted_of_steps)):
            if not _is(x, wanted, self.device):
                raise _error(x, f"noise is {_told(x)}, and {wanted} on {self.device} is wanted")
        rows = torch.zeros(self._of_noise, device=self.device)
        rows[:, : initial.numel()] = of_steps.flatten(1)
        return initial.float(), rows


def policy(unet, scheduler, *, horizon=16, samples=1, steps=None, eta=0.0, dtype=None):
    """Prepares the answers of a diffusion policy. Returns a Policy.

    unet: Diffusion Policy's or LeRobot's ConditionalUnet1D, or a module that contains one, on the device that computes
    the answers. scheduler: diffusers' DDPMScheduler or DDIMScheduler, or a dict of its configuration. steps: number of
    denoising steps (default: those chosen by set_timesteps(), else as many as the scheduler was trained with). eta: of
    DDIM. samples: observations per answer. dtype: default the module's. A step of the module is compared with the same
    step of the kernels. Throws TypeError or ValueError, one line, for a module that is no such network, or a setting
    that is not supported."""
    network, note = unet1d.find(unet)
    weight = next(network.parameters(), torch.empty(0))
    half = _half_for(weight.device)
    dtype = dtype or weight.dtype
    if dtype not in _DTYPES:
        raise ValueError(f"policy: {dtype}, and one of {', '.join(map(str, _DTYPES))} is wanted")
    samples, horizon = _whole("samples", samples), _whole("horizon", horizon)
    if not 1 <= samples <= _MOST_SAMPLES:
        raise ValueError(f"policy: {samples} samples, and 1 to {_MOST_SAMPLES} are wanted")
    question = {"dtype": _DTYPES[dtype], "samples": samples, "device": weight.get_device(), "use": True}
    question["scheduler"], question["eta"] = scheduler_state.fields_of(scheduler), _real("eta", eta)
    question["steps"] = None if steps is None else _whole("steps", steps)
    question["timesteps"] = scheduler_state.timesteps_of(scheduler) if steps is None else None
    one_step = {"dtype": "fp32", "samples": 1, "steps": 1, "timesteps": None, "eta": 0, "use": False}
    trial = {**question, **one_step, "scheduler": unet1d.TRIAL_SCHEDULER}
    groups = next((each.num_groups for each in network.modules() if isinstance(each, torch.nn.GroupNorm)), 8)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "module.safetensors")
        _write(file, network, {"groups": groups, "horizon": horizon})

        def prepare(question):
            try:
                return Policy(half, weight, question["samples"], half.ask(policy={**question, "file": file}))
            except ValueError as wrong:
                raise ValueError(f"policy: {str(wrong).replace(file, type(network).__name__)}") from None

        suspects = unet1d.try_out(network, prepare(trial))
        prepared = prepare(question)
    prepared.notes += [note, *suspects] if note else suspects
    if note:
        warnings.warn(f"policy: {note}", stacklevel=2)
    return prepared


def _half_for(device):
    if device.type not in ("cuda", "cpu"):
        raise ValueError(f"policy: the module is on {device}, and on cuda or cpu it is wanted")
    if device.type == "cpu" and not library.emulated():
        raise RuntimeError(_NO_FORMULA)
    return library.CUDA if device.type == "cuda" else library.EMULATOR


def _whole(name, value):
    """Returns an integer clamped to 32 bits; values out of range are refused later, as the limits themselves are."""
    try:
        return max(min(operator.index(value), 2**31 - 1), -(2**31))
    except TypeError:
        raise TypeError(f"policy: {name} is {value!r}, and a whole number is wanted") from None


def _real(name, value):
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"policy: {name} is {value!r}, and a number is wanted") from None
    if not math.isfinite(number):
        raise ValueError(f"policy: {name} is {value!r}, and a finite number is wanted")
    return number


def _write(file, unet, metadata):
    from safetensors.torch import save_file  # imported here, because no other part of the package needs safetensors

    def stored(tensor):
        return tensor.detach().to("cpu", torch.float32 if tensor.dtype == torch.float64 else tensor.dtype).contiguous()

    tensors = {name: stored(tensor) for name, tensor in unet.state_dict().items()}
    save_file(tensors, file, {"ladder.policy/1": json.dumps(metadata)})


def _is(x, shape, device):
    return isinstance(x, torch.Tensor) and tuple(x.shape) == shape and x.device == device


def _told(x):
    return f"{tuple(x.shape)} on {x.device}" if isinstance(x, torch.Tensor) else f"a value of type {type(x).__name__}"


def _error(x, says):
    return (ValueError if isinstance(x, torch.Tensor) else TypeError)(f"policy: {says}")
