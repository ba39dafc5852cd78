"""The package's operators as functions. They are registered in PyTorch as torch.ops.ladder.<name>."""

import os

from . import library
from .attention import attention, attention_qkv
from .conv import conv2d_3x3
from .embedding import timestep_embedding
from .group_norm import group_norm_act
from .linear import conv2d_1x1, linear
from .resample import avg_pool2x2, upsample2x
from .silu import silu

__all__ = [
    "attention",
    "attention_qkv",
    "avg_pool2x2",
    "conv2d_1x1",
    "conv2d_3x3",
    "group_norm_act",
    "linear",
    "silu",
    "timestep_embedding",
    "upsample2x",
]

if os.environ.get("LADDER_TORCH_CPU"):
    library.cpu(os.environ["LADDER_TORCH_CPU"])
