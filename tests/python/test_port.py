"""`./ladder port`: the version that it writes from another project's kernel, and what it leaves to do or refuses."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cli import build, constructs, paths, port
from cli.errors import UsageError
from registry import listing

ROOT = Path(__file__).resolve().parents[2]
SOFTMAX = ROOT / "tests" / "python" / "data" / "softmax_rows.cu"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree of softmax and layernorm alone."""
    for layer in ("softmax", "layernorm"):
        shutil.copytree(
            ROOT / "dev" / layer, tmp_path / "dev" / layer, ignore=shutil.ignore_patterns("v0[7-9]_*", "v[1-9]*")
        )
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    return tmp_path


def ported(tree, text, *more, target="softmax/forward"):
    """The text of the version that a source becomes."""
    source = tree / "mine.cu"
    source.write_text(text, encoding="utf-8")
    before = set((tree / "dev").rglob("*"))
    assert port.main([str(source), "--as", target, *more]) == 0
    (made,) = set((tree / "dev").rglob("*")) - before
    return made.read_text(encoding="utf-8")


def refused(tree, text, *more):
    with pytest.raises(UsageError) as error:
        ported(tree, text, *more)
    assert "\n" not in str(error.value)
    return str(error.value)


def launch_of(text):
    return re.search(r"^void launch\(.*?^\}\n", text, re.MULTILINE | re.DOTALL)[0]


def test_a_whole_program_becomes_a_version(tree, capsys):
    number = max(listing.read(tree).find("softmax/forward").numbers) + 1
    assert port.main([str(SOFTMAX), "--as", "softmax/forward"]) == 0
    file = tree / "dev" / "softmax" / "forward" / f"v{number:02d}_softmax_rows.cu"
    text = file.read_text()
    version = listing.read(tree).find("softmax/forward").version(number)
    assert (version.idea, version.dtypes) == ("softmax_rows", ("fp32",))
    assert version.header == {
        "idea": "softmax rows, from softmax_rows.cu.",
        "parent": None,
        "why": "name what limits it.",
        "needs": "fp32.",
    }
    comment = SOFTMAX.read_text().partition("#include")[0].strip()
    assert "MIT" in comment and f"\n\n{comment}\n\n#include <cfloat>\n\n#include" in text
    assert "  LADDER_SHARED(float, partial, [kThreads]);\n" in text
    assert f"softmax_forward_v{number:02d}_kernel(const float* __restrict__ in," in text
    assert not re.search("cuda|main|printf|vector|<<<|__shared__|TODO", text)
    assert launch_of(text) == (
        "void launch(const Problem& problem, const Forward::Tensors& tensors, void*, Stream stream) {\n"
        "  const float* const d_in = static_cast<const float*>(tensors.x);\n"
        "  float* const d_out = static_cast<float*>(tensors.y);\n"
        "  const int cols = problem.n;\n"
        "  const int threads = 256;\n"
        "  const int rows = problem.m;\n"
        f"  ladder::launch(softmax_forward_v{number:02d}_kernel<threads>, {{.grid = dim3(rows), .block = dim3(threads)}}, "
        "stream,\n"
        "                 d_in, d_out, cols);\n"
        "}\n"
    )
    said = capsys.readouterr().err
    assert "its names: d_in = x, d_out = y, cols = n, rows = m;" in said
    assert f"./ladder check softmax/forward --version {number}" in said
    assert constructs.scan(text) == []


DYNAMIC = """\
__global__ void rows(const __half2* __restrict__ in, __half2* out, int n_cols) {
  extern __shared__ float sums[];
  __shared__ float2 pairs[4][2], greatest;
  sums[threadIdx.x] = pairs[0][0].x + greatest.y;
  out[0] = isnan(sums[0]) ? in[n_cols] : in[0];
}
void run(const __half2* in, __half2* out, int m, int n_cols) {
  dim3 grid(m, 1), block{256};
  size_t bytes = n_cols * sizeof(float);
  rows<<<grid, block, bytes>>>(in, out, n_cols);
}
"""


