"""Digests of the versions' machine code, from a CUDA build's objects as NVIDIA's cuobjdump shows them.

A kernel counts by the instructions of its .text section; one that a relocation changes counts as zeros, as its bytes depend
on symbols. Names of symbols, constant data, registers and shared memory do not count. A version's digest is one of the
sorted digests of its kernels. A version that has others do its work (digests.hands_on) counts with all of its layer.
"""

import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor

from cli import digests
from records.results import version_name

from . import disassembly, resources

_ARCH = re.compile(r"^arch = (sm_\d+)([a-z]?)$", re.MULTILINE)
_NVCC = re.compile(r"\bV(\d+\.\d+\.\d+)\b")  # in the note that ptxas leaves
_SECTION = re.compile(r"^(?:\.section )?(\.\w\S*).*$", re.MULTILINE)
_WORD = re.compile(r"\b0x([0-9a-f]{8})\b")
_RELOCATION = re.compile(r"^0x([0-9a-f]+)\s+\S+\s+R_\w+", re.MULTILINE)
_WORDS_OF_INSTRUCTION = 4  # 16 bytes, from sm_70 on


def of_build(folder, passes):
    """{"sm_90": {"nvcc": its release, "versions": {version_name(): digest}}} of the versions of some Passes. One without an object, or
    without code for an architecture, is missing there."""
    sources = {
        version_name(a_pass.path, version.number): _sources(a_pass.layer, version)
        for a_pass in passes
        for version in a_pass.versions
    }
    there = sorted({each for of_version in sources.values() for each in of_version})
    there = [source for source in there if resources.object_of(source, folder).exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        code = dict(zip(there, pool.map(lambda source: parse(_dump(resources.object_of(source, folder))), there)))
    found = {}
    for name, of_version in sorted(sources.items()):
        if code.keys() >= set(of_version):
            for arch in code[of_version[0]] or set().union(*(code[source] for source in of_version)):
                mine = [code[source][arch] for source in of_version if arch in code[source]]
                of_arch = found.setdefault(arch, {"nvcc": mine[0][0], "versions": {}})
                of_arch["versions"][name] = _digest(
                    " ".join(sorted(kernel for _, kernels in mine for kernel in kernels))
                )
    return found


def parse(text):
    """{"sm_90": (nvcc's release, digests of kernels)} of cuobjdump's text; code for sm_90a takes the place of sm_90's."""
    parts = _ARCH.split(text)
    found = {}
    for arch, _, cubin in sorted(zip(parts[1::3], parts[2::3], parts[3::3]), key=lambda part: part[:2]):
        sections = _SECTION.split(cubin)
        sections = dict(zip(sections[1::2], sections[2::2]))
        kernels = [
            _kernel(body, "".join(sections.get(prefix + name, "") for prefix in (".rel", ".rela")))
            for name, body in sections.items()
            if name.startswith(".text.")
        ]
        if kernels:
            nvcc = _NVCC.search(cubin)
            found[arch] = nvcc[1] if nvcc else "", kernels
    return found


def _kernel(body, relocations):
    words = _WORD.findall(body)
    for offset in _RELOCATION.findall(relocations):
        first = int(offset, 16) // 16 * _WORDS_OF_INSTRUCTION
        words[first : first + _WORDS_OF_INSTRUCTION] = ["00000000"] * _WORDS_OF_INSTRUCTION
    return _digest(" ".join(words))


def _sources(layer, version):
    """The files whose kernels a Version launches, its own first."""
    read = digests.with_includes({version.file})
    shared = [file for file in (resources.ROOT / "dev" / layer).glob("*.cu") if file.with_suffix(".h") in read]
    others = (resources.ROOT / "dev" / layer).glob("*/v*.cu") if digests.hands_on(version.file) else ()
    return list(dict.fromkeys([version.file, *sorted(shared), *sorted(others)]))


def _dump(object_file):
    return disassembly.cuobjdump("-elf", object_file)


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]
