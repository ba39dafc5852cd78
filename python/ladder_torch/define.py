"""Definition of the package's operators. Schemas are in Python, so that operators exist without a compiled library;
kernels are registered for CUDA and for the emulator; a formula of PyTorch's operators computes everything that no
kernel can.

    ladder::<name>              the operator that torch.compile sees, with fake and gradients
    ladder_kernels::<name>      the same without gradients, which saves an eager caller most of the CPU time
    ladder_emulator::<name>     CPU tensors through the emulator
    ladder::<name>_formula      the formula of PyTorch's operators
"""

import torch
from torch.autograd import forward_ad

from . import library
from .checks import autocast_on

_LIBRARIES = [torch.library.Library(name, "FRAGMENT") for name in ("ladder", "ladder_kernels", "ladder_emulator")]
_FORMULAS = {}


def define(name, schema, formula, fake):
    """Defines an operator. `formula` and `fake` take the arguments of the schema, the first of which is a tensor."""
    formula = _FORMULAS[name] = _without_autocast(formula)
    for each in _LIBRARIES:
        each.define(name + schema)
    torch.library.define(f"ladder::{name}_formula", schema)
    torch.library.impl(f"ladder::{name}_formula", "CompositeExplicitAutograd", formula)
    emulator = getattr(torch.ops.ladder_emulator, name).default

    def on_cpu(*arguments):
        return (emulator if library.emulated() else formula)(*arguments)

    for namespace in ("ladder", "ladder_kernels"):
        torch.library.impl(f"{namespace}::{name}", "CPU", on_cpu)
        torch.library.register_fake(f"{namespace}::{name}", fake)
        if library.CUDA.missing():
            torch.library.impl(f"{namespace}::{name}", "CUDA", _no_cuda)


def _without_autocast(formula):
    """Wraps a formula so that it runs with autocast disabled, also in a fallback or a backward pass under autocast."""

    def run(x, *arguments):
        if not autocast_on(x):
            return formula(x, *arguments)
        with torch.autocast(x.device.type, enabled=False):
            return formula(x, *arguments)

    return run


def _have_tangents(inputs):
    """Returns whether an input is a dual tensor, as in torch.func.jvp: kernels have no forward-mode derivative,
    PyTorch's formula has. Tangents are not visible during compilation, so that any input may have one then."""
    if forward_ad._current_level < 0:
        return False
    tensors = (each for each in inputs if isinstance(each, torch.Tensor))
    return torch.compiler.is_compiling() or any(forward_ad.unpack_dual(each).tangent is not None for each in tensors)


def differentiable(name, setup, backward, autocast=()):
    """Returns ladder::<name> as a differentiable function.

    setup(ctx, inputs, output) saves what backward(ctx, *gradients) needs; backward calls operators through
    without_gradients(). `autocast` has the indices of the inputs that torch.autocast converts."""
    operator = getattr(torch.ops.ladder, name).default
    kernels = getattr(torch.ops.ladder_kernels, name).default
    torch.library.register_autograd(f"ladder::{name}", backward, setup_context=setup)

    def cast(device, inputs):
        dtype = torch.get_autocast_dtype(device)
        inputs = list(inputs)
        for i in autocast:
            if inputs[i] is not None and inputs[i].is_floating_point() and inputs[i].dtype != torch.float64:
                inputs[i] = inputs[i].to(dtype)
        return inputs

    def register_autocast(device):
        def call(*inputs):
            with torch.autocast(device, enabled=False):
                return operator(*cast(device, inputs))

        _LIBRARIES[0].impl(name, call, f"Autocast{device.upper()}")

    if autocast:
        register_autocast("cpu")
        register_autocast("cuda")

    def forward(ctx, *inputs):
        output = kernels(*inputs)
        setup(ctx, inputs, output)
        return output

    function = type(
        name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    )

    def call(*inputs):
        tangents = _have_tangents(inputs)
        if torch.compiler.is_compiling() and not tangents:
            return operator(*inputs)
        if autocast and autocast_on(inputs[0]):
            inputs = cast(inputs[0].device.type, inputs)
        if tangents:
            return _FORMULAS[name](*inputs)
        if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs):
            return function.apply(*inputs)
        return kernels(*inputs)

    return call


def without_gradients(name, of):
    """Returns ladder::<name>, a gradient of ladder::<of>, as a function. A second derivative throws RuntimeError.

    Calls go through ladder_kernels::<name> where gradients are disabled, which takes less CPU time."""
    operator = getattr(torch.ops.ladder, name).default
    kernels = getattr(torch.ops.ladder_kernels, name).default

    def refuse(ctx, *_):
        raise RuntimeError(f"ladder::{of} has no second derivative")

    torch.library.register_autograd(f"ladder::{name}", refuse)

    def call(*inputs):
        if _have_tangents(inputs):
            return _FORMULAS[name](*inputs)
        return (operator if torch.compiler.is_compiling() or torch.is_grad_enabled() else kernels)(*inputs)

    return call


def _constant(function):
    """Equivalent of torch.compiler.assume_constant_result, which would import torch._dynamo and take seconds."""
    function._dynamo_marked_constant = True
    return function


@_constant
def tf32_of_convolutions():
    return torch.backends.cudnn.conv.fp32_precision == "tf32"


@_constant
def tf32_of_products():
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


def _no_cuda(*_):
    raise RuntimeError(library.CUDA.missing())


def new_channels_last(x, sizes, dtype=None):
    """Returns an uninitialized tensor of sizes [n, c, ...] with c innermost, the layout of the kernels' results."""
    return x.new_empty([sizes[0], *sizes[2:], sizes[1]], dtype=dtype).movedim(-1, 1)


def is_channels_last(x):
    return x.dim() >= 3 and x.movedim(1, -1).is_contiguous()


def channels_last(x):
    """Returns a copy of x with channels innermost."""
    return new_channels_last(x, x.shape).copy_(x)


def new_like(x):
    """Returns an uninitialized tensor like x: channels innermost if x's are, else contiguous."""
    return new_channels_last(x, x.shape) if is_channels_last(x) else x.new_empty(x.shape)
