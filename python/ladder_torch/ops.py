"""The operators as functions. As PyTorch's they are torch.ops.ladder.<name>."""

from . import library
from .conv import conv2d_3x3
from .group_norm import group_norm_act

__all__ = ["conv2d_3x3", "group_norm_act"]

library.begin()
