"""Error bounds of results against the formula in double precision."""

import torch


def assert_near(result, exact, name="", sums_of=1):
    """Asserts ||result - exact|| <= (2 u + 64 e sqrt(sums_of)) ||exact||.

    u is the unit roundoff of result's dtype, e that of fp32, in which kernels compute. The bound is an order of
    magnitude above the kernels' errors, and three orders below those of a wrong formula. Two zero tensors agree."""
    assert tuple(result.shape) == tuple(exact.shape), f"{name}: {tuple(result.shape)}, not {tuple(exact.shape)}"
    unit = torch.finfo(result.dtype).eps / 2
    of_sums = 64 * torch.finfo(torch.float32).eps / 2 * max(1, sums_of) ** 0.5
    error = (result.double().cpu() - exact.double().cpu()).norm()
    limit = (2 * unit + of_sums) * exact.double().norm().cpu() + 1e-30
    assert error <= limit, f"{name}: {error:.3g} from the formula, and {limit:.3g} is allowed"
