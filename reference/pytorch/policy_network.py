"""Diffusion Policy's conditional 1-D U-Net, with the published names of its weights, and the schedulers that sample
from it. Shared by the policy_*.py scripts: names, sizes, metadata and made-up weights of policy files.

Written from the description of the network, not from the original's source. Local conditioning is not supported.
"""

import json
import math

import numpy
import torch
from torch import nn

import unet_common as common
from worker import Refusal

# --- The network


class TimeEmbedding(nn.Module):
    """Sinusoidal embedding, [n] to [n, channels]: sines, then cosines, of channels / 2 frequencies from 1 to 1 / 10000.
    Computed in `dtype`."""

    def __init__(self, channels):
        super().__init__()
        self.half = channels // 2

    def forward(self, t, dtype):
        exponent = torch.arange(self.half, dtype=dtype, device=t.device) * (-math.log(10000) / (self.half - 1))
        angle = t.to(dtype)[:, None] * exponent.exp()
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


class ConvBlock(nn.Module):
    """Conv1d, GroupNorm and Mish, [n, c, l] to [n, k, l]."""

    def __init__(self, channels, out_channels, taps, groups=8):
        super().__init__()
        conv = nn.Conv1d(channels, out_channels, taps, padding=taps // 2)
        self.block = nn.Sequential(conv, nn.GroupNorm(groups, out_channels), nn.Mish())

    def forward(self, x):
        return self.block(x)


class ResidualBlock(nn.Module):
    """Two blocks; the first one's output is scaled and shifted by a linear function of the condition."""

    def __init__(self, channels, out_channels, cond_channels, taps, groups, predict_scale):
        super().__init__()
        self.predict_scale = predict_scale
        self.blocks = nn.ModuleList(
            [ConvBlock(channels, out_channels, taps, groups), ConvBlock(out_channels, out_channels, taps, groups)]
        )
        self.cond_encoder = nn.Sequential(
            nn.Mish(), nn.Linear(cond_channels, out_channels * (2 if predict_scale else 1))
        )
        same = channels == out_channels
        self.residual_conv = nn.Identity() if same else nn.Conv1d(channels, out_channels, 1)

    def forward(self, x, cond):
        hidden, film = self.blocks[0](x), self.cond_encoder(cond)[:, :, None]
        if self.predict_scale:
            scale, shift = film.chunk(2, dim=1)
            hidden = scale * hidden + shift
        else:
            hidden = hidden + film
        return self.blocks[1](hidden) + self.residual_conv(x)


class Resample(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        return self.conv(x)


class ConditionalUnet1D(nn.Module):
    """Network that predicts the noise in a sample [n, horizon, input_dim] at step t [n], given the observation [n,
    global_cond_dim]. Computes in the dtype of the weights, but the embedding of t in fp32 at least."""

    def __init__(
        self,
        input_dim,
        global_cond_dim,
        diffusion_step_embed_dim=256,
        down_dims=(256, 512, 1024),
        kernel_size=5,
        n_groups=8,
        cond_predict_scale=True,
        local_cond_dim=None,
    ):
        super().__init__()
        if local_cond_dim is not None:
            raise Refusal("local_cond_dim: local conditioning is not supported")
        embedding = diffusion_step_embed_dim

        def residual(channels, out_channels):
            return ResidualBlock(
                channels, out_channels, embedding + global_cond_dim, kernel_size, n_groups, cond_predict_scale
            )

        def level(channels, out_channels, resample):
            return nn.ModuleList([residual(channels, out_channels), residual(out_channels, out_channels), resample])

        levels = list(zip([input_dim, *down_dims], down_dims))
        # Modules in the published order, which state_dict follows.
        self.mid_modules = nn.ModuleList(residual(down_dims[-1], down_dims[-1]) for _ in range(2))
        self.diffusion_step_encoder = nn.Sequential(
            TimeEmbedding(embedding),
            nn.Linear(embedding, 4 * embedding),
            nn.Mish(),
            nn.Linear(4 * embedding, embedding),
        )
        self.up_modules = nn.ModuleList(
            level(2 * below, out, Resample(nn.ConvTranspose1d(out, out, 4, stride=2, padding=1)))
            for out, below in reversed(levels[1:])
        )
        self.down_modules = nn.ModuleList(
            level(channels, out, Resample(nn.Conv1d(out, out, 3, stride=2, padding=1))) for channels, out in levels[:-1]
        )
        self.down_modules.append(level(*levels[-1], nn.Identity()))
        self.final_conv = nn.Sequential(
            ConvBlock(down_dims[0], down_dims[0], kernel_size), nn.Conv1d(down_dims[0], input_dim, 1)
        )

    def forward(self, sample, t, global_cond):
        embed, *mlp = self.diffusion_step_encoder
        weight = mlp[0].weight
        e = embed(t, torch.promote_types(weight.dtype, torch.float32)).to(weight.dtype)
        for layer in mlp:
            e = layer(e)
        cond = torch.cat([e, global_cond.to(weight.dtype)], dim=-1)
        x, skips = sample.to(weight.dtype).transpose(1, 2), []
        for first, second, resample in self.down_modules:
            x = second(first(x, cond), cond)
            skips.append(x)
            x = resample(x)
        for block in self.mid_modules:
            x = block(x, cond)
        for first, second, resample in self.up_modules:  # one level fewer than down_modules: skips[0] is unused
            x = torch.cat([x, skips.pop()], dim=1)
            x = resample(second(first(x, cond), cond))
        return self.final_conv(x).transpose(1, 2)


# --- The scheduler, in the arithmetic of the package diffusers

# Defaults of the settings that a file's metadata leave out.
DEFAULT_SCHEDULER = {
    "_class_name": "DDPMScheduler",
    "num_train_timesteps": 100,
    "beta_start": 0.0001,
    "beta_end": 0.02,
    "beta_schedule": "squaredcos_cap_v2",
    "variance_type": "fixed_small",
    "clip_sample": True,
    "clip_sample_range": 1.0,
    "prediction_type": "epsilon",
    "timestep_spacing": "leading",
    "steps_offset": 0,
    "set_alpha_to_one": True,
}
# Settings that these scripts support; denoise_policy supports more.
SUPPORTED = {
    "beta_schedule": ("linear", "scaled_linear", "squaredcos_cap_v2"),
    "variance_type": ("fixed_small",),
    "prediction_type": ("epsilon",),
    "timestep_spacing": ("leading",),
    "thresholding": (False,),
    "trained_betas": (None,),
    "rescale_betas_zero_snr": (False,),
}


def cosine_betas(count):
    bar = [math.cos((i / count + 0.008) / 1.008 * math.pi / 2) ** 2 for i in range(count + 1)]
    return torch.tensor([min(1 - after / before, 0.999) for before, after in zip(bar, bar[1:])], dtype=torch.float32)


class Scheduler:
    """DDPM or DDIM (eta 0) with `steps` steps. The factors are computed in fp32, as in diffusers, for any `dtype`. A
    float32 step equals diffusers' bit for bit; a float64 step is the exact answer for the same factors."""

    def __init__(self, config, kind="ddpm", steps=None, dtype=torch.float32, device="cpu"):
        config = {**DEFAULT_SCHEDULER, **config}
        for field, values in SUPPORTED.items():
            if config.get(field, values[0]) not in values:
                raise Refusal(f"{field} {config[field]!r}: these scripts compute {', '.join(map(repr, values))} only")
        count, self.clip = config["num_train_timesteps"], config["clip_sample_range"] if config["clip_sample"] else None
        steps = count if steps is None else steps
        if not 1 <= steps <= count:
            raise Refusal(f"{steps} steps; 1 to {count} are possible")
        ratio = count // steps
        self.t = [i * ratio + config["steps_offset"] for i in reversed(range(steps))]
        if self.t[0] >= count:
            raise Refusal(f"steps_offset {config['steps_offset']}: step {self.t[0]} of {count}")
        if config["beta_schedule"] == "squaredcos_cap_v2":
            betas = cosine_betas(count)
        else:
            power = 0.5 if config["beta_schedule"] == "scaled_linear" else 1
            ends = config["beta_start"] ** power, config["beta_end"] ** power
            betas = torch.linspace(*ends, count, dtype=torch.float32) ** (1 / power)
        bar = torch.cumprod(1 - betas, dim=0)
        last = bar[0] if kind == "ddim" and not config["set_alpha_to_one"] else torch.ones(())
        rows = [self._row(kind, bar[t], bar[t - ratio] if t >= ratio else last, t) for t in self.t]
        self.timesteps = torch.tensor(self.t, device=device)
        self.rows = torch.tensor(rows, dtype=dtype, device=device)

    @staticmethod
    def _row(kind, bar, next_bar, t):
        """Returns the factors of step(): noise and signal in x, then x0, x, prediction and noise in the result."""
        if kind == "ddim":
            factors = next_bar**0.5, 0, (1 - next_bar) ** 0.5, 0
        else:
            alpha = bar / next_bar
            variance = ((1 - next_bar) / (1 - bar) * (1 - alpha)).clamp(min=1e-20)
            factors = (
                next_bar**0.5 * (1 - alpha) / (1 - bar),
                alpha**0.5 * (1 - next_bar) / (1 - bar),
                0,
                variance**0.5 if t > 0 else 0,
            )
        return [float(value) for value in ((1 - bar) ** 0.5, bar**0.5, *factors)]

    def step(self, x, pred, row, noise):
        """Returns x after a step; `row` is a row of self.rows."""
        noise_in_x, signal, of_x0, of_x, of_pred, of_noise = row.unbind()
        pred = pred.to(x.dtype)
        x0 = (x - noise_in_x * pred) / signal
        if self.clip is not None:
            x0 = x0.clamp(-self.clip, self.clip)
        return of_x0 * x0 + of_x * x + of_pred * pred + of_noise * noise

    @torch.no_grad()
    def trajectory(self, model, observation, initial, noises):
        """Returns the predictions and x after each step, both shaped like noises [steps, n, horizon, d]."""
        x, preds, states = initial, [], []
        for t, row, noise in zip(self.timesteps, self.rows, noises):
            preds.append(model(x, t.expand(len(x)), observation).to(x.dtype))
            x = self.step(x, preds[-1], row, noise)
            states.append(x)
        return torch.stack(preds), torch.stack(states)


# --- Policy files

METADATA_KEY = "ladder.policy/1"
NORMALIZER = "normalizer.params_dict."
NORMALIZER_NAMES = [f"{NORMALIZER}{of}.{what}" for of in ("obs", "action") for what in ("scale", "offset")]
_LANDMARK = "diffusion_step_encoder.1.weight"
_LEROBOT_BLOCKS = {"conv1": "blocks.0", "conv2": "blocks.1"}


def network_tensors(tensors, whence):
    """Returns the network's tensors by their published names, without the prefix that they have in `tensors`. Accepts
    LeRobot's names too."""
    prefixes = [name[: -len(_LANDMARK)] for name in tensors if name.endswith(_LANDMARK)]
    if len(prefixes) != 1:
        raise Refusal(f"{whence}: {len(prefixes)} tensors are named {_LANDMARK}; a policy's network has one")
    parts = ("diffusion_step_encoder.", "down_modules.", "mid_modules.", "up_modules.", "final_conv.")
    found = {}
    for name, tensor in tensors.items():
        bare = name[len(prefixes[0]) :] if name.startswith(prefixes[0]) else ""
        if bare.startswith("local_cond_encoder."):
            raise Refusal(f"{whence}: {name}: local conditioning is not supported")
        if bare.startswith(parts):
            words = [_LEROBOT_BLOCKS.get(word, word) for word in bare.split(".")]
            if words[0] in ("down_modules", "up_modules") and words[2] == "2" and len(words) == 4:
                words.insert(3, "conv")
            found[".".join(words)] = tensor
    return found


def lerobot_name(name):
    """Returns LeRobot's name of the tensor with a published name."""
    for theirs, published in _LEROBOT_BLOCKS.items():
        name = name.replace(f".{published}.", f".{theirs}.")
    words = name.split(".")
    if words[0] in ("down_modules", "up_modules") and words[2:4] == ["2", "conv"]:
        del words[3]
    return "diffusion.unet." + ".".join(words)


def sizes_of(network, whence):
    """Returns the arguments of ConditionalUnet1D that follow from the shapes: all but n_groups."""
    try:
        levels = 1 + max(int(name.split(".")[1]) for name in network if name.startswith("down_modules."))
        first = [network[f"down_modules.{level}.0.blocks.0.block.0.weight"].shape for level in range(levels)]
        embedding = network[_LANDMARK].shape[1]
        film = network["down_modules.0.0.cond_encoder.1.weight"].shape
    except (KeyError, ValueError, IndexError) as error:
        raise Refusal(f"{whence}: no tensor {error} of a policy's network") from None
    return {
        "input_dim": first[0][1],
        "global_cond_dim": film[1] - embedding,
        "diffusion_step_embed_dim": embedding,
        "down_dims": tuple(shape[0] for shape in first),
        "kernel_size": first[0][2],
        "cond_predict_scale": film[0] == 2 * first[0][0],
    }


class Policy:
    """The module and its file's settings: horizon, scheduler and normalizer ({} or tensors by NORMALIZER_NAMES)."""

    def __init__(self, module, horizon=16, scheduler=None, normalizer=None):
        self.module, self.horizon, self.scheduler, self.normalizer = module, horizon, scheduler or {}, normalizer or {}

    def _scale_and_offset(self, of, like):
        """Returns scale and offset for the last dimension of `like`. All time steps of an observation share them."""
        pair = [self.normalizer.get(f"{NORMALIZER}{of}.{what}") for what in ("scale", "offset")]
        if pair[0] is None:
            return 1.0, 0.0
        return [value.to(like.device).flatten().repeat(like.shape[-1] // value.numel()) for value in pair]

    def normalized(self, observation):
        scale, offset = self._scale_and_offset("obs", observation)
        return observation * scale + offset

    def actions(self, x):
        scale, offset = self._scale_and_offset("action", x)
        return (x - offset) / scale

    def samples(self, actions):
        scale, offset = self._scale_and_offset("action", actions)
        return actions * scale + offset


def policy_of(tensors, metadata, whence):
    """Returns the Policy of a file's tensors and metadata. `whence` names the file in messages."""
    told = json.loads(metadata.get(METADATA_KEY, "{}"))
    network = network_tensors(tensors, whence)
    module = ConditionalUnet1D(**sizes_of(network, whence), n_groups=told.get("groups", 8))
    try:
        module.load_state_dict({name: tensor.float() for name, tensor in network.items()})
    except RuntimeError as error:
        raise Refusal(f"{whence}: {error}") from None
    normalizer = {name: tensors[name].float() for name in NORMALIZER_NAMES if name in tensors}
    return Policy(module, told.get("horizon", 16), told.get("scheduler"), normalizer)


def load(path):
    return policy_of(*common.load_tensors(path), path)


def metadata(groups, horizon, scheduler, steps=None):
    """Returns the metadata of a policy file: the settings that shapes do not tell."""
    told = {"groups": groups, "horizon": horizon, "scheduler": scheduler}
    if steps:
        told["steps"] = steps
    try:
        return {METADATA_KEY: json.dumps(told, allow_nan=False)}
    except ValueError:
        raise Refusal("the scheduler's configuration has an Infinity or NaN, which JSON has not") from None


# --- Made-up weights

TINY = {"input_dim": 2, "global_cond_dim": 20, "diffusion_step_embed_dim": 32, "down_dims": (32, 64, 128)}
TINY_SCHEDULER = {**DEFAULT_SCHEDULER, "num_train_timesteps": 10}


def hashed(tensor, shape):
    """Returns uniform float64 values in [-1, 1): (splitmix64(tensor * 2^32 + element) >> 40) / 2^23 - 1. Elements are
    numbered in PyTorch's order."""
    count = math.prod(shape)
    z = numpy.uint64(tensor << 32) + numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    z ^= z >> numpy.uint64(31)
    return ((z >> numpy.uint64(40)) * 2.0**-23 - 1).reshape(shape)


def hash_weights(module):
    """Fill the module: tensor number i, in state_dict's order from 0, from hashed(i). A transposed convolution's fan_in
    is outputs * taps, as its weight is [in, out, taps]."""
    number = {name: i for i, name in enumerate(module.state_dict())}
    return common.fill(module, lambda name, shape: hashed(number[name], shape))


def tiny():
    """Returns the policy of `./ladder denoise --config tiny`."""
    return Policy(hash_weights(ConditionalUnet1D(**TINY)), scheduler=TINY_SCHEDULER)
