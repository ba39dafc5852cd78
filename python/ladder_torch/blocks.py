"""Stand-ins, which compute with this package's operators, and the classes that swap() gives to modules.

swap() sets a module's `__class__` to a subclass of a stand-in and of the module's original class (class_for()). Unlike
a new module in its place, that keeps parameters, buffers, hooks, names and all references to the module. deepcopy,
pickle and torch.compile (which guards on the class) were tried and work. stand_in.py defines unfit() and takes()."""

import contextlib
import functools
import inspect
import types

import torch

from .attention import attention_qkv
from .checks import has_kernel_type
from .conv import conv2d_3x3
from .define import is_channels_last
from .group_norm import group_norm_act
from .linear import conv2d_1x1, linear
from .resample import avg_pool2x2
from .silu import silu
from .stand_in import StandIn, differs, intercepted, random_like, set_otherwise, unknown

ACTIVATIONS = {torch.nn.SiLU: "silu", torch.nn.Mish: "mish", torch.nn.ReLU: "relu"}


class GroupNorm(StandIn):
    """nn.GroupNorm; also edm's GroupNorm and guided-diffusion's GroupNorm32, which are found by their class names.

    Like GroupNorm32, the kernels compute in fp32 and return x's type."""

    @staticmethod
    def unfit(module):
        if type(module) is torch.nn.GroupNorm:
            return ""
        if not all(hasattr(module, name) for name in ("num_groups", "eps", "weight", "bias")):
            return unknown(module)

        def expected(x, weights):
            pair = [weights[name].float() if name in weights else None for name in ("weight", "bias")]
            return torch.nn.functional.group_norm(x.float(), module.num_groups, *pair, module.eps).type(x.dtype)

        channels = getattr(module, "num_channels", module.num_groups) if module.weight is None else len(module.weight)
        return differs(module, expected, [2, channels, 3])

    @staticmethod
    def takes(x):
        return has_kernel_type(x) and (x.dim() < 3 or is_channels_last(x))

    def forward(self, input):
        if not self.takes(input):
            return super().forward(input)
        return group_norm_act(input, self.num_groups, self.weight, self.bias, self.eps)


class _Linear(StandIn):
    @staticmethod
    def takes(x):
        return has_kernel_type(x) and x.is_contiguous()

    def weight_beside(self, x):  # the weight to compute with x; edm's stand-ins cast it to x's type
        return self.weight

    def forward(self, input):
        if not self.takes(input):
            return super().forward(input)
        return linear(input, self.weight_beside(input), self.bias)


class _Conv2d(StandIn):
    @staticmethod
    def unfit(module):
        padding = (0, 0) if module.kernel_size == (1, 1) else (1, 1)
        return set_otherwise(module, {**_CONV2D, "padding": [padding]})

    @staticmethod
    def takes(x):
        return x.dim() == 4 and has_kernel_type(x) and is_channels_last(x)

    def weight_beside(self, x):
        return self.weight

    def forward(self, input):
        if not self.takes(input):
            return super().forward(input)
        weight = self.weight_beside(input)
        return (conv2d_1x1 if weight.shape[2:] == (1, 1) else conv2d_3x3)(input, weight, self.bias)


_CONV2D = {
    "kernel_size": [(3, 3), (1, 1)],
    "stride": [(1, 1)],
    "dilation": [(1, 1)],
    "groups": [1],
    "padding_mode": ["zeros"],
}


class _EdmLinear(_Linear):
    """edm's Linear: not an nn.Linear; its weight is cast to x's type."""

    @staticmethod
    def unfit(module):
        if not _has_weights(module, 2):
            return unknown(module)
        return differs(
            module,
            lambda x, weights: torch.nn.functional.linear(x, weights["weight"], weights.get("bias")),
            [4, module.weight.shape[1]],
        )

    def weight_beside(self, x):
        return self.weight.to(x.dtype)


