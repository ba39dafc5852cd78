"""What swap() makes of a module's class: a subclass of it that computes with this package's operators.

Changing `__class__` keeps parameters, buffers, hooks, names and references from anywhere as they are, which a new module in
the old one's place does not. deepcopy, pickle and torch.compile (which guards on the class) were tried and work."""

import contextlib
import functools
import inspect

import torch

from .attention import attention_qkv
from .conv import conv2d_3x3
from .define import is_channels_last
from .group_norm import group_norm_act
from .linear import conv2d_1x1, linear
from .nn import GN_NHWC
from .resample import avg_pool2x2
from .silu import silu

ACTIVATIONS = {torch.nn.SiLU: "silu", torch.nn.Mish: "mish", torch.nn.ReLU: "relu"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooked(module):
    return any(getattr(module, name) for name in _HOOKS)


class StandIn:
    """Before the module's own class among the bases of what class_for() makes."""

    unswapped = None  # that own class

    @staticmethod
    def unfit(module):
        """Why a module of such a class must stay, or ""."""
        return ""

    @staticmethod
    def takes(x):
        """Whether such an input is computed here; all else goes to the module's own forward."""
        return True

    def __reduce_ex__(self, protocol):
        make, (_, *arguments), *state = super().__reduce_ex__(max(protocol, 2))
        return _remake, (make, self.unswapped, *arguments), *state


_UNKNOWN = "the forward of this {} is none that is known"


def _random(like, shape=None):
    """The same at every call, in the type and on the device of `like`."""
    drawn = torch.randn(like.shape if shape is None else shape, generator=torch.Generator().manual_seed(0))
    return drawn.to(like.device, like.dtype)


def _differs(module, expected, shape, *others):
    """A name alone proves nothing (GLIDE's GroupNorm32 has an activation): why module, with random weights and a small
    input, does not compute what expected(x, weights) does, or ""."""
    reason = _UNKNOWN.format(type(module).__name__)
    words = inspect.signature(module.forward).parameters.values()
    if sum(word.kind is word.POSITIONAL_OR_KEYWORD for word in words) != 1 + len(others):
        return reason
    weights = {name: _random(each) for name, each in module.named_parameters()}
    x = _random(next(iter(weights.values()), torch.empty(0)), shape)
    results = []
    try:
        for call in (lambda x, weights: torch.func.functional_call(module, weights, (x, *others)), expected):
            with torch.no_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
                torch.manual_seed(0)  # of a dropout
                results.append(call(x, weights))
        near = 1e-4 if x.dtype.itemsize > 2 else 1e-2
        return "" if torch.allclose(*results, rtol=near, atol=near) else reason
    except Exception:  # whatever a stranger's forward throws
        return reason


def _remake(make, original, *arguments):
    return make(class_for(original), *arguments)


class _GroupNorm(StandIn, GN_NHWC):
    """nn.GroupNorm, or guided-diffusion's GroupNorm32, which computes in fp32 and answers in x's type, as the kernels do."""

    activation = "identity"

    @staticmethod
    def unfit(module):
        def expected(x, weights):
            pair = [weights[name].float() if name in weights else None for name in ("weight", "bias")]
            return torch.nn.functional.group_norm(x.float(), module.num_groups, *pair, module.eps).type(x.dtype)

        exactly = type(module) is torch.nn.GroupNorm
        return "" if exactly else _differs(module, expected, [2, module.num_channels, 3])

    @staticmethod
    def takes(x):
        return x.dtype != torch.float64 and (x.dim() < 3 or is_channels_last(x))

    def forward(self, input):
        return super().forward(input)


def _set_otherwise(module, accepted):
    for name, values in accepted.items():
        value = getattr(module, name)
        if value not in values:
            return f"{name} {value}; {' or '.join(map(str, values))} is swapped"
    return ""


class _Linear(StandIn):
    @staticmethod
    def takes(x):
        return x.dtype != torch.float64 and x.is_contiguous()

    def forward(self, input):
        return linear(input, self.weight, self.bias) if self.takes(input) else super().forward(input)


class _Conv2d(StandIn):
    @staticmethod
    def unfit(module):
        padding = (0, 0) if module.kernel_size == (1, 1) else (1, 1)
        return _set_otherwise(module, {**_CONV2D, "padding": [padding]})

    @staticmethod
    def takes(x):
        return x.dim() == 4 and x.dtype != torch.float64 and is_channels_last(x)

    def forward(self, input):
        if not self.takes(input):
            return super().forward(input)
        operator = conv2d_1x1 if self.kernel_size == (1, 1) else conv2d_3x3
        return operator(input, self.weight, self.bias)


_CONV2D = {
    "kernel_size": [(3, 3), (1, 1)],
    "stride": [(1, 1)],
    "dilation": [(1, 1)],
    "groups": [1],
    "padding_mode": ["zeros"],
}


class _AvgPool2d(StandIn):
    @staticmethod
    def unfit(module):
        return _set_otherwise(module, _AVG_POOL2D)

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
    """guided-diffusion's, from before PyTorch had one."""

    @staticmethod
    def unfit(module):
        return _differs(module, lambda x, weights: torch.nn.functional.silu(x), [4, 25])

    @staticmethod
    def takes(x):
        return x.dtype != torch.float64 and (x.is_contiguous() or x.dim() > 2 and is_channels_last(x))

    def forward(self, x):
        return silu(x) if self.takes(x) else super().forward(x)


def is_activation(module):
    """Or will be, once swapped."""
    return stand_in_of(type(module)) is _SiLU


def activation_name(module):
    """What group_norm_act calls it, or None."""
    return "silu" if isinstance(module, _SiLU) else ACTIVATIONS.get(type(module))


def norm_then(norm, activation, x):
    """activation(norm(x)), in one where the norm is swapped and no hook waits in between."""
    name = activation_name(activation) if isinstance(norm, _GroupNorm) else None
    if name is None or hooked(norm) or hooked(activation) or not norm.takes(x):
        return activation(norm(x))
    return group_norm_act(x, norm.num_groups, norm.weight, norm.bias, norm.eps, name)


class _QKVAttention(StandIn):
    """guided-diffusion's, of qkv [n, 3 c, t]; improved-diffusion's has no heads and stays."""

    order = "new"

    @classmethod
    def unfit(cls, module):
        heads = getattr(module, "n_heads", None)
        if not isinstance(heads, int):
            return _UNKNOWN.format(type(module).__name__)

        def expected(qkv, weights):
            parts = qkv.unflatten(1, (heads, 3, 4) if cls.order == "legacy" else (3, heads, 4))
            q, k, v = (each.mT for each in parts.unbind(2 if cls.order == "legacy" else 1))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).mT.flatten(1, 2)

        return _differs(module, expected, [2, 3 * heads * 4, 5])

    @staticmethod
    def takes(x):
        return x.dim() == 3 and x.dtype != torch.float64

    def forward(self, qkv):
        if not self.takes(qkv):
            return super().forward(qkv)
        out = attention_qkv(qkv.mT, self.n_heads, self.order).mT
        return out if is_channels_last(qkv) else out.contiguous()


