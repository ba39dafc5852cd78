"""avg_pool2x2 and upsample2x: resampling of images to half and twice the rows and columns, and the gradients."""

from torch.nn import functional

from .checks import check_image
from .define import channels_last, define, differentiable, new_channels_last, without_gradients


def _half(x):
    return new_channels_last(x, [*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2])


def _twice(x):
    return new_channels_last(x, [*x.shape[:2], x.shape[2] * 2, x.shape[3] * 2])


def _pool(x):
    check_image("avg_pool2x2", x, "n", "channels", "h", "w")
    y = _half(x)
    return y.copy_(functional.avg_pool2d(x, 2)) if x.numel() else y


def _repeat(x):
    check_image("upsample2x", x, "n", "channels", "h", "w")
    y = _twice(x)
    for i in (0, 1):
        for j in (0, 1):
            y[:, :, i::2, j::2].copy_(x)
    return y


def _sum_of_windows(dy):
    dx = _half(dy)
    return dx.copy_(dy.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).sum([3, 5])) if dy.numel() else dx


def _operator(name, formula, fake, backward_formula, backward_fake):
    define(name, "(Tensor x) -> Tensor", formula, fake)
    define(f"{name}_backward", "(Tensor dy) -> Tensor", backward_formula, backward_fake)
    backward = without_gradients(f"{name}_backward", of=name)
    return differentiable(name, lambda ctx, inputs, output: None, lambda ctx, dy: backward(dy))


_avg_pool2x2 = _operator("avg_pool2x2", _pool, _half, lambda dy: _repeat(dy / 4), _twice)
_upsample2x = _operator("upsample2x", _repeat, _twice, _sum_of_windows, _half)


def avg_pool2x2(x):
    """Returns torch.nn.functional.avg_pool2d(x, 2) for x (n, channels, h, w), with channels innermost.

    PyTorch computes it where h or w is odd."""
    check_image("avg_pool2x2", x, "n", "channels", "h", "w")
    if x.shape[2] % 2 or x.shape[3] % 2:
        return channels_last(functional.avg_pool2d(x, 2))
    return _avg_pool2x2(x)


def upsample2x(x):
    """Returns torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest") for x (n, channels, h, w), with
    channels innermost."""
    check_image("upsample2x", x, "n", "channels", "h", "w")
    return _upsample2x(x)
