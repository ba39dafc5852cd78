"""A layer's program with some of its versions, so that `./ladder bench conv3x3 --version 7` compiles no other one.

It is CMake's own statement of the program in build.ninja without the objects of other versions, in a Ninja file beside
it that includes the whole build: objects are shared with it, and the whole program, at its own place, stays as it is.
"""

import re
from dataclasses import dataclass

from . import digests, files, paths
from .errors import Failure

_FOLDER = "partial"  # in a build's folder


@dataclass(frozen=True)
class Part:
    program: str  # "bench_conv3x3", whose target may be in a folder of the build
    name: str  # "fprop-7"
    layer: str
    sources: frozenset  # of its versions: "dev/conv3x3/fprop/v07_wmma_double_buffer.cu"

    @property
    def target(self):
        return f"{_FOLDER}/{self.name}/{self.program}"

    @property
    def ninja_file(self):
        return f"{_FOLDER}/{self.name}.{self.program}.ninja"


def of(program, a_pass, versions, text):
    """The Part with the Versions that --version `text` means; None for the whole program: for all versions, for best,
    which a problem decides, and for one that hands its work to others."""
    if text in ("all", "best") or any(digests.hands_on(version.file) for version in versions):
        return None
    name = f"{a_pass.name}-{'-'.join(str(version.number) for version in versions)}"
    sources = frozenset(str(version.file.relative_to(paths.ROOT)) for version in versions)
    return Part(program, name, a_pass.layer, sources)


def write(part, folder):
    """Writes the Ninja file into a build's folder, of a build.ninja that is up to date."""
    text = (folder / "build.ninja").read_text(encoding="utf-8")
    path = folder / part.ninja_file
    path.parent.mkdir(exist_ok=True)
    (folder / part.target).parent.mkdir(exist_ok=True)
    text = f"include build.ninja\n\n{statement(part, text)}"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        files.replace(path, text)


def statement(part, text):
    """How Ninja makes the part, by build.ninja's `text`."""
    whole = re.search(rf"^build (?:\w+/)*{part.program}: (\w+) (.*)\n((?:  .*\n)*)", text, re.MULTILINE)
    if not whole:
        raise Failure(f"the build has no program {part.program}")
    rule, inputs, variables = whole.groups()
    inputs = " ".join(word for word in inputs.split(" || ")[0].split() if not _other_version(part, word))
    variables = re.sub(r"^  (TARGET_FILE) = .*", rf"  \1 = {part.target}", variables, flags=re.MULTILINE)
    variables = re.sub(r"^  (POST_BUILD) = .*", r"  \1 = :", variables, flags=re.MULTILINE)
    return f"build {part.target}: {rule} {inputs}\n{variables}"


def _other_version(part, word):
    found = re.search(rf"(dev/{part.layer}/\w+/v\d\d_\w+\.cu)\.o$", word)
    return found and found[1] not in part.sources