class _QKVAttentionLegacy(_QKVAttention):
    order = "legacy"


class Container(StandIn):
    """Of norms and activations that its stand-in takes in one."""

    @staticmethod
    def pairs(module):
        """Of children, the first a norm if its class says so."""


class _Sequential(Container):
    """Takes norms and the activations after them in one. Whoever calls one of its modules alone, or a slice, as
    guided-diffusion's ResBlock does for use_scale_shift_norm, gets what that module always computed: an identity in the
    activation's place would be wrong there."""

    @staticmethod
    def pairs(module):
        return zip(module, list(module)[1:])

    def forward(self, input):
        norm = None
        for module in self:
            if norm is not None:
                input, norm = norm_then(norm, module, input), None
            elif isinstance(module, _GroupNorm):
                norm = module
            else:
                input = module(input)
        return input if norm is None else norm(input)


class _ResnetBlock2D(Container):
    """diffusers': `nonlinearity` stands after both norms, and before the projection of the time embedding."""

    @staticmethod
    def unfit(module):
        if any(map(hooked, module.modules())):
            return "has hooks inside"
        if getattr(module, "time_embedding_norm", None) not in ("default", "scale_shift"):
            return _UNKNOWN.format(type(module).__name__)
        temb = module.time_emb_proj and _random(module.conv1.weight, [2, module.time_emb_proj.in_features])

        def ours(x, weights):
            with of_class(module, class_for(type(module))):
                return torch.func.functional_call(module, weights, (x, temb))

        return _differs(module, ours, [2, module.in_channels, 4, 4], temb)

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
            if self.upsample is not None and hidden.shape[0] >= 64:  # as diffusers does
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
            if self.training and not isinstance(self.conv_shortcut, StandIn):  # whose gradient DDP takes as it is
                input_tensor = input_tensor.contiguous()
            input_tensor = self.conv_shortcut(input_tensor)
        return (input_tensor + hidden) / self.output_scale_factor


_EXACTLY = {
    torch.nn.GroupNorm: _GroupNorm,
    torch.nn.Conv2d: _Conv2d,
    torch.nn.Linear: _Linear,
    torch.nn.AvgPool2d: _AvgPool2d,
    torch.nn.Sequential: _Sequential,
}
_BY_NAME = {
    "GroupNorm32": _GroupNorm,
    "SiLU": _SiLU,
    "QKVAttention": _QKVAttention,
    "QKVAttentionLegacy": _QKVAttentionLegacy,
    "ResnetBlock2D": _ResnetBlock2D,
}


def stand_in_of(original):
    """Or None. A name means something only outside of PyTorch, which has a SiLU of its own."""
    ours = None if original.__module__.startswith("torch.") else _BY_NAME.get(original.__name__)
    return _EXACTLY.get(original, ours)


@functools.cache
def class_for(original):
    stand_in = stand_in_of(original)
    body = {"unswapped": original, "__module__": __name__, "__doc__": stand_in.__doc__}
    return type(f"Ladder{original.__name__}", (stand_in, original), body)


def become(module):
    """A stand-in, if it is none yet."""
    if not isinstance(module, StandIn):
        module.__class__ = class_for(type(module))


@contextlib.contextmanager
def of_class(module, its):
    before = type(module)
    module.__class__ = its
    try:
        yield
    finally:
        module.__class__ = before
