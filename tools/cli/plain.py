"""A plain .cu file as a candidate of `./ladder try --entry`: the author's text as it is, followed by a registration whose
launch is the entry, an expression such as `softmax<256><<<m, 256, 0, stream>>>(y, x, n)`.

The entry's names are the pass's tensors, as device pointers to the dtype, the problem's sizes, `stream`, and the structs
`tensors` and `problem` of the layer's header: `problem.w` where a tensor has a size's name.
"""

import re

from registry import listing

from . import cuda_source, signature
from .errors import UsageError

_ALWAYS = ("stream", "tensors", "problem")
_TYPES = {"fp32": "float", "tf32": "float", "bf16": "__nv_bfloat16", "fp16": "__half"}
_CPP = {word: name for name, word in listing.CPP_DTYPES.items()}
_WORD = re.compile(r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*")  # no member of anything
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


def candidate(a_pass, source, entry, dtype, when="", file="kernel.cu"):
    """Text of a version's file that launches `entry` for problems of one dtype for which the expression `when` holds.
    Throws UsageError for a name that is neither the pass's nor the author's."""
    struct, tensors, expressions = signature.names(a_pass)
    sizes = sizes_of(tensors, expressions)
    _check("--entry", entry, (*tensors, *sizes, *_ALWAYS), source)
    declared = [
        f"  [[maybe_unused]] auto* const {name} = ladder_pointer<{_TYPES[dtype]}>(tensors.{name});" for name in tensors
    ]
    lines = [
        *authors_lines(source, file),
        f'#line 1 "{place(a_pass)}"',
        *_BEFORE_ENTRY,
        f'#include "dev/{a_pass.layer}/{a_pass.layer}.h"',
        "",
        f"using LadderPass = ladder::{a_pass.layer}::{struct};",
        "static void ladder_entry(const LadderPass::Problem& problem, const LadderPass::Tensors& tensors, void*, ladder::Stream stream) {",
        *declared,
        *_declared(sizes),
        '#line 1 "--entry"',
        f"  {entry.strip().rstrip(';')};",
        f'#line 1 "{place(a_pass)}"',
        "  LADDER_CUDA(cudaGetLastError());",
        "}",
    ]
    return "\n".join([*lines, *registration(a_pass, sizes, dtype, when, source)])


def authors_lines(source, file):
    """The author's text under its own name and line numbers, with its main() left aside."""
    return ["#define main ladder_unused_main", f'#line 1 "{file}"', source.rstrip(), "#undef main"]


def registration(a_pass, sizes, dtype, when, source=""):
    """Lines that register ladder_entry() for problems of one dtype for which `when` holds, an expression of `sizes`, {name: C++
    expression}. Throws UsageError for a name in it that is neither a size nor of `source`."""
    _check("--when", when, (*sizes, "problem"), source)
    definition = f".launch = ladder_entry, .dtypes = {{ladder::Dtype::{_CPP[dtype]}}}"
    lines = []
    if when:
        lines = [
            "static const char* ladder_supports(const LadderPass::Problem& problem) {",
            *_declared(sizes),
            '#line 1 "--when"',
            f'  return ({when}) ? nullptr : "--when excludes it";',
            f'#line 1 "{place(a_pass)}"',
            "}",
        ]
        definition += ", .supports = ladder_supports"
    return [*lines, f"LADDER_VERSION(LadderPass, {{{definition}}})", ""]


def place(a_pass):
    return f"dev/{a_pass.path}/v99_candidate.cu"


def sizes_of(tensors, expressions):
    """{name: C++ expression} of the sizes that an entry can name: those that have no tensor's name."""
    return {name: text for name, (_, text, _) in expressions.items() if name not in (*tensors, *_ALWAYS)}


def _declared(sizes):
    return [f"  [[maybe_unused]] const auto {name} = problem.{text};" for name, text in sizes.items()]


def _check(option, text, known, source):
    words = set(_WORD.findall(re.sub(r'"[^"]*"', "", text)))
    theirs = set(re.findall(r"\w+", source))
    unknown = sorted(words - set(known) - theirs - cuda_source.WORDS)
    if unknown:
        raise UsageError(f"{option}: no '{unknown[0]}'; there are: {', '.join(known)}, and the file's own names")
