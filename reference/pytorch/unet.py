"""guided-diffusion's U-Net as the trainer has it, for PyTorch: conv_resample, resblock_updown and use_scale_shift_norm off,
no dropout, no classes, the legacy order of qkv. state_dict() has the official names, shapes and order, so that weights
travel both ways. Written from the semantics, not from the original's source.

Images are [n, 3, h, w], contiguous or channels_last, t is [n], integers from 0 to 999. Nothing here casts: autocast or the
weights' own dtype decide, and after `.double()` all is double.
"""

import math
from dataclasses import asdict, dataclass

import torch
from torch import nn
from torch.nn import functional

GROUPS = 32
MAX_PERIOD = 10000


@dataclass(frozen=True)
class Config:
    image_size: int = 64  # side of the images, a multiple of 2^(levels - 1)
    channels: int = 64  # of the first level, before its multiplier
    channel_mult: tuple = (1, 2, 3, 4)  # one a level
    res_blocks: int = 2  # of a level on the way down; one more on the way up
    attention_resolutions: tuple = (16, 8)  # sides at which attention stands
    head_size: int = 32
    in_channels: int = 3
    out_channels: int = 3

    def metadata(self):
        """For a file's metadata: its values as text."""
        return {
            name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, value in asdict(self).items()
        }


CONFIGS = {
    "unet64": Config(),
    "tiny": Config(image_size=8, channel_mult=(1, 2), res_blocks=1, attention_resolutions=(4,)),
}
# Parameters and tensors of the official model: any other count is a mistake here.
COUNTS = {"unet64": (20_494_211, 326)}


def timestep_embedding(t, channels, dtype=torch.float32):
    """[n] to [n, channels], channels even: cosines, then sines, computed in `dtype`."""
    half = channels // 2
    exponent = -math.log(MAX_PERIOD) * torch.arange(half, dtype=dtype, device=t.device) / half
    angle = t.to(dtype)[:, None] * torch.exp(exponent)
    return torch.cat([torch.cos(angle), torch.sin(angle)], dim=-1)


def legacy_attention(qkv, heads, explicit):
    """qkv [n, t, 3c], channels as [heads][q, k, v][d], to [n, t, c]. Explicit: scores, softmax and sum one by one, q and k
    each scaled by 1 / sqrt(sqrt(d)); otherwise PyTorch's fused kernels."""
    n, tokens, channels = qkv.shape
    q, k, v = (part.transpose(1, 2) for part in qkv.view(n, tokens, heads, 3, -1).unbind(3))  # [n, heads, t, d]
    if explicit:
        scale = 1 / math.sqrt(math.sqrt(q.shape[-1]))
        scores = torch.matmul(q * scale, (k * scale).transpose(2, 3))
        out = torch.matmul(torch.softmax(scores, dim=-1).to(v.dtype), v)
    else:
        out = functional.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).reshape(n, tokens, channels // 3)


class ResBlock(nn.Module):
    def __init__(self, channels, embedding, out_channels):
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, out_channels, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embedding, out_channels))
        # Index 2 is the original's dropout.
        self.out_layers = nn.Sequential(
            nn.GroupNorm(GROUPS, out_channels),
            nn.SiLU(),
            nn.Identity(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
        )
        self.skip_connection = nn.Identity() if channels == out_channels else nn.Conv2d(channels, out_channels, 1)

    def forward(self, x, embedding):
        h = self.in_layers(x) + self.emb_layers(embedding)[:, :, None, None]
        return self.skip_connection(x) + self.out_layers(h)


class AttentionBlock(nn.Module):
    def __init__(self, channels, head_size, explicit):
        super().__init__()
        self.heads = channels // head_size
        self.explicit = explicit
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x, embedding):
        # Tokens [n, t, c]: of a channels_last image a view, and the 1x1 convolutions are plain matrix products.
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        qkv = functional.linear(tokens, self.qkv.weight[:, :, 0], self.qkv.bias)
        out = legacy_attention(qkv, self.heads, self.explicit)
        out = functional.linear(out, self.proj_out.weight[:, :, 0], self.proj_out.bias)
        return x + out.transpose(1, 2).unflatten(2, tuple(x.shape[2:]))


class Downsample(nn.Module):
    def forward(self, x, embedding):
        return functional.avg_pool2d(x, 2)