class _EdmConv2d(_Conv2d):
    """edm's Conv2d: not an nn.Conv2d; it may resample, and its weight is cast to x's type."""

    @staticmethod
    def unfit(module):
        if not _has_weights(module, 4):
            return unknown(module)
        taps = tuple(module.weight.shape[2:])
        reason = set_otherwise(module, {name: [False] for name in ("up", "down") if hasattr(module, name)})
        if reason or taps not in _CONV2D["kernel_size"]:
            return reason or f"kernel_size {taps}; (3, 3) or (1, 1) is swapped"

        def expected(x, weights):
            return torch.nn.functional.conv2d(x, weights["weight"], weights.get("bias"), padding=taps[0] // 2)

        return differs(module, expected, [2, module.weight.shape[1], 4, 3])

    def weight_beside(self, x):
        return self.weight.to(x.dtype)


def _has_weights(module, dimensions):
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == dimensions and hasattr(module, "bias")


class _AvgPool2d(StandIn):
    @staticmethod
    def unfit(module):
        return set_otherwise(module, _AVG_POOL2D)

    @staticmethod
    def takes(x):
        return _Conv2d.takes(x) and not x.shape[2] % 2 and not x.shape[3] % 2

    def forward(self, input):
        return avg_pool2x2(input) if self.takes(input) else super().forward(input)


_AVG_POOL2D = {
    "kernel_size": [2, (2, 2)],
    "stride": [2, (2, 2)],
    "padding": [0, (0, 0)],
    "ceil_mode": [False],
    "divisor_override": [None],
}


class _SiLU(StandIn):
    """guided-diffusion's SiLU, from before PyTorch had one."""

    @staticmethod
    def unfit(module):
        return differs(module, lambda x, weights: torch.nn.functional.silu(x), [4, 25])

    @staticmethod
    def takes(x):
        return has_kernel_type(x) and (x.is_contiguous() or x.dim() > 2 and is_channels_last(x))

    def forward(self, x):
        return silu(x) if self.takes(x) else super().forward(x)


def is_norm(module):
    """Returns whether swapping the module makes it a GroupNorm stand-in."""
    return stand_in_of(type(module)) is GroupNorm


def is_activation(module):
    """Returns whether swapping the module makes it a SiLU stand-in."""
    return stand_in_of(type(module)) is _SiLU


def activation_name(module):
    """Returns group_norm_act()'s name of the activation, or None."""
    return "silu" if isinstance(module, _SiLU) else ACTIVATIONS.get(type(module))


def norm_then(norm, activation, x):
    """Returns activation(norm(x)), fused if the norm is swapped and takes x, and neither module is intercepted()."""
    name = activation_name(activation) if isinstance(norm, GroupNorm) else None
    if name is None or intercepted(norm) or intercepted(activation) or not norm.takes(x):
        return activation(norm(x))
    return group_norm_act(x, norm.num_groups, norm.weight, norm.bias, norm.eps, name)


class _QKVAttention(StandIn):
    """guided-diffusion's QKVAttention of qkv [n, 3 c, t]; attention_qkv() describes `order`, that of the 3 c channels.

    improved-diffusion's QKVAttention has no n_heads and is not swapped."""

    order = "new"

    @classmethod
    def unfit(cls, module):
        heads = getattr(module, "n_heads", None)
        if not isinstance(heads, int):
            return unknown(module)

        def expected(qkv, weights):
            parts = qkv.unflatten(1, (heads, 3, 4) if cls.order == "legacy" else (3, heads, 4))
            q, k, v = (each.mT for each in parts.unbind(2 if cls.order == "legacy" else 1))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).mT.flatten(1, 2)

        return differs(module, expected, [2, 3 * heads * 4, 5])

    @staticmethod
    def takes(x):
        return x.dim() == 3 and has_kernel_type(x)

    def forward(self, qkv):
        if not self.takes(qkv):
            return super().forward(qkv)
        out = attention_qkv(qkv.mT, self.n_heads, self.order).mT
        return out if is_channels_last(qkv) else out.contiguous()


class _QKVAttentionLegacy(_QKVAttention):
    order = "legacy"


class Container(StandIn):
    """Container of modules whose stand-in fuses a norm with its activation."""

    @staticmethod
    def pairs(module):
        """Returns pairs (norm, activation) of modules to fuse. They are candidates: the caller checks both types."""


class _Sequential(Container):
    """nn.Sequential that fuses norms with the activations after them.

    Fusion leaves the children unchanged. guided-diffusion's ResBlock with use_scale_shift_norm calls single children
    and slices: these compute the same as before, but would not if an identity replaced the activation."""

    @staticmethod
    def pairs(module):
        return zip(module, list(module)[1:])

    def forward(self, input):
        norm = None
        for module in self:
            if norm is not None:
                input, norm = norm_then(norm, module, input), None
            elif isinstance(module, GroupNorm):
                norm = module
            else:
                input = module(input)
        return input if norm is None else norm(input)


