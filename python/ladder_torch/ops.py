"""The operators as functions. As PyTorch's they are torch.ops.ladder.<name>."""

from . import library
from .group_norm import group_norm_act

__all__ = ["group_norm_act"]

library.begin()
