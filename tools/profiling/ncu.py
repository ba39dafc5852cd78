"""Runs Nsight Compute on one launch, and reports a failure's reason in one line."""

import os
import re

from cli import run, tools
from cli.errors import Failure, UsageError

from . import where

_INSTALL = (
    "no Nsight Compute (ncu) on PATH, in CUDA_HOME/bin, /usr/local/cuda*/bin or /opt/nvidia/nsight-compute: it "
    "is part of the CUDA toolkit, alone the package cuda-nsight-compute-13-0 of NVIDIA's apt and dnf "
    "repositories, and without root conda's `nvidia::nsight-compute`"
)
_PERMISSION = (
    "Nsight Compute may not read this GPU's counters (ERR_NVGPUCTRPERM): load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0 (`options nvidia NVreg_RestrictProfilingToAdminUsers=0` in "
    "/etc/modprobe.d/, then reboot), or run as root; a container needs --cap-add SYS_ADMIN"
)


def find():
    """Path of ncu. Throws Failure with install instructions."""
    path = where.find("ncu", "/opt/nvidia/nsight-compute/*/ncu")
    if path is None:
        raise Failure(_INSTALL)
    return path


def version(ncu):
    """Version of ncu: "2025.3.1.0", or "" if unknown."""
    found = re.search(r"Version (\d+(\.\d+)+)", tools.captured(ncu, "--version").stdout)
    return found[1] if found else ""


def profile(ncu, layer, program, report, log):
    """Profiles `program` (a command that launches once, in a range named after `layer`) into the file `report`.

    Leaves the clocks alone: ncu's default, base clocks, are not those of the benchmark. Flushes caches, like the
    benchmark.
    """
    flags = (
        f"--clock-control none --nvtx --nvtx-include regex:{layer}.*/ --set full --import-source yes --force-overwrite"
    )
    command = [ncu, *flags.split(), "--export", str(report), *program]
    try:
        run.logged("profiling, each kernel many times over", command, log, tools.environment())
    except Failure as failure:
        raise diagnosis(log.read_text(errors="replace"), os.path.basename(program[0])) or failure from None
    said = log.read_text(errors="replace")
    if not report.exists():
        raise diagnosis(said, os.path.basename(program[0])) or Failure(
            f"ncu wrote no report; it said: {tools.last_line(said, otherwise='nothing')}"
        )


def diagnosis(said, program):
    """The exception for a failed run, by the output `said` of ncu and the program; None if the reason is unknown."""
    if "ERR_NVGPUCTRPERM" in said:
        return Failure(_PERMISSION)
    own = [line for line in said.splitlines() if re.match(rf"\S*{re.escape(program)}: ", line)]
    code = re.search(r"returned an error code \((\d+)\)", said)
    if own:
        return UsageError(own[-1]) if code and code[1] == "2" else Failure(own[-1])
    skipped = [line for line in said.splitlines() if "  SKIP: " in line]
    if skipped:
        return UsageError(" ".join(skipped[-1].split()))
    errors = [line for line in said.splitlines() if line.startswith("==ERROR==")]
    if errors:
        return Failure(f"ncu: {errors[-1][len('==ERROR==') :].strip()}")
    if "No kernels were profiled" in said:
        return Failure("ncu saw no launch in its range: was the program built with NVTX (nvtx3/nvToolsExt.h)?")
    return None


def raw_page(ncu, report):
    """Every metric of `report` as CSV, in base units. Throws Failure."""
    done = tools.captured(ncu, "--import", report, *"--page raw --csv --print-units base".split())
    if done.returncode != 0:
        raise Failure(f"ncu --import failed: {tools.last_line(done.stderr or done.stdout, otherwise='nothing')}")
    return done.stdout
