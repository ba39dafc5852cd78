"""Partial program: a layer's program with some of its versions, so that `./ladder bench conv3x3 --version 7` compiles
v07 alone.

A partial program is CMake's own build statement in build.ninja, less the objects of the other versions. It stands in a
Ninja file of its own that includes build.ninja: object files are shared with the full build, and the full program is
untouched.
"""

import re
from dataclasses import dataclass

from . import digests, files, paths
from .errors import Failure

_FOLDER = "partial"  # in a build's folder
# Compiler flags added for a version to be debugged. The precompiled header has other flags, so it is not usable here.
_SYMBOLS, _CUDA_SYMBOLS = "-O0 -g3 -Wno-invalid-pch", "-g -G"


@dataclass(frozen=True)
class Part:
    program: str  # "bench_conv3x3"; its full target may be in a subfolder of the build
    name: str  # "fprop-7"
    layer: str
    sources: frozenset  # of the included versions: "dev/conv3x3/fprop/v07_wmma_double_buffer.cu"; empty for all
    debugged: str = ""  # source to compile with all symbols

    @property
    def target(self):
        return f"{_FOLDER}/{self.name}/{self.program}"

    @property
    def ninja_file(self):
        return f"{_FOLDER}/{self.name}.{self.program}.ninja"

    @property
    def debugged_object(self):
        return f"{_FOLDER}/{self.name}/{self.debugged}.o"


def of(program, versions, text):
    """The Part with one layer's {path: Versions}, chosen by --version `text`. None stands for the full program: for
    "all", for "best" (which version depends on the problem), and for a version that delegates to others."""
    files_of = [version.file for these in versions.values() for version in these]
    if text in ("all", "best") or any(map(digests.hands_on, files_of)):
        return None
    names = [
        "-".join([path.partition("/")[2], *(str(version.number) for version in these)])
        for path, these in versions.items()
    ]
    return Part(program, "+".join(names), next(iter(versions)).partition("/")[0], frozenset(map(_shown, files_of)))


def debugged(program, a_pass, version):
    """The Part with `version` compiled with all symbols; with all versions if it delegates to others."""
    part = of(program, {a_pass.path: [version]}, str(version.number))
    name = f"{a_pass.name}-{version.number}-debug"
    return Part(program, name, a_pass.layer, part.sources if part else frozenset(), _shown(version.file))


def _shown(file):
    return str(file.relative_to(paths.ROOT))


def write(part, folder):
    """Writes the Part's Ninja file into a build's folder, whose build.ninja must be up to date."""
    text = (folder / "build.ninja").read_text(encoding="utf-8")
    path = folder / part.ninja_file
    (folder / part.debugged_object if part.debugged else folder / part.target).parent.mkdir(parents=True, exist_ok=True)
    text = f"include build.ninja\n\n{statements(part, text)}"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.replace(path, text)


def statements(part, text):
    """Ninja build statements of the Part, derived from build.ninja's `text`."""
    rule, inputs, variables = _statement(rf"(?:\w+/)*{part.program}", text)
    inputs = [word for word in inputs.split(" || ")[0].split() if not _other_version(part, word)]
    variables = _with(variables, TARGET_FILE=part.target, POST_BUILD=":")
    if not part.debugged:
        return f"build {part.target}: {rule} {' '.join(inputs)}\n{variables}"
    inputs = [part.debugged_object if word.endswith(f"{part.debugged}.o") else word for word in inputs]
    compiler, source, flags = _statement(rf"\S*{part.debugged}\.o", text)
    symbols = _CUDA_SYMBOLS if compiler.startswith("CUDA") else _SYMBOLS
    flags = _with(flags, FLAGS=rf"\g<value> {symbols}", DEP_FILE=f"{part.debugged_object}.d")
    flags = flags.replace(" -Xptxas=--warn-on-spills", "")  # unoptimised code spills
    return (
        f"build {part.debugged_object}: {compiler} {source}\n{flags}\n"
        f"build {part.target}: {rule} {' '.join(inputs)}\n{variables}"
    )


def _statement(output, text):
    """(rule, inputs, variables) of the first build statement in build.ninja's `text` whose output matches a regex."""
    found = re.search(rf"^build {output}: (\w+) (.*)\n((?:  .*\n)*)", text, re.MULTILINE)
    if not found:
        raise Failure(f"the build makes no {output.rpartition('/')[2].lstrip(')*')}")
    return found.groups()


def _with(variables, **values):
    for name, value in values.items():
        variables = re.sub(rf"^  {name} = (?P<value>.*)$", f"  {name} = {value}", variables, flags=re.MULTILINE)
    return variables


def _other_version(part, word):
    found = re.search(rf"(dev/{part.layer}/\w+/v\d\d_\w+\.cu)\.o$", word)
    return part.sources and found and found[1] not in part.sources
