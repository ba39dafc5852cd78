"""Replacements for PyTorch's modules, with the same arguments, parameters and state_dict."""

import torch

from .checks import has_kernel_type
from .conv import conv2d_3x3
from .define import is_channels_last
from .group_norm import ACTIVATIONS, group_norm_act
from .linear import linear


class GroupNorm(torch.nn.GroupNorm):
    """torch.nn.GroupNorm with a result whose channels are innermost."""

    def forward(self, x):
        return group_norm_act(x, self.num_groups, self.weight, self.bias, self.eps)


class GN_NHWC(torch.nn.GroupNorm):
    """torch.nn.GroupNorm fused with an activation, with gnNHWC's arguments.

    Activations are identity, relu, silu (or swish), gelu, gelu_tanh and mish. Types other than fp32, bf16 and fp16, and
    inputs whose channels are not innermost, go through PyTorch's operators."""

    def __init__(self, num_groups, num_channels, activation="identity", **kwargs):
        super().__init__(num_groups, num_channels, **kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"GN_NHWC: no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
        self.activation = activation

    def forward(self, x):
        if not has_kernel_type(x) or x.dim() >= 3 and not is_channels_last(x):
            return ACTIVATIONS[self.activation][0](super().forward(x))
        return group_norm_act(x, self.num_groups, self.weight, self.bias, self.eps, self.activation)

    def extra_repr(self):
        return f"{super().extra_repr()}, activation={self.activation}"


class Conv2d3x3(torch.nn.Conv2d):
    """torch.nn.Conv2d(in_channels, out_channels, 3, padding=1) with weight and result in channels_last."""

    def __init__(self, in_channels, out_channels, bias=True, device=None, dtype=None):
        super().__init__(in_channels, out_channels, 3, padding=1, bias=bias, device=device, dtype=dtype)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return conv2d_3x3(x, self.weight, self.bias)


class Linear(torch.nn.Linear):
    """torch.nn.Linear of rows, or of images [n, h, w, c]."""

    def forward(self, x):
        return linear(x, self.weight, self.bias)
