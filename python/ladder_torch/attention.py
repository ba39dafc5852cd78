"""attention_qkv and attention: self-attention of tokens, with queries, keys and values in one tensor or in three."""

import math

import torch

from .checks import check_beside, check_floating
from .define import define, differentiable, tf32_of_products, without_gradients

ORDERS = {"legacy": 3, "new": 2}  # dimension of q, k, v: 3 in [n, t, heads, 3, d], 2 in [n, t, 3, heads, d]


def check(qkv, heads, order):
    """Throws ValueError or TypeError, with a message that says what would be right."""
    if order not in ORDERS:
        raise ValueError(f"attention_qkv: no order {order!r}; there are legacy, [heads][3][d], and new, [3][heads][d]")
    if qkv.dim() != 3:
        raise ValueError(f"attention_qkv: qkv is {tuple(qkv.shape)}, and (n, tokens, 3 channels) is wanted")
    check_floating("attention_qkv", qkv, "qkv")
    if heads < 1 or not qkv.shape[2] or qkv.shape[2] % (3 * heads):
        raise ValueError(
            f"attention_qkv: {qkv.shape[2]} channels for q, k and v of {heads} heads; 3 heads must divide them"
        )


def check_separate(q, k, v):
    """Throws ValueError or TypeError as check() does, for separate q, k and v."""
    if q.dim() != 4:
        raise ValueError(f"attention: q is {tuple(q.shape)}, and (n, heads, tokens, d) is wanted")
    check_floating("attention", q, "q")
    for name, each in (("k", k), ("v", v)):
        check_beside("attention", name, each, q.shape, q, same_type=True, of="q")


def _sum_type(x):
    return torch.promote_types(x.dtype, torch.float32)


def _parts(qkv, heads, order):
    """Returns q, k and v [n, t, heads, d] as views of qkv [n, t, 3 heads d]."""
    return qkv.unflatten(2, (heads, 3, -1) if order == "legacy" else (3, heads, -1)).unbind(ORDERS[order])


def _by_heads(*parts):
    """Returns tensors [n, t, heads, d] as [n, heads, t, d], in the type of accumulation."""
    return [each.to(_sum_type(each)).transpose(1, 2) for each in parts]


def _formula(q, k, v, tf32):
    check_separate(q, k, v)
    o, _ = _fake(q)
    q, k, v = _by_heads(q, k, v)
    s = q @ k.mT / math.sqrt(q.shape[3])
    lse = s.logsumexp(3)
    return o.copy_(((s - lse.unsqueeze(3)).exp() @ v).transpose(1, 2)), lse.contiguous()


def _formula_backward(d_o, q, k, v, o, lse, tf32):
    gradients = _fake_backward(d_o, q, k, v)
    d_o, q, k, v, o = _by_heads(d_o, q, k, v, o)
    scale = 1 / math.sqrt(q.shape[3])
    p = (q @ k.mT * scale - lse.unsqueeze(3)).exp()
    ds = p * (d_o @ v.mT - (d_o * o).sum(3, keepdim=True)) * scale
    return tuple(x.copy_(y.transpose(1, 2)) for x, y in zip(gradients, (ds @ k, ds.mT @ q, p.mT @ d_o)))


def _formula_qkv(qkv, heads, order, tf32):
    check(qkv, heads, order)
    o, lse = _formula(*_parts(qkv, heads, order), tf32)
    return o.flatten(2), lse


def _formula_qkv_backward(d_o, qkv, o, lse, heads, order, tf32):
    d_o, o = (each.unflatten(2, (heads, -1)) for each in (d_o, o))
    return torch.stack(_formula_backward(d_o, *_parts(qkv, heads, order), o, lse, tf32), ORDERS[order]).flatten(2)


def _fake(q, *_):
    n, t, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty([n, heads, t], dtype=_sum_type(q))


def _fake_backward(d_o, q, k, v, *_):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _fake_qkv(qkv, heads, *_):
    n, t, channels = qkv.shape
    return qkv.new_empty([n, t, channels // 3]), qkv.new_empty([n, heads, t], dtype=_sum_type(qkv))


def _fake_qkv_backward(d_o, qkv, *_):
    return qkv.new_empty(qkv.shape)


define("attention", "(Tensor q, Tensor k, Tensor v, bool tf32) -> (Tensor, Tensor)", _formula, _fake)
define(
    "attention_backward",
    "(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool tf32) -> (Tensor, Tensor, Tensor)",
    _formula_backward,
    _fake_backward,
)
define("attention_qkv", "(Tensor qkv, int heads, str order, bool tf32) -> (Tensor, Tensor)", _formula_qkv, _fake_qkv)
define(
    "attention_qkv_backward",
    "(Tensor d_o, Tensor qkv, Tensor o, Tensor lse, int heads, str order, bool tf32) -> Tensor",
    _formula_qkv_backward,
    _fake_qkv_backward,
)


def _differentiable(name, tensors):
    """Makes the operator differentiable. Its first `tensors` arguments are tensors, the others are not."""
    gradient = without_gradients(f"{name}_backward", of=name)

    def setup(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:tensors], *output)
        ctx.how = inputs[tensors:]

    def backward(ctx, d_o, _):
        gradients = gradient(d_o, *ctx.saved_tensors, *ctx.how)
        return (*(gradients if tensors > 1 else [gradients]), *[None] * len(ctx.how))

    return differentiable(name, setup, backward, autocast=tuple(range(tensors)))


_attention = _differentiable("attention", 3)
_attention_qkv = _differentiable("attention_qkv", 1)


def attention_qkv(qkv, heads, order="legacy"):
    """Returns softmax(q k^T / sqrt(d)) v of each head, (n, t, c), for qkv (n, t, 3 c) of any floating-point type.

    Channels are [heads][3][d] for order "legacy" (guided-diffusion's QKVAttentionLegacy) and [3][heads][d] for order
    "new" (its QKVAttention). fp32 is rounded to TF32 where torch.backends.cuda.matmul allows it; a compiled graph keeps
    the setting of its compilation."""
    check(qkv, heads, order)
    return _attention_qkv(qkv, heads, order, tf32_of_products())[0]


def attention(q, k, v):
    """Returns torch.nn.functional.scaled_dot_product_attention(q, k, v) for q, k and v (n, heads, t, d).

    Any strides are accepted, such as those of [n, t, heads, d] in memory. Nothing is copied where the d channels of a
    row are contiguous and rows begin at multiples of 16 bytes. TF32 is used as in attention_qkv()."""
    check_separate(q, k, v)
    return _attention(*(each.transpose(1, 2) for each in (q, k, v)), tf32_of_products())[0].transpose(1, 2)