class Upsample(nn.Module):
    def forward(self, x, embedding):
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")


class Stage(nn.ModuleList):
    """Layers one after the other; a stage's output is one skip connection."""

    def forward(self, x, embedding):
        for layer in self:
            x = layer(x) if isinstance(layer, nn.Conv2d) else layer(x, embedding)
        return x


class UNet(nn.Module):
    """The noise [n, 3, h, w] that is in x_t [n, 3, h, w] at t [n]."""

    def __init__(self, config=None, explicit_attention=False):
        """Initialised as the original: torch's defaults, with what ends a residual branch, and the last convolution, zero."""
        super().__init__()
        config = config or Config()
        _check(config)
        self.config = config
        width, embedding = config.channels, 4 * config.channels
        self.time_embed = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))

        def attention(channels, side):
            wanted = side in config.attention_resolutions
            return [AttentionBlock(channels, config.head_size, explicit_attention)] if wanted else []

        channels, side, last = config.channel_mult[0] * width, config.image_size, len(config.channel_mult) - 1
        self.input_blocks = nn.ModuleList([Stage([nn.Conv2d(config.in_channels, channels, 3, padding=1)])])
        skips = [channels]
        for level, multiplier in enumerate(config.channel_mult):
            for _ in range(config.res_blocks):
                block = ResBlock(channels, embedding, multiplier * width)
                channels = multiplier * width
                self.input_blocks.append(Stage([block, *attention(channels, side)]))
                skips.append(channels)
            if level != last:
                # The original's Downsample has its pooling as `op`; it has no parameters, so no name is missed.
                self.input_blocks.append(Stage([Downsample()]))
                skips.append(channels)
                side //= 2
        self.middle_block = Stage(
            [
                ResBlock(channels, embedding, channels),
                AttentionBlock(channels, config.head_size, explicit_attention),
                ResBlock(channels, embedding, channels),
            ]
        )
        self.output_blocks = nn.ModuleList()
        for level, multiplier in reversed(list(enumerate(config.channel_mult))):
            for block_idx in range(config.res_blocks + 1):
                block = ResBlock(channels + skips.pop(), embedding, multiplier * width)
                channels = multiplier * width
                stage = Stage([block, *attention(channels, side)])
                if level and block_idx == config.res_blocks:
                    stage.append(Upsample())
                    side *= 2
                self.output_blocks.append(stage)
        self.out = nn.Sequential(
            nn.GroupNorm(GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, config.out_channels, 3, padding=1)
        )
        for name in zeroed_layers(self):
            for parameter in self.get_submodule(name).parameters():
                nn.init.zeros_(parameter)
        _check_counts(self)

    def forward(self, x_t, t):
        dtype = self.time_embed[0].weight.dtype
        embedding = self.time_embed(timestep_embedding(t, self.config.channels, dtype))
        h, skips = x_t, []
        for stage in self.input_blocks:
            h = stage(h, embedding)
            skips.append(h)
        h = self.middle_block(h, embedding)
        for stage in self.output_blocks:
            h = stage(torch.cat([h, skips.pop()], dim=1), embedding)
        return self.out(h)


def zeroed_layers(model):
    """Names of the layers that start at zero: 34 of unet64."""
    names = [
        name + (".out_layers.3" if isinstance(module, ResBlock) else ".proj_out")
        for name, module in model.named_modules()
        if isinstance(module, (ResBlock, AttentionBlock))
    ]
    return [*names, "out.2"]


def _check(config):
    halvings = 2 ** (len(config.channel_mult) - 1)
    if config.image_size % halvings:
        raise ValueError(
            f"image_size {config.image_size} is no multiple of {halvings}, which {halvings.bit_length()} levels need"
        )
    for multiplier in config.channel_mult:
        if multiplier * config.channels % GROUPS or multiplier * config.channels % config.head_size:
            raise ValueError(
                f"{multiplier * config.channels} channels are no multiple of {GROUPS} groups and of head_size "
                f"{config.head_size}"
            )


def _check_counts(model):
    for name, (parameters, tensors) in COUNTS.items():
        if model.config == CONFIGS[name]:
            made = sum(p.numel() for p in model.parameters()), sum(1 for _ in model.parameters())
            if made != (parameters, tensors):
                raise AssertionError(
                    f"{name} has {made[0]} parameters in {made[1]} tensors, not {parameters} in {tensors}"
                )
