"""A plain .cu file for an op definition: compiled to a library whose ladder_entry() runs what --entry says, with the
definition's tensors, scalars and axes by name."""

from pathlib import Path

from cli import device, plain
from cli.errors import UsageError
from profiling import where

from . import sandbox, trial

# {dtype of a definition: type in CUDA}
_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "bool": "bool",
}
_HEADERS = ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")
_FLAGS = "-shared -O3 -std=c++20 -Xcompiler=-fPIC --expt-relaxed-constexpr --expt-extended-lambda".split()


def source(definition, text, entry, name):
    """The library's source. Lines of the file keep their numbers. Throws UsageError for a dtype that has no type in CUDA."""
    declared, indices = [], {"tensors": 0, "scalars": 0}
    for kind in ("inputs", "outputs"):
        for tensor, spec in definition[kind].items():
            if spec["dtype"] not in _TYPES:
                raise UsageError(f"--entry: '{tensor}' is {spec['dtype']}, for which CUDA has no type here")
            type_ = _TYPES[spec["dtype"]]
            if kind == "inputs" and spec["shape"] is None:
                declared.append(f"const double {tensor} = scalars[{indices['scalars']}];")
                indices["scalars"] += 1
            else:
                pointer = f"const {type_}*" if kind == "inputs" else f"{type_}*"
                declared.append(f"{pointer} const {tensor} = static_cast<{pointer}>(tensors[{indices['tensors']}]);")
                indices["tensors"] += 1
    declared += [f"const long long {axis} = axes[{index}];" for index, axis in enumerate(definition["axes"])]
    lines = [
        *(f"#include <{header}>" for header in _HEADERS),
        *plain.authors_lines(text, name),
        '#line 1 "the definition"',
        'extern "C" const char* ladder_entry(void** tensors, const double* scalars, const long long* axes, cudaStream_t stream) {',
        *(f"  [[maybe_unused]] {line}" for line in declared),
        '#line 1 "--entry"',
        f"  {entry.strip().rstrip(';')};",
        "  const cudaError_t error = cudaGetLastError();",
        "  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);",
        "}",
    ]
    return "\n".join([*lines, ""])


def compiled(text, folder, include, limits, architecture=None):
    """Compiles folder/library.so of a source, in the sandbox. Returns "" or the reason of a failure."""
    nvcc = where.find("nvcc")
    if not nvcc:
        raise UsageError("--entry needs nvcc, which ./ladder setup --preset cuda fetches")
    (folder / "candidate.cu").write_text(text, encoding="utf-8")
    inside = sandbox.SCRATCH if limits.sandboxed else folder
    arch = (architecture or device.architecture()).split("-")[0]
    command = [nvcc, *_FLAGS, f"--generate-code=arch=compute_{arch},code=sm_{arch}"]
    command += [*(f"-I{each}" for each in include), inside / "candidate.cu", "-o", inside / "library.so"]
    command = sandbox.command(
        command,
        memory=limits.memory,
        read=sandbox.outside([str(word) for word in command if Path(word).parent != inside], Path("/nowhere")),
        write={folder: inside},
        sandboxed=limits.sandboxed,
    )
    return trial.reason_of("compile", command, limits, limits.seconds)
