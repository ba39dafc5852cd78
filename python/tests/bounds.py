"""How far a result may be from the formula in double precision."""

import torch


def assert_near(result, exact, name="", sums_of=1):
    """||result - exact|| <= (2 u + 64 e) ||exact||, with u the unit roundoff of result's dtype and e that of fp32, in which
    kernels compute: an order of magnitude above what they do, and three below what a wrong formula does. Where both are
    zero they agree."""
    assert tuple(result.shape) == tuple(exact.shape), f"{name}: {tuple(result.shape)}, not {tuple(exact.shape)}"
    unit = torch.finfo(result.dtype).eps / 2
    of_sums = 64 * torch.finfo(torch.float32).eps / 2 * max(1, sums_of) ** 0.5
    error = (result.double().cpu() - exact.double().cpu()).norm()
    limit = (2 * unit + of_sums) * exact.double().norm().cpu() + 1e-30
    assert error <= limit, f"{name}: {error:.3g} from the formula, and {limit:.3g} is allowed"
