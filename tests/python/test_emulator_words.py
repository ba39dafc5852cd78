"""CUDA features that the emulator lacks: the compiler's message names the kernel's line and the alternative."""

import json
import shlex
import subprocess

import pytest

from cli import build

pytestmark = pytest.mark.skipif(
    not (build.folder("emulator") / "compile_commands.json").exists(), reason="no emulator build"
)


def errors_of(tmp_path, body):
    """Returns the compiler's errors for a kernel with this body, which begins on line 3."""
    commands = json.loads((build.folder("emulator") / "compile_commands.json").read_text())
    command = next(c for c in commands if "/dev/silu/" in c["file"] and c["file"].endswith(".cu"))
    source = tmp_path / "kernel.cu"
    source.write_text(f'#include "core/device.h"\n__global__ void kernel(float* y) {{\n{body}\n}}\n')
    words = shlex.split(command["command"])
    # Drop the precompiled header, which another compilation may be about to write.
    words = [
        w
        for w in words[: words.index("-o")]
        if not w.endswith("cmake_pch.hxx") and w not in ("-include", "-Winvalid-pch")
    ]
    done = subprocess.run(
        [*words, "-fsyntax-only", "-x", "c++", str(source)], cwd=command["directory"], capture_output=True, text=True
    )
    assert (done.returncode == 0) == ("error:" not in done.stderr), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "body, says",
    [
        ("__shared__ float tile[32];", "use LADDER_SHARED(type, name, extents)"),
        ("extern __shared__ float tile[];", "LADDER_DYN_SMEM(name)"),
        ('asm volatile("membar.gl;");', "write a function of dev/ptx/"),
    ],
)
def test_a_word_without_a_meaning_is_an_error_at_its_line(tmp_path, body, says):
    errors = errors_of(tmp_path, body)
    assert "kernel.cu:3:" in errors and says in errors, errors


def test_what_the_emulator_has_compiles(tmp_path):
    assert not errors_of(tmp_path, "assert(y); y[0] = clock64() > 0; __reduce_add_sync(~0u, 1);")