@pytest.mark.parametrize("source", [SOFTMAX.read_text(encoding="utf-8"), DYNAMIC])
def test_the_emulators_compiler_takes_it(tree, source):
    commands = build.BUILD / "emulator" / "compile_commands.json"
    if not commands.exists():
        pytest.skip("no emulator build")
    like = next(c for c in json.loads(commands.read_text()) if c["file"].endswith("dev/softmax/forward/v01_naive.cu"))
    words = shlex.split(like["command"].partition(" -Winvalid-pch")[0])
    done = subprocess.run(
        [*words, "-Werror", "-fsyntax-only", "-"],
        cwd=like["directory"],
        input=ported(tree, source),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_it_never_overwrites(tree):
    first = ported(tree, SOFTMAX.read_text(), "--name", "rows")
    assert "softmax/forward has 'rows' already" in refused(tree, SOFTMAX.read_text(), "--name", "rows")
    second = ported(tree, SOFTMAX.read_text(), "--name", "other_rows")
    assert "v07" in first and "v08" in second and "v07" not in second
    assert not list(tree.rglob(".v*"))


KERNEL = "__global__ void k(const float* a, float* b, int s) {%s}\n"


def test_an_entry_names_the_launch_in_the_pass_s_words(tree):
    entry = "k<<<(elements + 255) / 256, 256, n * sizeof(float), stream>>>(x, y, n)"
    text = launch_of(ported(tree, KERNEL % "", "--entry", entry))
    assert "const float* const x = static_cast<const float*>(tensors.x);" in text
    assert "const std::int64_t elements = problem.elements();" in text
    assert "const int n = problem.n;" in text
    assert (
        "{.grid = dim3((elements + 255) / 256), .block = dim3(256), .dynamic_smem = static_cast<std::size_t>(n * "
        in text
    )
    assert text.endswith("x, y, n);\n}\n")


@pytest.mark.parametrize(
    "entry, says",
    [
        ("k<<<m, 1>>>(x, z, n)", "--entry: z is no tensor or size; there are: x, y, m, n, elements"),
        ("k<<<rows, 1>>>(x, y, n)", "--entry: rows is no tensor or size"),
        ("k<<<m, 1>>>(d_x, y, n)", "--entry: d_x is no tensor"),
        ("k<<<m, 1>>>(x, y)", "k takes 3 arguments, not 2"),
        ("q<<<m, 1>>>(x, y, n)", "no kernel 'q'; the file has: k"),
        ("k(x, y, n)", "--entry 'k(x, y, n)': a launch, as in"),
        ("k<<<m>>>(x, y, n)", "a launch, as in"),
    ],
)
def test_entries_that_cannot_be(tree, entry, says):
    assert says in refused(tree, KERNEL % "", "--entry", entry)


@pytest.mark.parametrize(
    "declared, made",
    [
        ("__shared__ float a[16][17], b;", "LADDER_SHARED(float, a, [16][17]);\n  LADDER_SHARED(float, b, );"),
        ("__shared__ unsigned char a[kN + 1];", "LADDER_SHARED(unsigned char, a, [kN + 1]);"),
        ("static __shared__ Vec<float> a[2];", "LADDER_SHARED(Vec<float>, a, [2]);"),
        ("__shared__ __align__(16) float2 a[4];", "LADDER_SHARED(__align__(16) float2, a, [4]);"),
        ("__shared__ alignas(16) float *a[4];", "LADDER_SHARED(alignas(16) float *, a, [4]);"),
        ("extern __shared__ unsigned char a[];", "LADDER_DYN_SMEM(a);"),
        (
            "extern __shared__ __align__(16) float a[];",
            "LADDER_DYN_SMEM(a_bytes);\n  float* const a = reinterpret_cast<float*>(a_bytes);",
        ),
        ("__shared__ float a[f(1, 2)];", "// TODO(port): __shared__: use LADDER_SHARED("),
        ("// __shared__ float a[2];", "// __shared__ float a[2];"),
    ],
)
def test_shared_memory(tree, declared, made):
    text = ported(tree, KERNEL % f"\n  {declared}\n", "--entry", "k<<<m, 1>>>(x, y, n)")
    assert f"  {made}" in text


MANY = """\
/* Copyright: BSD
   licence. */
#pragma once
#include <cuda_runtime.h>
#include <cub/cub.cuh>
#include "mine.h"
#define N_THREADS 128
#define TRY(x) do { \\
  cudaCheck(x); } while (0)
extern "C" { namespace mine { namespace {
typedef float real;
__constant__ float table[2] = {1, 2};
static float* device_memory;
template <typename T> struct Pair { T v[2]; };
// Says what it cannot do.
__device__ float helper(float x) { asm volatile("" ::: "memory"); return x; }
__global__ void first(float* y);
__global__ void first(float* y) { y[0] = helper(0); }
__global__ void __launch_bounds__(N_THREADS, 2) soft(const __half *__restrict__ dX, __half* dY, int n_rows, float eps) {
  first<<<1, 1>>>(nullptr);
}
}
const float* host_only(const float* p) { return p; }
void run(const __half* dX, __half* dY, int n_rows, float eps) {
  dim3 grid((n_rows + 1) / 2, 1), block{N_THREADS};
  soft<<<grid, block, 0>>>(dX, dY, n_rows, eps);
}
} }
"""


def test_what_is_kept_what_is_left_out_and_what_is_left_to_do(tree, capsys):
    text = ported(tree, MANY, "--entry", "soft<<<dim3(m, 2), N_THREADS>>>(x, y, m, 1.0f)")
    for kept in ("typedef float real;", "__constant__ float table", "struct Pair", "#define N_THREADS", "// Says what"):
        assert kept in text
    for dropped in (
        "pragma",
        "cuda_runtime",
        "TRY",
        "device_memory",
        "host_only",
        "run(",
        "namespace mine",
        "first(float* y);",
    ):
        assert dropped not in text
    assert text.index("/* Copyright: BSD\n   licence. */") < text.index("#include")
    assert "softmax_forward_v07_first_kernel(float* y) {" in text and "softmax_forward_v07_kernel(const __half" in text
    assert ".dtypes = {ladder::Dtype::f16}" in text
    lines = text.splitlines()
    said = re.findall(r"to do: dev/softmax/forward/v07_mine.cu:(\d+): (.*)", capsys.readouterr().err)
    assert [what.split(":")[0] for _, what in said] == [
        "<cub/cub.cuh>",
        "copy what it needs of this file",
        "asm",
        "<<<",
    ]
    assert all(lines[int(number) - 1].strip() == f"// TODO(port): {what}" for number, what in said)
    assert 'asm volatile("" ::: "memory")' in lines[int(said[2][0])]


def test_without_an_entry_the_only_launch_counts(tree):
    one = MANY.replace("first<<<1, 1>>>(nullptr);", "")
    text = launch_of(ported(tree, one))
    assert "  const int n_rows = problem.m;\n" in text
    assert "  // TODO(port): eps is no tensor or size; there are: x, y, m, n, elements\n" in text
    assert "  const dim3 grid((n_rows + 1) / 2, 1);\n  const dim3 block{N_THREADS};\n" in text
    text = launch_of(ported(tree, one.replace("__half", "float"), "--name", "norm", target="layernorm/forward"))
    assert "  const float eps = problem.eps;\n" in text
    assert "launches 2 kernels: name the launch, as in --entry" in refused(tree, MANY, "--name", "two")


def test_an_input_that_the_kernel_may_write(tree):
    text = KERNEL.replace("const ", "") % "" + "void f() { k<<<1, 1>>>(d_x, d_y, 7); }\n"
    assert "float* const d_x = const_cast<float*>(static_cast<const float*>(tensors.x));" in ported(tree, text)


def test_a_template_takes_its_types_from_the_launch(tree):
    text = "template <class T, int kN = 2>\n__global__ void k(const T* x, T* y) {}\n"
    half = ported(tree, text, "--entry", "k<__nv_bfloat16, 4><<<m, 1>>>(x, y)", "--name", "half_rows")
    assert "static_cast<const __nv_bfloat16*>(tensors.x)" in half and "{ladder::Dtype::bf16}" in half
    general = text + "template <class T>\nvoid f(T* x, T* y) { k<T, 8><<<1, 1>>>(x, y); }\n"
    assert "_kernel<float, 8>, {" in ported(tree, general)


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "launches 0 kernels"),
        ('int main() {{{ "never closed\n/* nor this\n', "launches 0 kernels"),
        (KERNEL % "", "launches 0 kernels: name the launch"),
        ("void f() { k<<<1, 1>>>(x, y, n); }\n", "no kernel 'k'; the file has: none"),
        ("__global__ void k(float*) {}\nvoid f() { k<<<1, 1>>>(x); }\n", "k: 'float*' is not a type and a name"),
        ("zero \0 byte", "mine.cu: no text"),
        ("//" + " " * (1 << 20), "or longer than a megabyte"),
    ],
)
def test_sources_that_cannot_be_ported(tree, text, says):
    assert says in refused(tree, text)


@pytest.mark.parametrize(
    "words, status, says",
    [
        (["missing.cu", "--as", "softmax/forward"], 1, "missing.cu: No such file or directory"),
        ([str(SOFTMAX)], 2, "required: --as"),
        ([str(SOFTMAX), "--as", "softmax/sideways"], 2, "softmax has no pass 'sideways'"),
        ([str(SOFTMAX), "--as", "softmax/forward", "--name", "fast"], 2, "'fast' says nothing of the change"),
        ([str(SOFTMAX), "--as", "softmax/forward", "--name", "online_sum"], 2, "has 'online_sum' already"),
        (["/bin/true", "--as", "softmax/forward"], 2, "/bin/true: no text"),
    ],
)
def test_a_wrong_command_line(words, status, says):
    done = subprocess.run([ROOT / "ladder", "port", *words], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert says in done.stderr
