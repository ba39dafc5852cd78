"""`./ladder new <layer>/<pass> --layer`: the files of a new layer, made of tools/templates."""

import re
import shutil
import string
import subprocess

from . import files, paths, placeholder, signature
from .errors import UsageError

_TEMPLATES = paths.ROOT / "tools" / "templates"


def check_names(layer, pass_name):
    """Throws UsageError for a layer or pass that exists, or a name that clashes in files, CMake or C++."""
    if not signature.NAME.fullmatch(layer) or layer in signature.TAKEN:
        raise UsageError(f"layer '{layer}': snake_case, as in softmax, and no word of C++")
    declared = rf"^(?:struct|class|enum class|using) {signature.struct(pass_name)}\b"
    if not signature.NAME.fullmatch(pass_name) or pass_name in signature.TAKEN or _says(declared, "core/**/*.h"):
        raise UsageError(f"pass '{pass_name}': snake_case, as in forward, and no word of C++ or core/")
    there = [file for file in (f"dev/{layer}", *_files(layer, pass_name)) if (paths.ROOT / file).exists()]
    if there:
        raise UsageError(f"{there[0]} exists; docs/add_a_layer.md says how a layer gets a further pass")
    declared = rf"^(?:namespace ladder::{layer}\b|[^\s/#].*\b{layer}\()"
    if (
        (paths.ROOT / layer).exists()
        or _says(rf"\bladder_{layer}\b", "CMakeLists.txt", "*/CMakeLists.txt")
        or _says(declared, "core/**/*.h")
    ):
        raise UsageError(f"layer '{layer}': a part of the tree has that name")


def write(of, letters):
    """Writes all files of the layer, or none. Returns their names."""
    words = {**_words(of, letters), **_kernels(of)}
    made = {name: _filled(name, template, of, words) for name, template in _files(of.layer, of.pass_name).items()}
    home = paths.ROOT / "dev" / of.layer
    aside = home.with_name(f".{of.layer}.partial")
    written = []
    try:
        for name, text in made.items():
            path = paths.ROOT / name
            if path.is_relative_to(home):
                path = aside / path.relative_to(home)
                path.parent.mkdir(parents=True, exist_ok=True)
            files.create(path, text)
            written.append(path)
        aside.rename(home)  # the last step makes it a layer
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return list(made)


def first_version(of):
    """The text of v01_naive.cu."""
    return _filled("v01_naive.cu", "v01_naive.cu", of, _kernels(of))


def _files(layer, pass_name):
    """{file: its template}"""
    return {
        f"reference/{layer}_reference.cpp": "reference.cpp",
        f"bench/bench_{layer}.cpp": "bench.cpp",
        f"dev/{layer}/{layer}.h": "layer.h",
        f"dev/{layer}/{layer}.cpp": "layer.cpp",
        f"dev/{layer}/shapes.txt": "shapes.txt",
        f"dev/{layer}/README.md": "README.md",
        f"dev/{layer}/{pass_name}/v01_naive.cu": "v01_naive.cu",
    }


def _says(wanted, *patterns):
    """Returns True if a file of the glob `patterns` matches the regular expression `wanted`."""
    found = [path for pattern in patterns for path in paths.ROOT.glob(pattern)]
    return any(re.search(wanted, path.read_text(encoding="utf-8"), re.MULTILINE) for path in found)


def _filled(name, template, of, words):
    template = string.Template((_TEMPLATES / f"{template}.in").read_text(encoding="utf-8"))
    text = template.substitute(words, layer=of.layer, pass_name=of.pass_name, Pass=of.struct)
    program = shutil.which("clang-format")
    if not program or not name.endswith((".h", ".cpp", ".cu")):
        return text
    command = [program, f"--assume-filename={paths.ROOT / name}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else text


def _kernels(of):
    return {
        "kernels": "\n".join(placeholder.kernel(of, output) for output in of.outputs),
        "launches": "\n".join(placeholder.launch(of, output) for output in of.outputs),
    }


def _words(of, letters):
    """{placeholder of the templates: its text}, except those of _kernels()."""
    return {
        "formulas": placeholder.formulas(of, "//     "),
        "readme_formulas": placeholder.formulas(of, "    "),
        "fields": "\n".join(f"  int {letter} = 1;" for letter in letters),
        "members": "\n".join(_member(tensor, tensor in of.inputs) for tensor in of.tensors),
        "binds": ", ".join(f'.{tensor.name} = at["{tensor.name}"]' for tensor in of.tensors),
        "example": _line(letters, [64] * len(letters)),
        "words": " + ' ' + ".join(f"'{letter}' + std::to_string({letter})" for letter in letters) + " + ' '",
        "parses": "\n".join(f'  p.{each} = static_cast<int>(line.size("{each}", 1, kMax));' for each in letters),
        "products": ", ".join(f"1.0 * {placeholder.product(each)}" for each in {t.sizes: 0 for t in of.tensors}),
        "draws": ", ".join(f".{letter} = 1 + draw({_side(letters, 4096)})" for letter in letters),
        "specs": ",\n".join(_spec(of, tensor) for tensor in of.tensors),
        "flops": placeholder.flops(of),
        "reads": "\n".join(f'  const std::vector<float>& {x.name} = inputs["{x.name}"];' for x in of.inputs),
        "loops": "\n\n".join(placeholder.reference(of, output) for output in of.outputs),
        **_sets(letters),
    }


def _member(tensor, is_input):
    return f"    {'const ' if is_input else ''}void* {tensor.name};  // [{', '.join(tensor.sizes)}] dtype"


def _spec(of, tensor):
    role = "input" if tensor in of.inputs else "output"
    shape = ", ".join(f"p.{letter}" for letter in tensor.sizes)
    summed = of.summed(tensor) if role == "output" else ""
    longest = f", .reduction_length = std::int64_t{{1}} * {placeholder.product(summed)}" if summed else ""
    return (
        f'{{.name = "{tensor.name}", .role = Role::{role}, .dtype = p.dtype, .shape = {{{shape}}}, '
        f'.layout = "{tensor.sizes}"{longest}}}'
    )


def _line(letters, values):
    return " ".join(f"{letter}{value}" for letter, value in zip(letters, values))


def _side(letters, elements):
    """Size per dimension such that a tensor of all dimensions `letters` has about `elements` elements; at least 3."""
    return max(3, int(elements ** (1 / len(letters)) + 1e-9))


def _sets(letters):
    """{set: the lines of its named cases}; a case gives a size to each letter."""
    count = len(letters)
    even, large, small = (_side(letters, elements) for elements in (4096, 2**24, 512))
    ones = {f"one_{letter}": [1 if each == letter else 5 for each in letters] for letter in letters}
    around = {"block_less": 255, "block": 256, "block_more": 257}
    sets = {
        "ci": {
            "even": [even] * count,
            "odd": [5, 7, 3] * 2,
            "wide": [2] * (count - 1) + [300],
            "sixes": [6] * count,
            "twelves": [12] * count,
        },
        "edge": {**ones, **{name: [2] * (count - 1) + [last] for name, last in around.items()}},
        "perf": {"large": [large] * count},
        "order": {"small": [small] * count},
    }
    return {
        name: "\n".join(f"{case + ':':<12} {_line(letters, sizes)}" for case, sizes in cases.items())
        for name, cases in sets.items()
    }
