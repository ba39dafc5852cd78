"""Fixtures of all tests of the package: the devices that a test runs on."""

import pytest
import torch

import ladder_torch

torch.set_num_threads(2)


KERNELS = [name for name in ("emulator", "cuda") if not ladder_torch.status()[name]]


@pytest.fixture(params=["formula", *KERNELS])
def device(request):
    """Runs a test with PyTorch's formula ("cpu") and with the available kernels: emulator ("cpu"), GPU ("cuda")."""
    if request.param == "cuda":
        yield "cuda"
        return
    with ladder_torch.cpu(request.param):
        yield "cpu"


@pytest.fixture(params=KERNELS)
def kernels(request):
    """Runs a test with the kernels only: on the emulator ("cpu") and on a GPU ("cuda"), where available."""
    with ladder_torch.cpu("emulator" if request.param == "emulator" else "formula"):
        yield "cpu" if request.param == "emulator" else "cuda"
