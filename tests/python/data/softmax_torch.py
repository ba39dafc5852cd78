"""Softmax of rows by PyTorch, a candidate of ./ladder try softmax/forward."""

import torch


def softmax(x):
    return torch.softmax(x.float(), -1).to(x.dtype)
