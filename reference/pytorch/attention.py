"""PyTorch's scaled_dot_product_attention, each of its kernels, as a baseline: forward and gradients.

qkv lies in memory as [n, t, 3c] with channels as [heads][3][d], or with `order-new` as [3][heads][d]. The plans work on
contiguous copies of q, k and v, of shape [n, heads, t, d], made beforehand, and their o and gradients stay in that shape: only
the kernels are timed, none of the copies that a user of qkv would pay for. With `separate` they take views by the strides of
the problem, and no copies.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "attention"
PASSES = ("forward", "backward")


def plans(torch, case, tensors):
    """PyTorch's own choice first: what a user gets who changes nothing. Not every kernel takes every problem."""
    from torch.nn.attention import SDPBackend

    kinds = [
        ("default", None, "heuristic"),
        ("flash", SDPBackend.FLASH_ATTENTION, "listed"),
        ("efficient", SDPBackend.EFFICIENT_ATTENTION, "listed"),
        ("math", SDPBackend.MATH, "listed"),
    ]
    return [
        worker.Plan(f"PyTorch {words}", search, _setup(torch, case, tensors, backend))
        for words, backend, search in kinds
    ]


def stored(torch, case, name, out):
    """o from [n, heads, t, d] to [n, t, c]; dq, dk and dv to [n, t, heads, d]; of dqkv the three to [n, t, 3c]."""
    if name == "dqkv":
        order = (1, 3, 0, 2, 4) if "order-new" in case.words else (1, 3, 2, 0, 4)
        return torch.stack(out.parts).permute(order).flatten(2).contiguous()
    heads = out.transpose(1, 2).contiguous()
    return heads.flatten(2) if name == "o" else heads


class Gradients:
    """dq, dk and dv, as autograd left them, under the name of the case's one output: stacking them is not timed."""

    def __init__(self, parts):
        self.parts = parts

    def fill_(self, value):
        for part in self.parts:
            part.fill_(value)


def _setup(torch, case, tensors, backend):
    heads, size = case.number("heads"), case.number("d")

    n, tokens = case.number("n"), case.number("t")

    def split(tensor):
        """q, k and v, each [n, heads, t, d], contiguous."""
        if "order-new" in case.words:
            return tensor.view(n, tokens, 3, heads, size).permute(2, 0, 3, 1, 4).contiguous()
        return tensor.view(n, tokens, heads, 3, size).permute(3, 0, 2, 1, 4).contiguous()

    def view(name):
        """[n, heads, t, d] by the problem's strides."""
        dense = {"image": tokens * heads * size, "head": size, "token": heads * size}
        image, head, token = (case.number_or(f"{name}_{axis}", stride) for axis, stride in dense.items())
        return torch.as_strided(tensors[name], (n, heads, tokens, size), (image, head, token, 1))

    def chosen():
        from torch.nn.attention import SDPBackend, sdpa_kernel

        everything = [
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.MATH,
        ]
        return sdpa_kernel(everything if backend is None else [backend])

    def setup():
        function = torch.nn.functional.scaled_dot_product_attention
        q, k, v = split(tensors["qkv"]) if "qkv" in tensors else map(view, "qkv")
        if case.pass_name == "forward":

            def forward():
                with torch.no_grad(), chosen():
                    return {"o": function(q, k, v)}

            return forward

        # The forward pass leaves its statistics here, once; what is timed runs on what it saved, again and again.
        d_o = view("d_o").contiguous() if "qkv" in tensors else view("d_o")
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        with chosen():
            o = function(*leaves)

        def backward():
            gradients = torch.autograd.grad(o, leaves, d_o, retain_graph=True)
            return {"dqkv": Gradients(gradients)} if "qkv" in tensors else dict(zip(("dq", "dk", "dv"), gradients))

        return backward

    return setup


def random_inputs(torch, case):
    """For trying the script by hand."""
    dtype = worker.dtype_of(torch, case.words[-1])
    shape = [case.number("n"), case.number("t"), case.number("heads") * case.number("d")]
    made = {"qkv": torch.randn(shape[:2] + [3 * shape[2]]), "d_o": torch.randn(shape)}
    return {name: tensor.to(dtype).cuda() for name, tensor in made.items()}


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
