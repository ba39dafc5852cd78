"""PyTorch's one-dimensional convolutions, and the block of Diffusion Policy's U-Net, eager and compiled, as a baseline.

Sequences lie in memory as [n, l, c] with us; PyTorch's conv1d wants (n, c, l). The ncl plans work on copies made beforehand, as
the published network has its tensors; the nlc plan sees ours as (n, c, l) through their strides.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "conv1d"
PASSES = ("fprop", "block")


def plans(torch, case, tensors):
    """Eager in PyTorch's layout first: what a user gets who changes nothing."""
    kinds = [("eager", "ncl", None, "heuristic"), ("eager", "nlc", None, "listed")]
    for words, mode, search in (
        ("compile", "default", "listed"),
        ("compile max-autotune", "max-autotune-no-cudagraphs", "all"),
    ):
        kinds += [(words, layout, mode, search) for layout in ("ncl", "nlc")]
    return [
        worker.Plan(f"PyTorch {words} {layout}", search, _setup(torch, case, tensors, layout, mode))
        for words, layout, mode, search in kinds
    ]


def stored(torch, case, name, out):
    return out.permute(0, 2, 1).contiguous()


def convolution(torch, case):
    """The function of (x, w, bias), w as our [k, taps, c] turned to what PyTorch's operator wants."""
    functional = torch.nn.functional
    if "transposed" in case.words:
        return lambda x, w, bias: functional.conv_transpose1d(x, w, bias, stride=2, padding=1)
    if "stride2" in case.words:
        return lambda x, w, bias: functional.conv1d(x, w, bias, stride=2, padding=1)
    return lambda x, w, bias: functional.conv1d(x, w, bias, padding=case.number("taps") // 2)


def layer(torch, case):
    """The function of a dictionary of tensors, in PyTorch's layouts."""
    functional = torch.nn.functional
    convolve = convolution(torch, case)
    groups, k = case.number_or("g", 1), case.number("k")

    def fprop(t):
        y = convolve(t["x"], t["w"], t.get("bias"))
        return y + t["residual"] if "residual" in t else y

    def block(t):
        x = torch.cat((t["x"], t["x_rest"]), dim=1) if "x_rest" in t else t["x"]
        y = functional.group_norm(convolve(x, t["w"], t["bias"]), groups, t["gamma"], t["beta"], 1e-5)
        if "mish" in case.words:
            y = functional.mish(y)
        if "film" in t:
            film = t["film"].unsqueeze(-1)
            y = film[:, :k] * y + film[:, k:] if "film" in case.words else y + film
        return y + t["residual"] if "residual" in t else y

    return {"fprop": fprop, "block": block}[case.pass_name]


def inputs(case, tensors, layout):
    """The tensors as PyTorch's operators want them. As the published module has it, all are of x's type, and film is one row a
    sample: the part that all samples share is added here, and not timed."""
    dtype = tensors["x"].dtype

    def sequence(tensor):
        seen = tensor.permute(0, 2, 1)
        return seen if layout == "nlc" else seen.contiguous()

    turned = {name: sequence(tensors[name]) for name in ("x", "x_rest", "residual") if name in tensors}
    order = (2, 0, 1) if "transposed" in case.words else (0, 2, 1)
    turned["w"] = tensors["w"].permute(*order).contiguous()
    turned |= {name: tensors[name].to(dtype) for name in ("bias", "gamma", "beta") if name in tensors}
    if "film" in tensors:
        step = tensors["film_step"]
        turned["film"] = (tensors["film"][:, : step.shape[0]] + step).to(dtype)
    return turned


def _setup(torch, case, tensors, layout, mode):
    def setup():
        torch.backends.cudnn.allow_tf32 = False
        function = layer(torch, case)
        if mode:
            function = torch.compile(function, mode=mode, dynamic=False)
        turned = inputs(case, tensors, layout)

        def run():
            with torch.no_grad():
                return {"y": function(turned)}

        return run

    return setup


def random_inputs(torch, case):
    """For trying the script by hand."""
    n, length, c, k, taps = (case.number(letter) for letter in ("n", "l", "c", "k", "taps"))
    split = case.number_or("split", 0) if case.pass_name == "block" else 0
    out = 2 * length if "transposed" in case.words else (length + 1) // 2 if "stride2" in case.words else length
    shapes = {"x": (n, length, split or c), "w": (k, taps, c)}
    if split:
        shapes["x_rest"] = (n, length, c - split)
    if case.pass_name == "block":
        shapes |= dict.fromkeys(("bias", "gamma", "beta"), (k,))
        width = 2 * k if "film" in case.words else k if "shift" in case.words else 0
        if width:
            shapes |= {"film_step": (width,), "film": (n, case.number_or("pitch", width))}
    elif "bias" in case.words:
        shapes["bias"] = (k,)
    if "residual" in case.words:
        shapes["residual"] = (n, out, k)
    return worker.random_tensors(torch, case, shapes)


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
