"""PyTorch's layer_norm, eager and compiled, as a baseline: forward and gradients."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "layernorm"
PASSES = ("forward", "backward")


def plans(torch, case, tensors):
    """Eager first: what a user gets who changes nothing."""
    kinds = (
        ("eager", None, "heuristic"),
        ("compile", "default", "listed"),
        ("compile max-autotune", "max-autotune-no-cudagraphs", "all"),
    )
    return [
        worker.Plan(f"PyTorch {words}", search, _setup(torch, case, tensors, mode)) for words, mode, search in kinds
    ]


def stored(torch, case, name, out):
    """gamma and beta, and so their gradients, are fp32 with us, whatever PyTorch has."""
    return out if name in ("y", "dx") else out.float()


def epsilon_of(case):
    return next((float(word[3:]) for word in case.words if word.startswith("eps")), 1e-5)


def _setup(torch, case, tensors, mode):
    eps = epsilon_of(case)

    def layer(x, gamma, beta):
        return torch.nn.functional.layer_norm(x, x.shape[1:], gamma, beta, eps)

    def setup():
        function = torch.compile(layer, mode=mode, dynamic=False) if mode else layer
        # Eager layer_norm wants parameters of x's type; their values are representable in it.
        x, gamma = tensors["x"], tensors["gamma"].to(tensors["x"].dtype)
        if case.pass_name == "forward":
            beta = tensors["beta"].to(x.dtype)

            def forward():
                with torch.no_grad():
                    return {"y": function(x, gamma, beta)}

            return forward

        # The forward pass leaves its statistics here, once; what is timed runs on what it saved, again and again.
        if mode:
            from torch._functorch import config

            config.donated_buffer = False  # or the first gradient would overwrite what the next one needs
        leaves = [tensor.detach().requires_grad_() for tensor in (x, gamma, torch.zeros_like(gamma))]
        y = function(*leaves)

        def backward():
            gradients = torch.autograd.grad(y, leaves, tensors["dy"], retain_graph=True)
            return dict(zip(("dx", "dgamma", "dbeta"), gradients))

        return backward

    return setup


def random_inputs(torch, case):
    """For trying the script by hand."""
    m, n = case.number("m"), case.number("n")
    return worker.random_tensors(torch, case, {"x": (m, n), "dy": (m, n), "gamma": (n,), "beta": (n,)})


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
