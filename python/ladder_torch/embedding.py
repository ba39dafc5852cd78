"""timestep_embedding: cosines and sines of a diffusion model's time steps."""

import math

import torch

from .define import define, without_gradients


def _check(t, dim, dtype):
    if t.dim() != 1:
        raise ValueError(f"timestep_embedding: t is {tuple(t.shape)}, and (n,) is wanted")
    if dim < 1:
        raise ValueError(f"timestep_embedding: dim is {dim}, and 1 or more is wanted")
    if t.is_complex() or t.dtype == torch.bool:
        raise TypeError(f"timestep_embedding: t is {t.dtype}, and an integer or floating-point type is wanted")
    if not dtype.is_floating_point:
        raise TypeError(f"timestep_embedding: dtype is {dtype}, and a floating-point type is wanted")


def _formula(t, dim, dtype):
    _check(t, dim, dtype)
    half = dim // 2
    exponents = torch.arange(half, dtype=torch.float32, device=t.device) * -math.log(10000) / max(half, 1)
    angles = t.float().unsqueeze(1) * exponents.exp()
    zeros = [angles.new_zeros(t.shape[0], dim % 2)]
    return torch.cat([angles.cos(), angles.sin(), *zeros], 1).to(dtype)


def _fake(t, dim, dtype):
    return t.new_empty([t.shape[0], dim], dtype=dtype)


define("timestep_embedding", "(Tensor t, int dim, ScalarType dtype) -> Tensor", _formula, _fake)
_timestep_embedding = without_gradients("timestep_embedding", of="timestep_embedding")


def timestep_embedding(t, dim, dtype=torch.float32):
    """Returns guided-diffusion's timestep_embedding(t, dim), (n, dim): cosines, then sines, of t (n,).

    t has an integer or floating-point type. If dim is odd, the last column is zero. Computed in fp32; by PyTorch's
    operators if t requires a gradient."""
    _check(t, dim, dtype)
    return _formula(t, dim, dtype) if t.requires_grad else _timestep_embedding(t, dim, dtype)
