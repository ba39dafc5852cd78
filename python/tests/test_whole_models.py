"""A small network of the package's modules under tools for whole models: torch.export, DistributedDataParallel,
checkpointing."""

import pytest
import torch
from bounds import assert_near
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import ladder_torch


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = ladder_torch.Conv2d3x3(8, 16)
        self.norm = ladder_torch.GN_NHWC(4, 16, activation="silu")
        self.head = ladder_torch.Linear(16, 5)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).mean([2, 3]))

    def exact(self, x):
        """Returns the output computed by PyTorch's operators in double precision."""
        weights = {name: value.double() for name, value in self.named_parameters()}
        y = functional.conv2d(x.double(), weights["conv.weight"], weights["conv.bias"], padding=1)
        y = functional.silu(functional.group_norm(y, 4, weights["norm.weight"], weights["norm.bias"]))
        return functional.linear(y.mean([2, 3]), weights["head.weight"], weights["head.bias"])


@pytest.fixture(autouse=True)
def without_tf32():
    """Disables TF32 with the older setting: torch.export fails where only convolutions have a precision set."""
    before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network().to(memory_format=torch.channels_last)


@pytest.fixture
def image():
    return torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)


def test_exported(device, network, image):
    network, image = network.to(device), image.to(device)
    program = torch.export.export(network, (image,))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"ladder.conv2d_3x3.default", "ladder.group_norm_act.default", "ladder.linear.default"} <= names
    assert_near(program.module()(image), network.exact(image))


def test_checkpointed(device, network, image):
    """Checkpointing reruns the forward pass for the gradients, possibly in another thread."""
    network, image = network.to(device), image.to(device)
    network.exact(image).sum().backward()
    wanted = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    checkpoint(network, image, use_reentrant=False).sum().backward()
    for parameter, gradient in zip(network.parameters(), wanted):
        assert_near(parameter.grad, gradient)


def test_data_parallel(device, network, image, tmp_path):
    backend = "gloo" if device == "cpu" else "nccl"
    if not torch.distributed.is_available() or not getattr(torch.distributed, f"is_{backend}_available")():
        pytest.skip(f"PyTorch without {backend}")
    network, image = network.to(device), image.to(device)
    torch.distributed.init_process_group(backend, f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(network)
        network.exact(image).sum().backward()
        wanted = [parameter.grad.clone() for parameter in network.parameters()]
        network.zero_grad()
        parallel(image).sum().backward()
        for parameter, gradient in zip(network.parameters(), wanted):
            assert_near(parameter.grad, gradient)
    finally:
        torch.distributed.destroy_process_group()
