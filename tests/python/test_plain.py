"""A plain .cu file as a candidate: its text with a registration whose launch is the entry."""

import subprocess

import pytest

from cli import paths, plain, setup, signature, tools, try_
from cli.errors import UsageError
from registry import listing
from search import sandbox

_SOURCE = """\
#include <cstdio>
template <int kThreads>
__global__ void scale(float* y, const float* x, int count) {
  __shared__ float tile[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < count ? x[i] : 0;
  __syncthreads();
  if (i < count) y[i] = tile[threadIdx.x] / (1 + __expf(-tile[threadIdx.x]));
}
int main() { std::printf("of the author\\n"); }
"""
_ENTRY = "scale<256><<<(n * c + 255) / 256, 256, 0, stream>>>(y, x, n * c)"


def _pass(path):
    return listing.read(paths.ROOT).find(path)


def test_every_pass_has_names():
    for a_pass in listing.read(paths.ROOT).passes:
        struct, tensors, sizes = signature.names(a_pass)
        assert struct and tensors and sizes, a_pass.path


def test_a_tensor_goes_before_a_size_of_its_name():
    text = plain.candidate(_pass("conv3x3/fprop"), "", "stream(x, w, problem.w, h)", "bf16")
    assert "const w = ladder_pointer<__nv_bfloat16>(tensors.w);" in text
    assert "const auto h = problem.h;" in text and "w = problem.w;" not in text


def test_an_unknown_name_is_answered_by_those_that_there_are():
    for says, *words in (
        (
            "--entry: no 'out'; there are: x, y, n, c, elements, stream, tensors, problem",
            _ENTRY.replace("(y", "(out"),
            "fp32",
        ),
        ("--when: no 'out'; there are: n, c, elements, problem", _ENTRY, "fp32", "out > 2"),
    ):
        with pytest.raises(UsageError, match=says):
            plain.candidate(_pass("silu/forward"), _SOURCE, *words)


def test_it_needs_a_gpu_and_is_told_from_a_version(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "lacking", lambda: "")
    file = tmp_path / "kernel.cu"
    file.write_text(_SOURCE)
    for says, *words in (
        ("--entry needs a GPU: .*; ./ladder port ", "--entry", _ENTRY),
        ("kernel.cu registers no version: --entry says .*; ./ladder port ",),
        ("--when and --include go with --entry", "--when", "c > 2"),
    ):
        with pytest.raises(UsageError, match=says):
            try_.main(["silu/forward", str(file), "--device=emulator", *words])


@pytest.mark.skipif(not setup.has_nvcc(), reason="needs nvcc")
@pytest.mark.parametrize(("dtype", "element"), [("fp32", "float"), ("bf16", "__nv_bfloat16")])
def test_nvcc_compiles_it_with_its_main(tmp_path, dtype, element):
    source = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n" + _SOURCE
    source = source.replace("float* ", f"{element}* ").replace("? x[i]", "? float(x[i])")
    status, said = _compiled(tmp_path, source, dtype)
    assert status == 0, said


@pytest.mark.skipif(not setup.has_nvcc(), reason="needs nvcc")
def test_an_error_has_the_line_of_the_file(tmp_path):
    status, said = _compiled(tmp_path, _SOURCE.replace("__syncthreads()", "__synchthreads()"), "fp32")
    assert status and "kernel.cu(7): error" in said


def _compiled(folder, source, dtype):
    """(exit status, output) of nvcc's front end, which ends before any code is made."""
    path = folder / "dev/silu/forward/v99_candidate.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(plain.candidate(_pass("silu/forward"), source, _ENTRY, dtype, when="c % 8 == 0"), encoding="utf-8")
    words = ["nvcc", "-std=c++20", "-arch=sm_90a", "--cuda", f"-I{paths.ROOT}", f"-I{paths.PRIVATE}/root/usr/include"]
    done = subprocess.run(
        [*words, path, "-o", folder / "out.ii"], env=tools.environment(), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr
