"""The U-Net of a diffusion policy in a live module: finding it, and a trial of its forward."""

import contextlib

import torch

from .stand_in import hooked

PARTS = {"diffusion_step_encoder", "down_modules", "mid_modules", "up_modules", "final_conv"}
_WRAPPERS = {"", "module", "_orig_mod"}  # names of the wrapped module in DDP and torch.compile
_EPS = 1e-5  # of the network's GroupNorms
_NEAR = 1e-4  # tolerance relative to a prediction's largest element; reordered fp32 sums differ by 1e-6

# A scheduler with a single step, at time step 99, that returns the prediction itself.
TRIAL_SCHEDULER = {
    "_class_name": "DDIMScheduler",
    "num_train_timesteps": 100,
    "beta_schedule": "squaredcos_cap_v2",
    "timestep_spacing": "trailing",
    "prediction_type": "sample",
    "clip_sample": False,
}
_TRIAL_TIMESTEP = 99


def find(module):
    """Returns (U-Net, note): the submodule with the U-Net's parts, and a note if it is only part of `module`, or "".

    A module without such a submodule is returned itself. Throws TypeError, ValueError."""
    kind = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"policy: unet is of type {kind}, and a torch.nn.Module is wanted")
    found = {name: each for name, each in module.named_modules() if PARTS <= dict(each.named_children()).keys()}
    if len(found) > 1:
        raise ValueError(f"policy: {kind} has {len(found)} U-Nets, {', '.join(map(repr, found))}: pass one of them")
    for name, unet in found.items():
        return unet, "" if _WRAPPERS.issuperset(name.split(".")) else _note_on_part(module, name)
    return module, ""


def _note_on_part(module, name):
    names = [*(name for name, _ in module.named_modules()), *module.state_dict()]
    normalizers = {part: None for name in names for part in name.split(".") if "normaliz" in part.lower()}
    applied = f"{' and '.join(normalizers)}: not applied" if normalizers else "it has no normalizer"
    return (
        f"the network is {name!r} of {type(module).__name__}: observations are that network's global_cond, and actions "
        f"are in its units, which as a rule are normalised ({applied})"
    )


def try_out(unet, trial):
    """Compares a step of the module with the same step of `trial`, a Policy of one fp32 step by TRIAL_SCHEDULER.

    Returns notes. Throws ValueError where they differ. The module's mode and buffers and the random state are
    preserved."""
    generator = torch.Generator().manual_seed(0)
    sizes = (1, trial.horizon, trial.action_dim), (1, trial.observation)
    x, observation = (torch.randn(size, generator=generator).to(trial.device) for size in sizes)
    ours, suspects = trial.sample(observation, noise=(x,), check=False), list(_suspects(unet))
    where = f"policy: the forward of {type(unet).__name__} is not that of Diffusion Policy's U-Net"
    try:
        theirs = _prediction(unet, x, observation)
    except Exception as wrong:  # an unknown forward may throw anything
        first = str(wrong).strip().partition("\n")[0]
        raise ValueError(f"{where}: (sample, timestep, global_cond=) throws {type(wrong).__name__}: {first}") from None
    if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape:
        returned = tuple(theirs.shape) if isinstance(theirs, torch.Tensor) else f"a {type(theirs).__name__}"
        raise ValueError(f"{where}: it returns {returned}, and {tuple(ours.shape)} is wanted")
    difference, largest = float((theirs - ours).abs().max()), float(theirs.abs().max())
    if not difference <= _NEAR * largest:
        reason = "; ".join(suspects) or "its forward, or that of a part, is another one"
        raise ValueError(f"{where}: a step differs by {difference:.2g}, with numbers up to {largest:.2g}: {reason}")
    return [f"not computed: {suspect}" for suspect in suspects]


@torch.no_grad()
def _prediction(unet, x, observation):
    """Returns the module's prediction, in fp32, computed with copies of everything that a forward may change."""
    state = [*unet.named_parameters(), *((name, each.clone()) for name, each in unet.named_buffers())]
    tensors = {name: each.detach().float() if each.is_floating_point() else each for name, each in state}
    time = torch.full((1,), _TRIAL_TIMESTEP, device=x.device)
    with _evaluation(unet), exact_fp32(), torch.random.fork_rng([x.device] if x.is_cuda else []):
        with torch.autocast(x.device.type, enabled=False):
            return torch.func.functional_call(unet, tensors, (x, time), {"global_cond": observation})


@contextlib.contextmanager
def _evaluation(module):
    modes = [(each, each.training) for each in module.modules()]
    try:
        for each, _ in modes:
            each.training = False
        yield
    finally:
        for each, mode in modes:
            each.training = mode


@contextlib.contextmanager
def exact_fp32():
    places = (torch.backends.cudnn.conv, torch.backends.cuda.matmul)
    precisions = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, precision in zip(places, precisions):
            place.fp32_precision = precision


def _suspects(unet):
    """Yields descriptions of submodules' settings that the published network does not have, the first of each kind."""
    known = set()
    for name, module in unet.named_modules():
        for kind, is_there in (
            (f"eps {getattr(module, 'eps', None)}", isinstance(module, torch.nn.GroupNorm) and module.eps != _EPS),
            (f"a {type(module).__name__}", _is_other_activation(module)),
            ("hooks", hooked(module)),
            ("a forward of its own", "forward" in vars(module)),
        ):
            if is_there and kind not in known:
                known.add(kind)
                yield f"{kind} at {name!r}" if name else kind


def _is_other_activation(module):
    is_activation = type(module).__module__ == "torch.nn.modules.activation"
    return is_activation and not isinstance(module, torch.nn.Mish)
