"""policy: answers of a diffusion policy's live module, every denoising step in one CUDA graph."""

import json
import tempfile
import weakref
from pathlib import Path

import torch

from . import library
from .define import define
from .versions import rows_of

_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_NO_FORMULA = "policy: on a CPU only the emulator answers, slowly: ladder_torch.cpu('emulator')"


def _formula(condition, initial, steps, policy):
    raise RuntimeError(_NO_FORMULA)


define("policy_answer", "(Tensor condition, Tensor initial, Tensor steps, int policy) -> Tensor", _formula,
       lambda condition, initial, steps, policy: torch.empty_like(initial))  # fmt: skip


class Policy:
    """What policy() has prepared. `observation`, `horizon`, `action_dim` and `steps` are its sizes, `notes` what was taken by
    default. It has a copy of the weights: a module that was trained on needs another one."""

    def __init__(self, half, device, samples, told):
        sizes = told["sizes"]
        self.samples, self.observation, self.steps = samples, sizes["observation"], sizes["steps"]
        self.horizon, self.action_dim = sizes["horizon"], sizes["action_dim"]
        self.device, self.notes = device, told["notes"]
        self._half, self._number = half, told["number"]
        self._about, self._operations = told["about"], told["operations"]
        self._of_actions = (samples, self.horizon, self.action_dim)
        self._of_noise = (self.steps if sizes["noisy"] else 0, sizes["noise_row"])
        weakref.finalize(self, half.ask, policy={"drop": self._number}).atexit = False

    def __repr__(self):
        return f"ladder_torch.policy on {self.device}: {self._about}"

    def explain(self):
        """Which version runs for which problem of an answer, and why, as ladder_torch.explain()."""
        return rows_of(self._half, self._operations)

    @torch.no_grad()
    def sample(self, observation, generator=None, noise=None, check=True):
        """Actions [samples, horizon, action_dim], fp32, for observations [samples, observation], both as the module has them,
        not normalised; on the current stream. The noise is PyTorch's, of `generator` or the default one, or given as `noise`:
        the first sample [samples, horizon, action_dim] and, where steps have noise, that of the steps [steps, samples,
        horizon, action_dim]. `check` waits for the answer and throws FloatingPointError where an observation or an action is
        not finite. A CUDA graph cannot capture it: it is one."""
        sizes = (self.samples, self.observation)
        if tuple(observation.shape) != sizes or observation.device != self.device:
            raise ValueError(f"policy: {_told(observation)}, and an observation of {sizes} on {self.device} is wanted")
        initial, steps = self._drawn(generator) if noise is None else self._given(*noise)
        condition = torch.nn.functional.mish(observation.double()).float()
        kernels = torch.ops.ladder_emulator if self._half is library.EMULATOR else torch.ops.ladder_kernels
        actions = kernels.policy_answer(condition, initial, steps, self._number)
        if check and not torch.stack([observation.isfinite().all(), actions.isfinite().all()]).all():
            what = "an action" if observation.isfinite().all() else "a number of the observation"
            raise FloatingPointError(f"policy: {what} is not finite")
        return actions

    def _drawn(self, generator):
        return [torch.randn(of, generator=generator, device=self.device) for of in (self._of_actions, self._of_noise)]

    def _given(self, initial, of_steps=None):
        wanted_of_steps = (self._of_noise[0], *self._of_actions)
        if of_steps is None:
            of_steps = initial.new_empty((0, *self._of_actions))
        for x, wanted in ((initial, self._of_actions), (of_steps, wanted_of_steps)):
            if tuple(x.shape) != wanted or x.device != self.device:
                raise ValueError(f"policy: noise is {_told(x)}, and {wanted} on {self.device} is wanted")
        rows = torch.zeros(self._of_noise, device=self.device)
        rows[:, : initial.numel()] = of_steps.flatten(1)
        return initial.float(), rows


def policy(unet, scheduler, *, horizon=16, samples=1, steps=None, eta=0.0, dtype=None):
    """Prepares the answers of a diffusion policy: `unet` is Diffusion Policy's ConditionalUnet1D, or LeRobot's, on the device
    that shall answer; `scheduler` diffusers' DDPMScheduler or DDIMScheduler, or a dict of its configuration. `steps` of them
    (default: as many as it was trained with), DDIM's with `eta`; for `samples` observations at a time; in `dtype` (default:
    the module's). Throws ValueError, one line, for what is no such network or not supported."""
    weight = next(unet.parameters())
    dtype = dtype or weight.dtype
    if dtype not in _DTYPES:
        raise ValueError(f"policy: {dtype}, and one of {', '.join(map(str, _DTYPES))} is wanted")
    if samples < 1:
        raise ValueError(f"policy: {samples} samples, and 1 or more are wanted")
    half = library.CUDA if weight.is_cuda else library.EMULATOR
    if not weight.is_cuda and not library.emulated():
        raise RuntimeError(_NO_FORMULA)
    fields = scheduler if isinstance(scheduler, dict) else {"_class_name": type(scheduler).__name__, **scheduler.config}
    groups = next((each.num_groups for each in unet.modules() if isinstance(each, torch.nn.GroupNorm)), 8)
    question = {"dtype": _DTYPES[dtype], "samples": samples, "steps": steps, "eta": eta, "device": weight.get_device()}
    with tempfile.TemporaryDirectory() as folder:
        question["file"] = str(Path(folder) / "module.safetensors")
        _write(question["file"], unet, {"groups": groups, "horizon": horizon, "scheduler": fields})
        try:
            told = half.ask(policy=question)
        except ValueError as wrong:
            raise ValueError(f"policy: {str(wrong).replace(question['file'], type(unet).__name__)}") from None
    return Policy(half, weight.device, samples, told)


def _write(file, unet, metadata):
    from safetensors.torch import save_file  # here: the package's other parts do without

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in unet.state_dict().items()}
    save_file(tensors, file, {"ladder.policy/1": json.dumps(metadata, default=list)})


def _told(x):
    return f"{tuple(x.shape)} on {x.device}"
