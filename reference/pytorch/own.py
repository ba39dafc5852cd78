"""A baseline of your own for `./ladder bench <layer> --baseline FILE.py`: functions on tensors, one a pass, in PyTorch.

    import torch

    def forward(x):                              # named like the pass; parameters are names of the pass's inputs
        return torch.nn.functional.silu(x)       # the output; several outputs: {"dx": ..., "dgamma": ...}

A parameter `problem` gets the problem's line. Returned tensors have the layout and dtype in which the pass stores them.
"""

import importlib.util
import inspect
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker


class Own:
    """A layer's script (worker.py) made from the file of the user's own baseline."""

    PASSES = ()  # unknown until the file is loaded: plans() checks

    def __init__(self, file):
        self.file, self.NAME = Path(file), Path(file).name

    def plans(self, torch, case, tensors):
        function = getattr(self._module(), case.pass_name, None)
        if not callable(function):
            raise worker.Refusal(f"{self.NAME} has no function {case.pass_name}")
        given = {**tensors, "problem": case.problem}
        takes = inspect.signature(function).parameters
        unknown = [name for name in takes if name not in given]
        if unknown:
            raise worker.Refusal(f"{self.NAME}: {case.pass_name} has no input {unknown[0]}; it has {', '.join(given)}")

        def step(at):
            return function(**{name: at[name] for name in takes})

        return worker.plans_of(torch, step, given, self.NAME, lambda out: self._named(torch, case, out))

    def stored(self, torch, case, name, out):
        return out

    def _module(self):
        """Load the file anew for each case, because the previous case may have compiled its functions."""
        spec = importlib.util.spec_from_file_location("own_baseline", self.file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def _named(self, torch, case, out):
        """Returns {output: tensor} after checking each shape and dtype against the case."""
        outputs = {each["name"]: each for each in case.tensors if each["role"] != "input"}
        out = out if isinstance(out, dict) else dict(zip(outputs, out if isinstance(out, (tuple, list)) else [out]))
        for name, tensor in out.items():
            if name not in outputs:
                raise worker.Refusal(f"{self.NAME}: {case.pass_name} has no output {name}; it has {', '.join(outputs)}")
            wanted = (tuple(outputs[name]["shape"]), worker.dtype_of(torch, outputs[name]["dtype"]))
            if (tuple(tensor.shape), tensor.dtype) != wanted:
                raise worker.Refusal(
                    f"{self.NAME}: {name} is {tuple(tensor.shape)} {tensor.dtype}, not {wanted[0]} {wanted[1]}"
                )
        return out


if __name__ == "__main__":
    file = sys.argv.pop(1)
    sys.exit(worker.main(Own(file)))
