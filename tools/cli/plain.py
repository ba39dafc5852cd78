"""A plain .cu file as a candidate of `./ladder try --entry`: the author's text as it is, followed by a registration whose
launch is the entry, an expression such as `softmax<256><<<m, 256, 0, stream>>>(y, x, n)`.

The entry's names are the pass's tensors, as device pointers to the dtype, the problem's sizes, `stream`, `tensors` and
`size` (the structs of the layer's header, where a size has a tensor's name: `size.w`).
"""

import re
from dataclasses import dataclass

from . import paths
from .errors import UsageError

_ALWAYS = ("stream", "tensors", "size")
_TYPES = {"fp32": "float", "tf32": "float", "bf16": "__nv_bfloat16", "fp16": "__half"}
_CPP = {"fp32": "f32", "tf32": "tf32", "bf16": "bf16", "fp16": "f16"}
_WORD = re.compile(r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*")  # no member of anything
# Words of C++ and of CUDA that an entry may have beside its names and the author's.
_LANGUAGE = set(
    "auto bool char const const_cast double false float int long nullptr reinterpret_cast short signed sizeof "
    "static_cast std true unsigned void dim3 size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t "
    "half __half __half2 nv_bfloat16 __nv_bfloat16 cudaStream_t min max".split()
)
_BEFORE_ENTRY = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "core/cuda_check.h"

template <class T, class P>  // void: the problem's dtype; the author's kernel may take inputs without const
static auto ladder_pointer(P* at) {
  using Element = std::conditional_t<std::is_void_v<P>, T, std::remove_const_t<P>>;
  return static_cast<Element*>(const_cast<std::remove_const_t<P>*>(at));
}""".split("\n")


@dataclass(frozen=True)
class Names:
    struct: str  # "Fprop": the pass in the layer's header
    tensors: tuple
    sizes: tuple  # the problem's fields that no tensor is called

    @property
    def all(self):
        return (*self.tensors, *self.sizes, *_ALWAYS)


def names(a_pass):
    """The Names that an entry of the pass may use, from dev/<layer>/<layer>.h."""
    header = (paths.ROOT / "dev" / a_pass.layer / f"{a_pass.layer}.h").read_text(encoding="utf-8")
    of_pass = rf'^struct (\w+) \{{(?:(?!^\}};).)*?kName = "{a_pass.name}".*?^\}};'
    struct = re.search(of_pass, header, re.MULTILINE | re.DOTALL)
    inside = re.search(r"struct Tensors \{(.*?)^  \};", struct[0], re.MULTILINE | re.DOTALL)[1]
    tensors = tuple(re.findall(r"^    (?:const )?\w+\* (\w+)(?: = \w+)?;", inside, re.MULTILINE))
    problem = re.search(r"^struct Problem \{(.*?)^\};", header, re.MULTILINE | re.DOTALL)[1]
    fields = re.findall(r"^  (?:std::)?(?:int|int64_t|float|double|bool) (\w+)(?: =|;)", problem, re.MULTILINE)
    return Names(struct[1], tensors, tuple(name for name in fields if name not in (*tensors, *_ALWAYS)))


def candidate(a_pass, source, entry, dtype, when="", file="kernel.cu"):
    """Text of a version's file that launches `entry` for problems of one dtype for which the expression `when` holds.
    Throws UsageError for a name that is neither the pass's nor the author's."""
    known = names(a_pass)
    for option, text in (("--entry", entry), ("--when", when)):
        _check(option, text, known, source)
    space = f"ladder::{a_pass.layer}"
    place = f"dev/{a_pass.path}/v99_candidate.cu"
    declared = [
        f"  [[maybe_unused]] auto* const {name} = ladder_pointer<{_TYPES[dtype]}>(tensors.{name});"
        for name in known.tensors
    ]
    declared += [f"  [[maybe_unused]] const auto {name} = size.{name};" for name in known.sizes]
    lines = [
        "#define main ladder_unused_main",
        f'#line 1 "{file}"',
        source.rstrip(),
        "#undef main",
        f'#line 1 "{place}"',
        *_BEFORE_ENTRY,
        f'#include "dev/{a_pass.layer}/{a_pass.layer}.h"',
        "",
        f"using LadderPass = {space}::{known.struct};",
        "static void ladder_entry(const LadderPass::Problem& size, const LadderPass::Tensors& tensors, void*, ladder::Stream stream) {",
        *declared,
        '#line 1 "--entry"',
        f"  {entry.strip().rstrip(';')};",
        f'#line 1 "{place}"',
        "  LADDER_CUDA(cudaGetLastError());",
        "}",
    ]
    definition = f".launch = ladder_entry, .dtypes = {{ladder::Dtype::{_CPP[dtype]}}}"
    if when:
        lines += [
            "static const char* ladder_supports(const LadderPass::Problem& size) {",
            *(line for line in declared if "tensors." not in line),
            '#line 1 "--when"',
            f'  return ({when}) ? nullptr : "--when excludes it";',
            f'#line 1 "{place}"',
            "}",
        ]
        definition += ", .supports = ladder_supports"
    return "\n".join([*lines, f"LADDER_VERSION({space}::{known.struct}, {{{definition}}})", ""])


def _check(option, text, known, source):
    words = set(_WORD.findall(re.sub(r'"[^"]*"', "", text)))
    theirs = set(re.findall(r"\w+", source))
    unknown = sorted(words - set(known.all) - theirs - _LANGUAGE)
    if unknown:
        raise UsageError(f"{option}: no '{unknown[0]}'; there are: {', '.join(known.all)}, and the file's own names")
