"""Digests of machine code, from cuobjdump's text and, where nvcc and cuobjdump are, from real objects."""

import subprocess
from types import SimpleNamespace

import pytest

from dev import disassembly, machine_code, resources
from profiling import where

MOVE = "0x00017a02 0x00000f00 0x00000f00 0x000fe200"
ADD = "0x03037211 0x00000000 0x078e40ff 0x001fc800"
EXIT = "0x0000794d 0x00000000 0x03800000 0x000fea00"


def cubin(*kernels, arch="sm_90a", nvcc="13.0.88"):
    """The text of `cuobjdump -elf` for kernels of (symbol, instructions, offsets of relocations)."""
    text = f"Fatbin elf code:\n================\narch = {arch}\nhost = linux\n\n.section .note.nv.tkinfo\n\tV{nvcc}\n"
    for symbol, lines, offsets in kernels:
        text += f".nv.constant0.{symbol}\n0x00000001 0x00000002\n\n"
        text += f".text.{symbol}\nlmem=0\tsmem=0\n" + "\n".join(lines) + "\n\n"
        text += f".section .rela.text.{symbol}\tRELA\n"
        text += "".join(f"{offset:#x}    other    R_CUDA_ABS32_LO_32    0x0\n" for offset in offsets) + "\n"
    return text + ".section .debug_frame\n0xffffffff 0x00000024\n"


def kernels(text, arch="sm_90"):
    return machine_code.parse(text)[arch][1]


def test_instructions_count_and_names_do_not():
    (digest,) = kernels(cubin(("_ZN3one1kE", [MOVE, EXIT], [])))
    assert len(digest) == 16
    assert kernels(cubin(("_ZN5other1kE", [MOVE, EXIT], []))) == [digest]
    assert kernels(cubin(("_ZN3one1kE", [ADD, EXIT], []))) != [digest]
    assert kernels(cubin(("_ZN3one1kE", [MOVE, MOVE, EXIT], []))) != [digest]


def test_what_a_relocation_changes_does_not_count():
    linked = [kernels(cubin(("k", [each, EXIT], [0x4]))) for each in (MOVE, ADD)]
    assert linked[0] == linked[1]
    assert kernels(cubin(("k", [MOVE, EXIT], [0x10]))) != kernels(cubin(("k", [ADD, EXIT], [0x10])))


def test_each_architecture_by_itself_and_a_specific_one_first():
    old, plain, specific = (
        cubin(("k", [each, EXIT], []), arch=arch, nvcc=nvcc)
        for each, arch, nvcc in ((MOVE, "sm_80", "12.9.1"), (MOVE, "sm_90", "13.0.88"), (ADD, "sm_90a", "13.0.88"))
    )
    for text in (old + plain + specific, specific + old + plain):
        found = machine_code.parse(text)
        assert {arch: nvcc for arch, (nvcc, _) in found.items()} == {"sm_80": "12.9.1", "sm_90": "13.0.88"}
        assert found["sm_90"] == machine_code.parse(specific)["sm_90"]
    assert machine_code.parse("") == {}


class Tree:
    """A tree with the layer toy, and a build of it whose objects hold the text that cuobjdump would show."""

    def __init__(self, root, monkeypatch):
        self.root = root
        monkeypatch.setattr(resources, "ROOT", root)
        monkeypatch.setattr(machine_code.digests.paths, "ROOT", root)
        monkeypatch.setattr(disassembly, "cuobjdump", lambda _, file: file.read_text())

    def add(self, name, instruction, source=""):
        """Returns the source's file."""
        file = self.root / "dev" / "toy" / name
        built = resources.object_of(file, self.root / "build")
        for path, text in ((file, source), (built, cubin(("k", [instruction], [])) if instruction else "")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return file

    def digests(self, *files):
        versions = [SimpleNamespace(number=int(file.name[1:3]), file=file) for file in files]
        passes = [SimpleNamespace(layer="toy", path="toy/fprop", versions=versions)]
        return machine_code.of_build(self.root / "build", passes).get("sm_90", {"versions": {}})["versions"]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    return Tree(tmp_path, monkeypatch)


def test_a_version_has_the_digest_of_its_object(tree):
    first, second = (tree.add(f"fprop/v0{number}_a.cu", MOVE) for number in (1, 2))
    before = tree.digests(first, second)
    assert list(before) == ["toy/fprop/v01", "toy/fprop/v02"]
    tree.add("fprop/v02_a.cu", ADD)
    after = tree.digests(first, second)
    assert [after[name] == before[name] for name in before] == [True, False]
    resources.object_of(second, tree.root / "build").unlink()
    assert list(tree.digests(first, second)) == ["toy/fprop/v01"]


def test_a_version_that_hands_on_its_work_counts_with_its_layer(tree):
    does_it = tree.add("fprop/v01_a.cu", MOVE)
    asks = tree.add("fprop/v02_a.cu", "", "find_version(1);")
    before = tree.digests(asks)
    assert list(before) == ["toy/fprop/v02"]
    tree.add("fprop/v01_a.cu", ADD)
    assert tree.digests(asks) != before
    resources.object_of(does_it, tree.root / "build").unlink()
    assert tree.digests(asks) == {}


def test_kernels_that_versions_share_count_in_those_that_include_them(tree):
    tree.add("shared.cu", MOVE)
    tree.add("shared.h", "")
    shares = tree.add("fprop/v01_a.cu", MOVE, '#include "dev/toy/shared.h"\n')
    alone = tree.add("fprop/v02_a.cu", MOVE)
    before = tree.digests(shares, alone)
    tree.add("shared.cu", ADD)
    after = tree.digests(shares, alone)
    assert [after[name] == before[name] for name in before] == [False, True]


SOURCE = """\
namespace {
// A comment.
__device__ float table[4];
__global__ void scale_kernel(float* y) { const float by = 2.5f; y[threadIdx.x] = by * y[threadIdx.x] + table[threadIdx.x]; }
}  // namespace
void scale(float* y) { scale_kernel<<<1, 4>>>(y); }
"""


@pytest.mark.skipif(not (where.find("nvcc") and where.find("cuobjdump")), reason="no nvcc, or no cuobjdump")
def test_of_real_objects_comments_and_names_do_not_count(tmp_path):
    def digest(name, source):
        file = tmp_path / name / "scale.cu"
        file.parent.mkdir()
        file.write_text(source)
        command = [where.find("nvcc"), "-arch=sm_90a", "-c", file, "-o", file.with_suffix(".o")]
        subprocess.run(command, check=True, capture_output=True)
        return kernels(disassembly.cuobjdump("-elf", file.with_suffix(".o")))

    made = digest("first", SOURCE)
    assert len(made) == 1
    assert digest("renamed", SOURCE.replace("comment", "remark").replace("by", "factor")) == made
    assert digest("changed", SOURCE.replace("2.5f", "3.5f")) != made
