"""The operators as functions. As PyTorch's they are torch.ops.ladder.<name>."""

import os

from . import library
from .conv import conv2d_3x3
from .group_norm import group_norm_act

__all__ = ["conv2d_3x3", "group_norm_act"]

if os.environ.get("LADDER_TORCH_CPU"):
    library.cpu(os.environ["LADDER_TORCH_CPU"])
