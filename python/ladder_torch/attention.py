"""attention_qkv: self-attention of tokens whose queries, keys and values lie in one tensor, and its gradient."""

import math

import torch

from .checks import check_floating
from .define import define, differentiable, tf32_of_products, without_gradients

ORDERS = {"legacy": 3, "new": 2}  # where, in [n, t, ...], q, k and v are told apart: after heads, or before


def check(qkv, heads, order):
    """Throws ValueError or TypeError, saying what would be right."""
    if order not in ORDERS:
        raise ValueError(f"attention_qkv: no order {order!r}; there are legacy, [heads][3][d], and new, [3][heads][d]")
    if qkv.dim() != 3:
        raise ValueError(f"attention_qkv: qkv is {tuple(qkv.shape)}, and (n, tokens, 3 channels) is wanted")
    check_floating("attention_qkv", qkv, "qkv")
    if heads < 1 or not qkv.shape[2] or qkv.shape[2] % (3 * heads):
        raise ValueError(
            f"attention_qkv: {qkv.shape[2]} channels for q, k and v of {heads} heads; 3 heads must divide them"
        )


def _sum_type(qkv):
    return torch.promote_types(qkv.dtype, torch.float32)


def _heads_of(qkv, heads, order):
    """q, k and v [n, heads, t, d], in the type that sums are made in."""
    parts = qkv.to(_sum_type(qkv)).unflatten(2, (heads, 3, -1) if order == "legacy" else (3, heads, -1))
    return [each.transpose(1, 2) for each in parts.unbind(ORDERS[order])]


def _formula(qkv, heads, order, tf32):
    check(qkv, heads, order)
    q, k, v = _heads_of(qkv, heads, order)
    s = q @ k.mT / math.sqrt(q.shape[3])
    lse = s.logsumexp(3)
    o, _ = _fake(qkv, heads)
    return o.copy_(((s - lse.unsqueeze(3)).exp() @ v).transpose(1, 2).flatten(2)), lse.contiguous()


def _formula_backward(d_o, qkv, o, lse, heads, order, tf32):
    q, k, v = _heads_of(qkv, heads, order)
    d_o, o = (each.to(_sum_type(qkv)).unflatten(2, (heads, -1)).transpose(1, 2) for each in (d_o, o))
    scale = 1 / math.sqrt(q.shape[3])
    p = (q @ k.mT * scale - lse.unsqueeze(3)).exp()
    ds = p * (d_o @ v.mT - (d_o * o).sum(3, keepdim=True)) * scale
    gradients = [each.transpose(1, 2) for each in (ds @ k, ds.mT @ q, p.mT @ d_o)]
    return qkv.new_empty(qkv.shape).copy_(torch.stack(gradients, ORDERS[order]).flatten(2))


def _fake(qkv, heads, *_):
    n, t, channels = qkv.shape
    return qkv.new_empty([n, t, channels // 3]), qkv.new_empty([n, heads, t], dtype=_sum_type(qkv))


def _fake_backward(d_o, qkv, *_):
    return qkv.new_empty(qkv.shape)


define("attention_qkv", "(Tensor qkv, int heads, str order, bool tf32) -> (Tensor, Tensor)", _formula, _fake)
define(
    "attention_qkv_backward",
    "(Tensor d_o, Tensor qkv, Tensor o, Tensor lse, int heads, str order, bool tf32) -> Tensor",
    _formula_backward,
    _fake_backward,
)
_backward = without_gradients("attention_qkv_backward", of="attention_qkv")


def _setup(ctx, inputs, output):
    qkv, *ctx.how = inputs
    o, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(qkv, o, lse)


def _gradients(ctx, d_o, _):
    return _backward(d_o, *ctx.saved_tensors, *ctx.how), None, None, None


_attention_qkv = differentiable("attention_qkv", _setup, _gradients, autocast=(0,))


def attention_qkv(qkv, heads, order="legacy"):
    """softmax(q k' / sqrt(d)) v of each head, (n, t, c), of qkv (n, t, 3 c) in any floating-point type: guided-diffusion's
    QKVAttentionLegacy with channels as [heads][3][d], or its QKVAttention, order "new", with [3][heads][d]. fp32 is rounded to
    TF32 where torch.backends.cuda.matmul allows it; a compiled graph keeps what was allowed when it was compiled."""
    check(qkv, heads, order)
    return _attention_qkv(qkv, heads, order, tf32_of_products())[0]
