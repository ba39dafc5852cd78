"""Softmax of rows in Triton, a candidate of ./ladder try softmax/forward: a program a row, in two passes over its columns."""

import torch
import triton
import triton.language as tl

_MOST_BLOCK = 4096  # columns at a time


@triton.jit
def _softmax_kernel(x_ptr, y_ptr, num_columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * num_columns
    offsets = tl.arange(0, BLOCK)
    # Maximum of each lane's columns, and the sum of their exponentials relative to it.
    lane_max = tl.full([BLOCK], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK], tl.float32)
    for first in range(0, num_columns, BLOCK):
        columns = first + offsets
        x = tl.load(x_ptr + start + columns, mask=columns < num_columns, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        is_empty = new_max == -float("inf")
        lane_sum = tl.where(is_empty, 0.0, lane_sum * tl.exp(lane_max - new_max) + tl.exp(x - new_max))
        lane_max = new_max
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=0)
    for first in range(0, num_columns, BLOCK):
        columns = first + offsets
        is_inside = columns < num_columns
        x = tl.load(x_ptr + start + columns, mask=is_inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_ptr + start + columns, y.to(y_ptr.dtype.element_ty), mask=is_inside)


def softmax(x: torch.Tensor, y: torch.Tensor):
    num_rows, num_columns = x.shape
    block = min(triton.next_power_of_2(num_columns), _MOST_BLOCK)
    num_warps = 4 if block < 2048 else 8
    _softmax_kernel[(num_rows,)](x, y, num_columns, BLOCK=block, num_warps=num_warps)