class _ResnetBlock2D(Container):
    """diffusers' ResnetBlock2D. `nonlinearity` follows norm1 and norm2, and precedes the time embedding's projection.

    With time_embedding_norm "scale_shift" a scale and shift come between norm2 and it, so that norm2 is not fused."""

    @staticmethod
    def unfit(module):
        if any(map(intercepted, module.modules())):
            return "has hooks or replaced forwards inside"
        if getattr(module, "time_embedding_norm", None) not in ("default", "scale_shift"):
            return unknown(module)
        temb = module.time_emb_proj and random_like(module.conv1.weight, [2, module.time_emb_proj.in_features])

        def ours(x, weights):
            with of_class(module, class_for(type(module))):
                return torch.func.functional_call(module, weights, (x, temb))

        return differs(module, ours, [2, module.in_channels, 4, 4], temb)

    @staticmethod
    def pairs(module):
        norms = [module.norm1] if module.time_embedding_norm == "scale_shift" else [module.norm1, module.norm2]
        return [(norm, module.nonlinearity) for norm in norms]

    def forward(self, input_tensor, temb, *args, **kwargs):
        scale_shift = self.time_embedding_norm == "scale_shift"
        if args or kwargs or (temb is None and (scale_shift or self.time_emb_proj is not None)):
            return super().forward(input_tensor, temb, *args, **kwargs)
        hidden = norm_then(self.norm1, self.nonlinearity, input_tensor)
        resample = self.downsample if self.upsample is None else self.upsample
        if resample is not None:
            if self.upsample is not None and hidden.shape[0] >= 64:  # same as in diffusers
                input_tensor, hidden = input_tensor.contiguous(), hidden.contiguous()
            input_tensor, hidden = resample(input_tensor), resample(hidden)
        hidden = self.conv1(hidden)
        if self.time_emb_proj is not None:
            temb = self.time_emb_proj(temb if self.skip_time_act else self.nonlinearity(temb))[:, :, None, None]
        if scale_shift:
            scale, shift = temb.chunk(2, dim=1)
            hidden = self.nonlinearity(self.norm2(hidden) * (1 + scale) + shift)
        else:
            hidden = norm_then(self.norm2, self.nonlinearity, hidden if temb is None else hidden + temb)
        hidden = self.conv2(self.dropout(hidden))
        if self.conv_shortcut is not None:
            if self.training and not isinstance(self.conv_shortcut, StandIn):  # as diffusers does for DDP's gradients
                input_tensor = input_tensor.contiguous()
            input_tensor = self.conv_shortcut(input_tensor)
        return (input_tensor + hidden) / self.output_scale_factor


_EXACTLY = {
    torch.nn.GroupNorm: GroupNorm,
    torch.nn.Conv2d: _Conv2d,
    torch.nn.Linear: _Linear,
    torch.nn.AvgPool2d: _AvgPool2d,
    torch.nn.Sequential: _Sequential,
}
_BY_NAME = {
    "GroupNorm32": GroupNorm,
    "SiLU": _SiLU,
    "QKVAttention": _QKVAttention,
    "QKVAttentionLegacy": _QKVAttentionLegacy,
    "ResnetBlock2D": _ResnetBlock2D,
}
_EDM = {
    "GroupNorm": GroupNorm,
    "Conv2d": _EdmConv2d,
    "Linear": _EdmLinear,
}  # edm's classes, named like PyTorch's, but no subclasses of them


def known_names():
    return [name for name, stand_in in _BY_NAME.items() if not issubclass(stand_in, Container)] + [*_EDM]


def stand_in_of(original):
    """Returns the stand-in for a class, or None. PyTorch's classes match by identity, as torch.nn.SiLU has the name of
    guided-diffusion's SiLU; this package's classes match nothing; all others match by name."""
    if original in _EXACTLY or original.__module__.startswith(("torch.", "ladder_torch.")):
        return _EXACTLY.get(original)
    names = _BY_NAME if issubclass(original, tuple(_EXACTLY)) else {**_BY_NAME, **_EDM}
    return names.get(original.__name__)


@functools.cache
def class_for(original):
    stand_in = stand_in_of(original)
    body = {"unswapped": original, "__module__": __name__, "__doc__": stand_in.__doc__, "__reduce_ex__": _reduced}
    return type(f"Ladder{original.__name__}", (stand_in, original), body)


def _reduced(self, protocol):
    make, (_, *arguments), *state = super(StandIn, self).__reduce_ex__(max(protocol, 2))
    return _remake, (make, self.unswapped, *arguments), *state


def _remake(make, original, *arguments):
    return make(class_for(original), *arguments)


def become(module):
    """Makes the module a stand-in, if it is not one yet."""
    if not isinstance(module, StandIn):
        module.__class__ = class_for(type(module))


def revert(module):
    """Restores a stand-in's original class. An attribute that holds a bound method of the stand-in's, such as the
    forward that accelerate stores, gets the original class's method."""
    before = type(module)
    module.__class__ = _reverted(before)
    for name, value in vars(module).items():
        if inspect.ismethod(value) and value.__func__ is getattr(before, value.__name__, None):
            vars(module)[name] = types.MethodType(getattr(type(module), value.__name__), module)


def _reverted(a_class):
    """Returns the original class of a stand-in. Parametrizations and FSDP2 derive classes from a stand-in: these are
    rebuilt without it."""
    if "unswapped" in vars(a_class):
        return a_class.unswapped
    bases = tuple(_reverted(base) if issubclass(base, StandIn) else base for base in a_class.__bases__)
    body = {name: value for name, value in vars(a_class).items() if name not in ("__dict__", "__weakref__")}
    return type(a_class)(a_class.__name__.replace("Ladder", "", 1), bases, body)


@contextlib.contextmanager
def of_class(module, its):
    before = type(module)
    module.__class__ = its
    try:
        yield
    finally:
        module.__class__ = before
