"""Helpers of the operators' tests: tensors in every layout, and checks of values and gradients against a formula in
double precision."""

import contextlib

import torch

import ladder_torch


def drawn(*sizes, dtype=torch.float32, device="cpu"):
    """Returns a normally distributed tensor with channels innermost."""
    x = torch.randn(sizes, dtype=torch.float64).to(dtype).to(device)
    return x if x.dim() < 3 else x.movedim(1, -1).contiguous().movedim(-1, 1)


def at_an_odd_address(x):
    """Returns x with channels innermost, one element after the beginning of an allocation."""
    rows = x.movedim(1, -1)
    return torch.cat([x.new_zeros(1), rows.reshape(-1)])[1:].view(rows.shape).movedim(-1, 1)


LAYOUTS = {
    "contiguous": lambda x: x.contiguous(),
    "odd address": at_an_odd_address,
    "permuted": lambda x: x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim()))),
    "every second": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "expanded": lambda x: x[..., :1].expand(x.shape),
}


def results_of(function, inputs, dy):
    """Returns y and the gradients of the inputs that are not None."""
    inputs = [x if x is None else x.detach().requires_grad_() for x in inputs]
    y = function(*inputs)
    return [y.detach(), *torch.autograd.grad(y, [x for x in inputs if x is not None], dy(y))]


def assert_within(result, exact, magnitude, length, tf32=False, name=""):
    """Asserts |result - exact| <= (2 u + length e + 2 t) magnitude for each element.

    u is the unit roundoff of the result's type, once for the result and once for an input cast to it; e is that of
    fp32, for each of `length` additions (Higham 2002, 3.5); t is that of TF32, to which both factors are truncated."""
    assert tuple(result.shape) == tuple(exact.shape), f"{name}: {tuple(result.shape)}, not {tuple(exact.shape)}"
    fp32 = torch.finfo(torch.float32).eps / 2
    relative = torch.finfo(result.dtype).eps + length * fp32 + (2 * 2.0**-10 if tf32 else 0)
    error, limit = (result.double().cpu() - exact).abs(), relative * magnitude + torch.finfo(result.dtype).tiny
    assert (error <= limit).all(), f"{name}: {(error / limit).max():.3g} times what is allowed from the formula"


def assert_multilinear(function, formula, inputs, lengths, tf32=False, layout="contiguous"):
    """Asserts values and gradients of a function that is linear in each input, against the formula in double precision.

    `lengths` are the numbers of terms in the sums of y and of each gradient, `layout` is the layout of y's gradient."""
    gradient = None

    def drawn_dy(y):
        nonlocal gradient
        gradient = LAYOUTS[layout](torch.randn(y.shape, dtype=torch.float64).to(y))
        return gradient

    def dy(y):
        return gradient.to(y)

    results = results_of(function, inputs, drawn_dy)
    given = [x for x in inputs if x is not None]
    assert [x.dtype for x in results] == [given[0].dtype, *(x.dtype for x in given)]
    doubles = [x if x is None else x.double().cpu() for x in inputs]
    exact = results_of(formula, doubles, dy)
    magnitude = results_of(formula, [x if x is None else x.abs() for x in doubles], lambda y: dy(y).abs())
    names = ["y", *(f"gradient {i}" for i, x in enumerate(inputs) if x is not None)]
    for result, *rest, name in zip(results, exact, magnitude, lengths, names):
        assert_within(
            result, *rest, tf32=tf32, name=f"{name} of {[x if x is None else tuple(x.shape) for x in inputs]}"
        )


def assert_compiled_alike(function, module, *sizes, dynamic, channels_last=True):
    """Asserts that a function of x, which calls the module, compiles to one graph and matches eager mode bit for bit.

    Values and strides of result and gradients are compared, for two values of the size that is None."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    device = next(module.parameters()).device
    for rows in (3, 4):
        x = drawn(*(rows if size is None else size for size in sizes), device=device)
        x = (x if channels_last else x.contiguous()).requires_grad_()
        outcomes = []
        for run in (compiled, function):
            y = run(x)
            outcomes.append([y, *torch.autograd.grad(y.square().sum(), (x, *module.parameters()))])
        assert all(torch.equal(*pair) and pair[0].stride() == pair[1].stride() for pair in zip(*outcomes))


@contextlib.contextmanager
def allowed(setting, precision):
    """Sets fp32_precision ("tf32", "ieee") of torch.backends.cudnn.conv or torch.backends.cuda.matmul in a `with`."""
    before, setting.fp32_precision = setting.fp32_precision, precision
    try:
        yield
    finally:
        setting.fp32_precision = before


class Calls:
    """Counts the passes that kernels ran in a `with`: {("bf16", "conv3x3/fprop"): 1}."""

    def __enter__(self):
        self._before = self._all()
        return self

    def __exit__(self, *_):
        self.made = {
            key: n - self._before.get(key, 0) for key, n in self._all().items() if n != self._before.get(key, 0)
        }

    @staticmethod
    def _all():
        counted = {}
        for row in ladder_torch.explain():
            if row["version"] != "PyTorch":
                key = row["problem"].split()[-1], row["pass"]
                counted[key] = counted.get(key, 0) + row["calls"]
        return counted
