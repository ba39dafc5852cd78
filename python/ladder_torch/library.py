"""The package's compiled libraries: _cuda.so for CUDA tensors, _emulator.so for CPU tensors after cpu("emulator")."""

import contextlib
import ctypes
import json
from pathlib import Path

_LEAST_TORCH = (2, 10)
_HERE = Path(__file__).resolve().parent

try:
    import torch
except ImportError as error:
    raise ImportError(f"ladder_torch needs PyTorch 2.10 or newer, and there is none: {error}") from None
if tuple(int(word) for word in torch.__version__.split(".")[:2]) < _LEAST_TORCH:
    raise ImportError(f"ladder_torch needs PyTorch 2.10 or newer; this is {torch.__version__}")


class Half:
    """A compiled library, loaded on first use."""

    def __init__(self, name, device):
        self.name, self.device = name, device
        in_package = _HERE / f"_{name}.so"
        in_build = _HERE.parents[1] / "build" / name / "python" / in_package.name  # of the source tree
        self.file = in_build if in_build.exists() and not in_package.exists() else in_package
        self._library, self._wrong = None, ""

    def missing(self):
        """Returns the reason why the library cannot be loaded, or ""."""
        if self._wrong:
            return self._wrong
        if not self.file.exists():
            return f"ladder_torch was built without {self.file.name}; python/README.md says how it is made"
        if self.name == "cuda" and not torch.version.cuda:
            return f"PyTorch {torch.__version__} is built without CUDA"
        return ""

    def load(self):
        """Loads the library and registers its operators. Throws RuntimeError."""
        if self._library is None:
            if self.missing():
                raise RuntimeError(self.missing())
            try:
                torch.ops.load_library(str(self.file))
            except OSError as error:
                self._wrong = f"{self.file.name} does not load beside PyTorch {torch.__version__}: {error}"
                raise RuntimeError(self._wrong) from None
            self._library = ctypes.CDLL(str(self.file))
            self._library.ladder_torch_ask.restype = ctypes.c_char_p
        return self

    def ask(self, **question):
        """Returns the library's answer to a question (csrc/ask.cpp). Throws ValueError for an invalid question."""
        text = self.load()._library.ladder_torch_ask(json.dumps(question).encode())
        answer = json.loads(text.decode())
        if "wrong" in answer:
            raise ValueError(answer["wrong"])
        return answer["answer"]


CUDA = Half("cuda", "cuda")
EMULATOR = Half("emulator", "cpu")
_cpu = "formula"


def halves():
    """Returns the libraries that are loaded or can be loaded."""
    return [half for half in (CUDA, EMULATOR) if not half.missing()]


def emulated():
    """Returns whether CPU tensors are computed by the emulator."""
    return _cpu == "emulator"


class cpu(contextlib.ContextDecorator):
    """Selects the implementation for CPU tensors, from now on or in a `with`.

    "formula" is PyTorch's own operators; "emulator" runs the GPU kernels themselves in the emulator, slowly. The
    environment variable LADDER_TORCH_CPU sets the initial choice."""

    def __init__(self, how):
        global _cpu
        if how not in ("formula", "emulator"):
            raise ValueError(f"cpu({how!r}): 'formula' or 'emulator'")
        if how == "emulator":
            EMULATOR.load()
        self._before, _cpu = _cpu, how

    def __enter__(self):
        return self

    def __exit__(self, *_):
        global _cpu
        _cpu = self._before


def status():
    """Returns {"torch": version, "cuda", "emulator", "cpu": see cpu()}; "cuda" and "emulator" are "" where the library
    can run here, else the reason why not."""
    cuda = CUDA.missing() or CUDA.ask()["unavailable"]
    return {"torch": torch.__version__, "cuda": cuda, "emulator": EMULATOR.missing(), "cpu": _cpu}


with contextlib.suppress(RuntimeError):  # status() and the first call on a GPU report the reason
    CUDA.load()
