"""guided-diffusion's sinusoidal embedding, written for PyTorch once more, as a baseline."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "embedding"
PASSES = ("timestep",)


def plans(torch, case, tensors):
    return worker.plans_of(torch, functions(torch, case)[case.pass_name], tensors)


def functions(torch, case):
    c = case.number("c")
    half = c // 2

    def timestep(at):
        t = at["t"].float()
        exponent = -math.log(10000) * torch.arange(half, dtype=torch.float32, device=t.device) / half
        angle = t[:, None] * torch.exp(exponent)
        y = torch.cat([torch.cos(angle), torch.sin(angle)], dim=-1)
        if c % 2:
            y = torch.cat([y, torch.zeros_like(y[:, :1])], dim=-1)
        return {"y": y.to(worker.dtype_of(torch, case.words[-1]))}

    return {"timestep": timestep}


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    t = torch.randint(0, 1000, (case.number("n"),), dtype=torch.int32)
    return {"t": (t.float() if "real" in case.words else t).cuda()}


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
