"""Python side of a Python candidate (plain_python.py): calls the author's function on the launch's stream, with tensors that
are views of the launch's device memory. Its text is part of the candidate's program, which runs it in __main__."""

import ctypes
import functools
import importlib.util
import json
import os
import sys
import tempfile
import traceback

_MOST_SAID = 600  # bytes of an error; the program's buffer holds 1023
_STORED = {  # dtype: (typestr of __cuda_array_interface__, torch's dtype)
    "fp32": ("<f4", "float32"),
    "tf32": ("<f4", "float32"),
    "bf16": ("<i2", "bfloat16"),  # the interface has no bf16
    "fp16": ("<f2", "float16"),
    "int32": ("<i4", "int32"),
    "int64": ("<i8", "int64"),
    "uint8": ("|u1", "uint8"),
}
_kept = []  # objects that the program has the address of


def start(config, source_address, launch_address, error_address):
    """Runs the author's file and writes the address of launch(about, stream, error) to `launch_address`, or an error's text to
    `error_address`."""
    try:
        sys.path[:] = config["path"]
        sys.prefix = sys.exec_prefix = config["prefix"]
        sys.executable = config["executable"]
        sys.argv = [""]
        folder = _folder()
        _set_environment(folder)
        function = loaded(folder, config["file"], ctypes.string_at(source_address), config["function"])
        launch = functools.partial(_launch, caller(function, config["parameters"]))
        _kept.append(ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)(launch))
        address = ctypes.cast(_kept[-1], ctypes.c_void_p).value
        ctypes.c_void_p.from_address(launch_address).value = address
    except BaseException as error:
        _write(error_address, error)


def loaded(folder, file, source, function):
    """The author's function. Triton reads the source of its kernels from a file."""
    import torch  # noqa: F401  an installation without it is the first error

    path = os.path.join(folder, file)
    with open(path, "wb") as out:
        out.write(source)
    spec = importlib.util.spec_from_file_location("ladder_candidate", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def caller(function, parameters):
    """Function of a launch's description, JSON text, and its stream. Throws what the author's function throws, and TypeError
    for returned values that are not the outputs."""
    import torch

    def call(about, stream):
        tensors, sizes, outputs = _arguments(about)
        given = {name: tensors[name] if name in tensors else sizes.get(name) for name in parameters}
        with torch.cuda.stream(_stream(stream)):
            _store(function(**given), [(name, tensors[name]) for name in outputs if name not in given])

    return call


@functools.lru_cache(maxsize=256)
def _arguments(about):
    """({tensor: view}, {size: value}, [output]) of a launch. A tensor that the problem lacks is in neither."""
    about = json.loads(about)
    tensors = {name: view(address, dtype, shape) for name, address, dtype, shape, _ in about["tensors"]}
    return tensors, about["sizes"], [name for name, *_, is_written in about["tensors"] if is_written]


class _Memory:
    def __init__(self, address, typestr, shape):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "typestr": typestr,
            "shape": tuple(shape),
            "version": 3,
        }


def view(address, dtype, shape):
    import torch

    typestr, name = _STORED[dtype]
    return torch.as_tensor(_Memory(address, typestr, shape), device="cuda").view(getattr(torch, name))


@functools.lru_cache(maxsize=256)
def _stream(address):
    import torch

    return torch.cuda.ExternalStream(address)


def _store(returned, outputs):
    """Copies what the function returned to [(name, tensor)], the outputs that it did not get as parameters."""
    import torch

    if not outputs:
        return
    values = returned if isinstance(returned, (tuple, list)) else (returned,)
    if len(values) != len(outputs):
        names = ", ".join(name for name, _ in outputs)
        raise TypeError(f"{len(values)} returned values for the {len(outputs)} outputs {names}")
    for (name, output), value in zip(outputs, values):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"returned {type(value).__name__} for the output {name}, not a tensor")
        if _kind(value) != _kind(output):
            raise TypeError(f"returned {_kind(value)} for the output {name}, which is {_kind(output)}")
    for (_, output), value in zip(outputs, values):
        output.copy_(value.detach())


def _kind(tensor):
    return f"{str(tensor.dtype).partition('.')[2]} {list(tensor.shape)} on {tensor.device}"


def _launch(call, about, stream, error_address):
    try:
        call(about, stream or 0)
    except BaseException as error:
        _write(error_address, error)


def _write(address, error):
    text = said(error).encode("utf-8", "replace")
    if len(text) > _MOST_SAID:  # the first line and the last line say most: PyTorch's error and Triton's
        text = text[: _MOST_SAID // 2] + b" ... " + text[-(_MOST_SAID // 2) :]
    ctypes.memmove(address, text + b"\0", len(text) + 1)


def said(error):
    """An exception in one line, with the line of the author's file."""
    message = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    module = sys.modules.get("ladder_candidate")
    file = getattr(module, "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f" ({os.path.basename(file)}:{lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {message}{place}" if message else f"{type(error).__name__}{place}"


def _folder():
    """A folder to write in: next to the program, which goes with it, or the sandbox's /tmp."""
    beside = os.path.dirname(os.readlink("/proc/self/exe"))
    return tempfile.mkdtemp(dir=beside if os.access(beside, os.W_OK) else None)


def _set_environment(folder):
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "HOME"):
        os.environ[name] = os.path.join(folder, name.lower())
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ[name] = "1"  # a candidate's threads and processes are few
    os.environ["USER"] = os.environ["LOGNAME"] = "ladder"  # the sandbox has no /etc/passwd
    with open("/proc/self/maps") as maps:
        drivers = {os.path.dirname(line.split()[-1]) for line in maps if "/libcuda.so" in line}
    for place in drivers:  # one at most; the sandbox has no LD_LIBRARY_PATH
        if os.path.exists(os.path.join(place, "libcuda.so.1")):
            os.environ["TRITON_LIBCUDA_PATH"] = place
