"""PyTorch's avg_pool2d and nearest interpolate with their gradients, as a baseline. Images lie in memory as [n, h, w, c], which
PyTorch sees as channels_last."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "resample"
PASSES = ("pool", "pool_backward", "upsample", "upsample_backward")


def plans(torch, case, tensors):
    return worker.plans_of(torch, functions(torch, case)[case.pass_name], tensors)


def functions(torch, case):
    functional, aten = torch.nn.functional, torch.ops.aten
    n, h, w, c = (case.number(letter) for letter in "nhwc")

    def pool_backward(dy):
        like = torch.empty((n, h, w, c), dtype=dy.dtype, device=dy.device).permute(0, 3, 1, 2)
        return aten.avg_pool2d_backward(dy, like, [2, 2], [2, 2], [0, 0], False, True, None)

    def of(name, out, function):
        return lambda tensors: {out: function(tensors[name].permute(0, 3, 1, 2)).permute(0, 2, 3, 1)}

    return {
        "pool": of("x", "y", lambda x: functional.avg_pool2d(x, 2)),
        "pool_backward": of("dy", "dx", pool_backward),
        "upsample": of("x", "y", lambda x: functional.interpolate(x, scale_factor=2, mode="nearest")),
        "upsample_backward": of(
            "dy", "dx", lambda dy: aten.upsample_nearest2d_backward(dy, [h, w], [n, c, h // 2, w // 2], 2.0, 2.0)
        ),
    }


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    n, h, w, c = (case.number(letter) for letter in "nhwc")
    large, small = (n, h, w, c), (n, h // 2, w // 2, c)
    name, shape = {
        "pool": ("x", large),
        "pool_backward": ("dy", small),
        "upsample": ("x", small),
        "upsample_backward": ("dy", large),
    }[case.pass_name]
    return worker.random_tensors(torch, case, {name: shape})


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
