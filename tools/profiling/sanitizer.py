"""Outcome of a compute-sanitizer run: clean, findings, or neither."""

import re
from dataclasses import asdict, dataclass, field

from cli.tools import last_line

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")

# Extra flags per tool. By default synccheck tracks as many mbarriers as the compiler counts, too few for a ring of
# them.
FLAGS = {"synccheck": ["--num-cuda-barriers", "65536"]}
EXIT_ON_FINDING = 9

# {tool: first words of its report on its planted fault (tests/planted)}
MARKS = {
    "memcheck": "Invalid __global__ write",
    "racecheck": "Race reported",
    "synccheck": "Barrier error detected",
    "initcheck": "Uninitialized __global__ memory read",
}

_SUMMARY = re.compile(r"^=+ (?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: (\d+) hazards? displayed)", re.MULTILINE)
_LINES_OF_FINDINGS = 12


@dataclass
class Outcome:
    status: str  # "clean", "findings", "failed" (the program failed, without findings) or "broken"
    findings: int  # number that the tool reports
    reason: str = ""  # one line; empty for clean
    report: list = field(default_factory=list)  # the first lines of the findings

    def json(self):
        return asdict(self)


def outcome(said, code):
    """The Outcome of the tool's output and exit status `code`, None after a timeout."""
    found = _SUMMARY.findall(said)
    if code is None:
        return Outcome("broken", 0, "it took too long and was stopped")
    if not found:
        return Outcome("broken", 0, f"no summary, exit status {code}: {last_line(said)}")
    count = sum(int(errors or hazards) for errors, hazards in found)
    if count:
        return Outcome("findings", count, f"{count} finding{'s' if count > 1 else ''}", _report(said))
    if code == EXIT_ON_FINDING:
        return Outcome("findings", 0, f"exit status {code} without a finding in the summary", _report(said))
    if code != 0:
        return Outcome("failed", 0, f"the program's exit status was {code}: {last_line(_own(said))}")
    return Outcome("clean", 0)


def proof(tool, fault, fault_said, clean):
    """The reason not to trust `tool`; "" if it reported its planted fault, by kind and kernel, and nothing on the clean
    twin.

    `fault`, `clean`: Outcomes of tests/planted; `fault_said`: the tool's output on the fault.
    """
    kernel = f"planted_{tool}_kernel"
    if fault.status != "findings" or fault.findings == 0:
        return f"did not fire on its planted fault: {fault.reason or 'it found nothing'}"
    if MARKS[tool] not in fault_said or kernel not in fault_said:
        return f"reported something else than its planted fault: {(fault.report or ['nothing'])[0]}"
    if clean.status != "clean":
        return f"is not silent on the clean twin: {clean.reason}"
    return ""


def _report(said):
    lines = [re.sub(r"^=+ ?", "", line).rstrip() for line in said.splitlines() if line.startswith("=====")]
    lines = [
        line
        for line in lines
        if line
        and not line.startswith("COMPUTE-SANITIZER")
        and "Host Frame" not in line
        and "Saved host backtrace" not in line
        and "SUMMARY" not in line
    ]
    return lines[:_LINES_OF_FINDINGS]


def _own(said):
    return "\n".join(line for line in said.splitlines() if not line.startswith("====="))
