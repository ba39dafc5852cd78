#!/usr/bin/env python3
"""Writes tests/golden/adamw_constants.json: parameters and moments of torch.optim.AdamW in double precision over 100 steps,
with clip_grad_norm_ in front of each. Needs any torch, on a CPU:

    python3 tools/dev/make_adamw_constants.py
"""

import argparse
import json
from pathlib import Path

import torch

SIZES = [5, 1, 9, 4]  # of the tensors
STEPS = 100
SHOWN = (1, 2, 3, 10, 50, 100)
LR, BETAS, EPS, DECAY, MAX_NORM, EMA_RATE = 3e-3, (0.9, 0.999), 1e-8, 0.05, 1.0, 0.99


def value(index, salt):
    """Multiples of 1/64 between -2 and 2, which the test makes again."""
    return ((index * 2654435761 + salt * 40503) % 4294967296 // 65536 % 257 - 128) / 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = Path(__file__).resolve().parents[2] / "tests" / "golden"
    parser.add_argument("--out", type=Path, default=folder / "adamw_constants.json")
    options = parser.parse_args()
    count = sum(SIZES)
    flat = torch.tensor([value(i, 0) for i in range(count)], dtype=torch.float64)
    parameters = [torch.nn.Parameter(part.clone()) for part in flat.split(SIZES)]
    ema = flat.clone()
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    shown = []
    for step in range(1, STEPS + 1):
        gradient = torch.tensor([value(i, step) for i in range(count)], dtype=torch.float64)
        for parameter, part in zip(parameters, gradient.split(SIZES)):
            parameter.grad = part.clone()
        norm = torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        now = torch.cat([p.detach() for p in parameters])
        ema.mul_(EMA_RATE).add_(now, alpha=1 - EMA_RATE)
        if step in SHOWN:
            state = [optimizer.state[p] for p in parameters]
            shown.append(
                {
                    "step": step,
                    "norm": norm.item(),
                    "p": now.tolist(),
                    "m": torch.cat([s["exp_avg"] for s in state]).tolist(),
                    "v": torch.cat([s["exp_avg_sq"] for s in state]).tolist(),
                    "ema": ema.tolist(),
                }
            )
    constants = {
        "torch": torch.__version__.split("+")[0],
        "lr": LR,
        "beta1": BETAS[0],
        "beta2": BETAS[1],
        "eps": EPS,
        "weight_decay": DECAY,
        "max_norm": MAX_NORM,
        "ema_rate": EMA_RATE,
        "count": count,
        "steps": shown,
    }
    options.out.write_text(json.dumps(constants, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
