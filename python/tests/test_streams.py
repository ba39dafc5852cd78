"""On a GPU: captures, streams, devices and autocast. What runs elsewhere has none of them."""

import pytest
import torch
from cases import drawn

import ladder_torch

pytestmark = pytest.mark.skipif(bool(ladder_torch.status()["cuda"]), reason=ladder_torch.status()["cuda"])

# Sizes that no other test has, so that a capture meets each first.
FIRST = iter(range(3, 100))


def inputs(side, dtype=torch.bfloat16):
    x = drawn(2, 64, side, 11, dtype=dtype, device="cuda").requires_grad_()
    return [x, *(torch.randn(64, device="cuda").to(dtype).requires_grad_() for _ in range(2))]


def step(x, weight, bias):
    y = ladder_torch.group_norm_act(x, 32, weight, bias, activation="silu")
    return [y.detach(), *torch.autograd.grad(y, (x, weight, bias), y.detach())]


def equal(results, others):
    return all(torch.equal(a, b) for a, b in zip(results, others))


@pytest.mark.parametrize("version", [None, "v12", "v13"])
def test_a_capture_without_a_call_before(version):
    given = inputs(next(FIRST))
    values = [[torch.randn_like(each) for each in given] for _ in range(3)]
    with ladder_torch.use("groupnorm/backward", version):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step(*given)
        for drawn_values in values:
            for tensor, value in zip(given, drawn_values):
                tensor.data.copy_(value)
            graph.replay()
            replayed = [each.clone() for each in captured]
            assert equal(replayed, step(*given)), "a replay is not what the call would have computed"


def test_the_current_stream_is_waited_for_and_no_other():
    given, side = inputs(next(FIRST)), torch.cuda.Stream()
    wanted = step(*given)
    value = given[0].detach().clone()
    given[0].data.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        given[0].data.copy_(value)
        results = step(*given)
    side.synchronize()
    assert equal(results, wanted)


@pytest.mark.parametrize("version", [None, "v12", "v13"])
def test_two_streams_at_once(version):
    sides = [torch.cuda.Stream(), torch.cuda.Stream()]
    cases = [inputs(24), inputs(25)]
    with ladder_torch.use("groupnorm/backward", version):
        wanted = [step(*given) for given in cases]
        torch.cuda.synchronize()
        for _ in range(20):
            results = []
            for side, given in zip(sides, cases):
                with torch.cuda.stream(side):
                    results.append(step(*given))
            torch.cuda.synchronize()
            assert all(equal(result, right) for result, right in zip(results, wanted))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_two_devices():
    given = inputs(next(FIRST))
    wanted = step(*given)
    there = [each.detach().to("cuda:1").requires_grad_() for each in given]
    results = step(*there)  # the current device is still the first
    assert all(each.device.index == 1 for each in results)
    assert equal([each.to("cuda:0") for each in results], wanted)


def test_autocast_keeps_the_type_of_x():
    x, weight, bias = inputs(next(FIRST), torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            assert ladder_torch.group_norm_act(x.to(dtype), 32, weight, bias).dtype == dtype


def test_deterministic_algorithms():
    given = inputs(next(FIRST))
    torch.use_deterministic_algorithms(True)
    try:
        assert equal(step(*given), step(*given))
    finally:
        torch.use_deterministic_algorithms(False)


def test_inductor_replays_what_eager_computes():
    module = ladder_torch.GN_NHWC(32, 64, activation="silu").cuda().bfloat16()
    x = inputs(next(FIRST))[0]
    compiled = torch.compile(lambda x: module(x * 2), fullgraph=True, mode="reduce-overhead")
    wanted = module(x * 2).detach()
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x)
        assert torch.equal(y, wanted)
        gradient = torch.autograd.grad(y, x, wanted)[0].clone()
        assert torch.equal(gradient, torch.autograd.grad(module(x * 2), x, wanted)[0])
