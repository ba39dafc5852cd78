"""Modules in the place of PyTorch's own: the same arguments, parameters and state_dict."""

import torch

from .checks import has_kernel_type
from .conv import conv2d_3x3
from .define import is_channels_last
from .group_norm import ACTIVATIONS, group_norm_act
from .linear import linear


class GroupNorm(torch.nn.GroupNorm):
    """torch.nn.GroupNorm whose result has its channels innermost."""

    def forward(self, x):
        return group_norm_act(x, self.num_groups, self.weight, self.bias, self.eps)


class GN_NHWC(torch.nn.GroupNorm):
    """torch.nn.GroupNorm and an activation in one, with gnNHWC's arguments: identity, relu, silu (or swish), gelu,
    gelu_tanh or mish. Other types than fp32, bf16 and fp16, and what does not have its channels innermost, go through
    PyTorch's operators."""

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
    """torch.nn.Conv2d(in_channels, out_channels, 3, padding=1), its weight channels_last and so its result."""

    def __init__(self, in_channels, out_channels, bias=True, device=None, dtype=None):
        super().__init__(in_channels, out_channels, 3, padding=1, bias=bias, device=device, dtype=dtype)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return conv2d_3x3(x, self.weight, self.bias)


class Linear(torch.nn.Linear):
    """torch.nn.Linear, of rows and of images whose channels come last in their sizes."""

    def forward(self, x):
        return linear(x, self.weight, self.bias)
