"""Diffusion around the U-Net: the linear schedule, q_sample, the loss, and DDIM as guided-diffusion samples with it."""

import numpy
import torch

TIMESTEPS = 1000


def alphas_cumprod():
    """[1000] float64: the products of 1 - beta, beta linear from 1e-4 to 0.02."""
    return numpy.cumprod(1 - numpy.linspace(1e-4, 0.02, TIMESTEPS, dtype=numpy.float64))


class Noising:
    """x_t = signal[t] x0 + noise_weight[t] noise; the tables are made in float64 and rounded to `dtype`."""

    def __init__(self, device, dtype=torch.float32):
        bar = alphas_cumprod()
        self.signal = torch.tensor(numpy.sqrt(bar), dtype=dtype, device=device)
        self.noise_weight = torch.tensor(numpy.sqrt(1 - bar), dtype=dtype, device=device)

    def __call__(self, x0, t, noise):
        """x0 and noise [n, 3, h, w], t [n] to x_t [n, 3, h, w]."""
        return self.signal[t][:, None, None, None] * x0 + self.noise_weight[t][:, None, None, None] * noise


def loss_of(pred, noise):
    """mean((pred - noise)^2) in noise's dtype, whatever autocast left pred in."""
    return (pred.to(noise.dtype) - noise).square().mean()


def ddim_table(steps, device):
    """A row a step, in the order in which they are taken, the "leading" ones, last first (980, 960, .., 0 of 50): t [steps] int64,
    and the square roots [steps, 4] fp32 of bar, 1 - bar, the next bar and 1 - the next bar; bar after the last step is 1."""
    at = [index * (TIMESTEPS // steps) for index in reversed(range(steps))]
    bar = alphas_cumprod()[at]
    following = numpy.append(bar[1:], 1.0)
    roots = numpy.sqrt(numpy.stack([bar, 1 - bar, following, 1 - following], axis=1))
    return torch.tensor(at, device=device), torch.tensor(roots, dtype=torch.float32, device=device)


def ddim_step(x, eps, roots):
    """Without noise (eta 0): x0 from eps, clipped to [-1, 1], eps from the clipped x0. x [n, 3, h, w] fp32, roots [4]."""
    signal, noise_weight, next_signal, next_noise_weight = roots.unbind()
    x0 = ((x - noise_weight * eps.to(x.dtype)) / signal).clamp(-1, 1)
    return next_signal * x0 + next_noise_weight * ((x - signal * x0) / noise_weight)
