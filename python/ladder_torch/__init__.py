"""Ladder's kernels as PyTorch operators and modules: the layers of a diffusion U-Net, channels innermost.

import torch, ladder_torch
norm = ladder_torch.GN_NHWC(32, 128, activation="silu").cuda()    # nn.GroupNorm(32, 128) and nn.SiLU() in one
"""

from .library import cpu, status  # first: it says what is wrong with an unfit torch
from .nn import GN_NHWC, Conv2d3x3, GroupNorm, Linear
from .ops import (
    attention,
    attention_qkv,
    avg_pool2x2,
    conv2d_1x1,
    conv2d_3x3,
    group_norm_act,
    linear,
    silu,
    timestep_embedding,
    upsample2x,
)
from .policy import policy
from .swap import swap, unswap
from .versions import explain, use, versions

__all__ = [
    "GN_NHWC",
    "Conv2d3x3",
    "GroupNorm",
    "Linear",
    "attention",
    "attention_qkv",
    "avg_pool2x2",
    "conv2d_1x1",
    "conv2d_3x3",
    "cpu",
    "explain",
    "group_norm_act",
    "linear",
    "policy",
    "silu",
    "status",
    "swap",
    "timestep_embedding",
    "unswap",
    "upsample2x",
    "use",
    "versions",
]
