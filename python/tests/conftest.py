"""What every test of the package shares: the devices that it runs on."""

import pytest
import torch

import ladder_torch

torch.set_num_threads(2)


KERNELS = [name for name in ("emulator", "cuda") if not ladder_torch.status()[name]]


@pytest.fixture(params=["formula", *KERNELS])
def device(request):
    """PyTorch's formula and, where they are, the kernels on the emulator, both with CPU tensors; the kernels on a GPU."""
    if request.param == "cuda":
        yield "cuda"
        return
    with ladder_torch.cpu(request.param):
        yield "cpu"


@pytest.fixture(params=KERNELS)
def kernels(request):
    """Only the kernels, wherever they run."""
    with ladder_torch.cpu("emulator" if request.param == "emulator" else "formula"):
        yield "cpu" if request.param == "emulator" else "cuda"
