"""Machine code and PTX of a version's kernels: SASS by cuobjdump from its object file, PTX by nvcc from its source."""

import os
import re
import shlex
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cli import build, lock, paths, tools, wheels
from cli.errors import Failure
from profiling import where

# {column of the instruction mix: opcodes that it counts}
CLASSES = {
    "fp32": "FFMA FADD FMUL FFMA2",
    "fp16": "HFMA2 HADD2 HMUL2",
    "HMMA": "HMMA",
    "HGMMA": "HGMMA",
    "LDG": "LDG",
    "STG": "STG",
    "LDGSTS": "LDGSTS",
    "UTMALDG": "UTMALDG",
    "UTMASTG": "UTMASTG",
    "LDS": "LDS",
    "LDSM": "LDSM",
    "STS": "STS STSM",
    "LDL+STL": "LDL STL",
    "SHFL": "SHFL",
    "atomic": "ATOM ATOMG ATOMS RED REDG REDUX",
    "MUFU": "MUFU",
    "BAR": "BAR",
    "SYNCS": "SYNCS",
    "branch": "BRA BRX JMP JMX CALL RET",
}
_CLASS_OF = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes.split()}

_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_OPCODE = re.compile(r"(?:@!?\w+ )?(\w+)")
_MOVE = re.compile(r"HFMA2\S* \w+, -RZ, RZ,")  # moves a constant; the compiler uses the idle fp16 pipe
_JUMPS = re.compile(r"\b(BRA|BRX|BSSY|CALL|JMP|JMX|RET|WARPSYNC)\b")
_INFO = re.compile(r"^\s*\.nv\.info\.(\w+)", re.MULTILINE)
_MAX_THREADS = re.compile(r"EIATTR_(?:MAX_THREADS|REQNTID)\s+Format:\s+\w+\s+Value:\s+(.*)")
_ENTRY = re.compile(r"^(?:\.\w+ )*\.entry (\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Code:
    """Machine code of one kernel on one architecture."""

    lines: tuple  # instructions as text, without register numbers and jump targets
    mix: Counter  # {class of CLASSES or "all": number of instructions}


def sass(object_file, arch):
    """{kernel's symbol: Code} of an object file."""
    return parse_sass(cuobjdump("-sass", "-arch", arch, object_file))


def parse_sass(text):
    functions, current = {}, []
    for line in text.splitlines():
        function = _FUNCTION.match(line)
        if function:
            current = functions.setdefault(function[1], [])
        elif instruction := _INSTRUCTION.match(line):
            current.append(instruction[1])
    return {name: _code(_without_padding(lines)) for name, lines in functions.items()}


def block_sizes(object_file, arch):
    """{kernel's symbol: maximum threads per block} of kernels with launch bounds."""
    return parse_block_sizes(cuobjdump("-elf", "-arch", arch, object_file))


def parse_block_sizes(text):
    sections = _INFO.split(text)
    found = {}
    for name, section in zip(sections[1::2], sections[2::2]):
        if most := _MAX_THREADS.search(section):
            x, y, z = (int(word, 0) for word in most[1].split())
            found[name] = x * y * z
    return found


def ptx(source, object_file, arch):
    """{kernel's symbol: lines of PTX} of a source, compiled with the build's flags."""
    folder = build.folder("cuda")
    said = tools.captured(tools.ninja(), "-C", folder, "-t", "commands", "-s", object_file.relative_to(folder)).stdout
    with tempfile.TemporaryDirectory() as aside:
        made = Path(aside) / "kernels.ptx"
        done = tools.captured(*ptx_command(said.strip().splitlines()[-1], arch, made), cwd=folder)
        if done.returncode != 0:
            raise Failure(f"{source.name}: no PTX: {tools.last_line(done.stderr, done.stdout)}")
        return parse_ptx(made.read_text(encoding="utf-8"))


def ptx_command(command, arch, output):
    """Converts the command that compiles a source to an object file into one that writes PTX for one architecture."""
    words = shlex.split(command)
    words = words[next(at for at, word in enumerate(words) if Path(word).name == "nvcc") :]
    kept, skip = [], False
    for word in words:
        if not skip and word not in ("-MD", "-c", "-o", "-MT", "-MF") and "--generate-code" not in word:
            kept.append(word)
        skip = word in ("-o", "-MT", "-MF")
    return [*kept, f"-arch={arch.replace('sm_', 'compute_')}", "-ptx", "-o", str(output)]


def parse_ptx(text):
    parts = _ENTRY.split(text)
    return {name: tuple(_plain_ptx(body, name)) for name, body in zip(parts[1::2], parts[2::2])}


def _plain_ptx(body, name):
    for line in body[: body.find("\n}")].replace(f"{name}_", "").splitlines():
        line = re.sub(r"(%[a-z]+)\d+", r"\1", line.split("//")[0]).replace("\t", "    ").rstrip()
        if line.strip() and not line.lstrip().startswith((".loc", ".file")):
            yield re.sub(r"\$L__\w+", "$L", line)


def _code(instructions):
    opcodes = [_OPCODE.match(line)[1] for line in instructions if not _MOVE.search(line)]
    mix = Counter(_CLASS_OF[opcode] for opcode in opcodes if opcode in _CLASS_OF)
    mix["all"] = len(instructions)
    return Code(tuple(_plain_sass(line) for line in instructions), mix)


def _plain_sass(line):
    if _JUMPS.search(line):
        line = re.sub(r"\b0x[0-9a-f]+\b", "target", line)
    return re.sub(r"\b(U?[RPB])\d+\b(\.reuse)?", r"\1", line)


def _without_padding(instructions):
    """Drops a kernel's trailing jump to itself and the NOPs after it."""
    while instructions and instructions[-1].startswith(("NOP", "BRA")):
        instructions = instructions[:-1]
    return instructions


def fetched():
    """Paths (cuobjdump, nvdisasm); fetches them on first use, in one thread and process at a time."""
    if not all(_found()):
        with lock.held(paths.PRIVATE / "disassembler.lock"):
            if not all(_found()):
                wheels.install("NVIDIA's disassembler (5 MB)", wheels.DISASSEMBLER, "disassembler", paths.SETUP_LOG)
    return _found()


def _found():
    return where.find("cuobjdump"), where.find("nvdisasm")


def cuobjdump(*arguments):
    found, disassembler = fetched()
    path = os.pathsep.join([str(Path(disassembler).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [found, *map(str, arguments)], capture_output=True, text=True, env={**tools.environment(), "PATH": path}
    )
    if done.returncode != 0:
        raise Failure(f"cuobjdump: {tools.last_line(done.stderr, done.stdout)}")
    return done.stdout
