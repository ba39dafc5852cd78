"""Converts Nsight Compute's metrics to this project's figures.

Parses `ncu --import F --page raw --csv --print-units base`: a row of metric names, a row of units, a row per kernel.
Metric names differ by architecture and release, so a figure lists its sources in order of preference. A figure without
a source in the report is None, never 0.
"""

import csv
import math
import re
from dataclasses import dataclass, field

# Lines: figure, unit, sources; an indented line continues the sources. A source is a metric, or a sum of metrics that
# counts if its first metric exists. "@elapsed" and "@active" stand for percent of peak, averaged over the kernel's run
# time or over the time in which the unit is active. A sector is 32 bytes; spilled registers live in local memory.
_FIGURES = """
duration s gpu__time_duration.sum gpu__time_duration.avg gpu__time_duration.max
sm % sm__throughput@elapsed
dram % gpu__dram_throughput@elapsed dram__throughput@elapsed
l2 % lts__throughput@elapsed
l1 % l1tex__throughput@elapsed l1tex__throughput@active
tensor % sm__pipe_tensor_cycles_active@elapsed sm__inst_executed_pipe_tensor@elapsed
    sm__pipe_tensor_op_hmma_cycles_active@elapsed sm__pipe_tensor_cycles_active@active
    sm__pipe_tensor_op_hmma_cycles_active@active sm__inst_executed_pipe_tensor_op_hmma@active
fma % sm__pipe_fma_cycles_active@elapsed sm__inst_executed_pipe_fma@elapsed sm__pipe_fma_cycles_active@active
    sm__inst_executed_pipe_fma@active
issue % sm__inst_issued@elapsed sm__issue_active@elapsed smsp__issue_active@elapsed sm__inst_issued@active
    smsp__issue_active@active
occupancy % sm__warps_active@active
theoretical_occupancy % sm__maximum_warps_per_active_cycle_pct
registers registers/thread launch__registers_per_thread
shared_memory bytes/block launch__shared_mem_per_block_dynamic+launch__shared_mem_per_block_static
    launch__shared_mem_per_block
waves waves launch__waves_per_multiprocessor
local_sectors sectors l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum+l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum
spill_requests requests derived__local_spilling_requests sass__inst_executed_register_spilling_mem_local
    sass__inst_executed_register_spilling
bank_conflicts wavefronts l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
    l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum+
    l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum+
    l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum
shared_wavefronts wavefronts l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
    l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum+l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum
l2_hit % lts__t_sector_hit_rate.pct
l1_hit % l1tex__t_sector_hit_rate.pct
dram_bytes bytes dram__bytes.sum dram__bytes_read.sum+dram__bytes_write.sum
sm_clock Hz gpc__cycles_elapsed.avg.per_second smsp__cycles_elapsed.avg.per_second sm__cycles_elapsed.avg.per_second
"""


def _sources(text):
    """{figure: (unit, [source, a list of metrics])}, parsed from _FIGURES."""
    text = re.sub("@(elapsed|active)", r".avg.pct_of_peak_sustained_\1", text)
    text = text.replace("+\n    ", "+").replace("\n    ", " ")
    figures = [line.split() for line in text.strip().splitlines()]
    return {figure: (unit, [source.split("+") for source in sources]) for figure, unit, *sources in figures}


SOURCES = _sources(_FIGURES)

# {resource: metric of the blocks that an SM can hold by it}; the smallest number is the limiter.
_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}

# {ncu's unit: factor to the unit of SOURCES}. ncu prints scaled units in places despite --print-units base.
_SCALES = {
    **dict.fromkeys(("ns", "nsecond"), 1e-9),
    **dict.fromkeys(("us", "usecond"), 1e-6),
    **dict.fromkeys(("ms", "msecond"), 1e-3),
    **dict.fromkeys(("kbyte", "kbyte/block", "khz"), 1e3),
    **dict.fromkeys(("mbyte", "mbyte/block", "mhz", "cycle/us", "cycle/usecond"), 1e6),
    **dict.fromkeys(("gbyte", "ghz", "cycle/ns", "cycle/nsecond"), 1e9),
}
_NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][-+]?\d+)?$")
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio$")
_SAMPLED_STALL = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+)$")
_SECTOR_BYTES = 32


class BadReport(Exception):
    """The reason that ncu's output is not usable, in one line."""


@dataclass
class Kernel:
    name: str
    grid: list  # [x, y, z]
    block: list
    figures: dict  # {figure: number or None}, in the units of SOURCES
    limits: dict  # {"registers": blocks that an SM can hold by that resource}
    stalls: list  # [(reason, share of a warp's time between two instructions)], the largest first, without "selected"
    raw: dict = field(default_factory=dict)  # {metric: (text, unit)} of all metrics

    @property
    def limiter(self):
        """Resources that limit the blocks of an SM: "registers", "registers, shared memory", or "" if unknown."""
        least = min(self.limits.values(), default=None)
        return ", ".join(name for name, blocks in self.limits.items() if blocks == least)


def kernels(text):
    """Kernels of ncu's raw page, in the order of their launches. Throws BadReport."""
    rows = list(csv.reader(_table(text)))
    if len(rows) < 2:
        raise BadReport("ncu wrote no table of metrics")
    header, units, launches = rows[0], rows[1], rows[2:]
    if "Kernel Name" not in header or len(units) != len(header):
        raise BadReport("ncu wrote a table that is none of its raw page")
    short = [row for row in launches if len(row) != len(header)]
    if short:
        raise BadReport(f"ncu's table breaks off: {len(short[0])} of {len(header)} columns")
    return [_kernel(dict(zip(header, zip(row, units)))) for row in launches]


def _table(text):
    """Lines of the table, from its header on: output of ncu and the program may precede it."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith(('"ID"', "ID,"))), len(lines))
    return [line for line in lines[begin:] if line.strip() and not line.startswith("==")]


def _kernel(raw):
    figures = {figure: _first(raw, sources) for figure, (_, sources) in SOURCES.items()}
    sectors = figures.pop("local_sectors")
    figures["spill_bytes"] = None if sectors is None else sectors * _SECTOR_BYTES
    figures["conflict_share"] = share(figures["bank_conflicts"], figures["shared_wavefronts"])
    return Kernel(
        name=_short_name(raw["Kernel Name"][0]),
        grid=_triple(raw, "Grid Size"),
        block=_triple(raw, "Block Size"),
        figures=figures,
        limits=_limits(raw),
        stalls=_stalls(raw),
        raw=raw,
    )


def share(part, whole):
    """100 * part / whole; None if either is None, 0 for a whole of 0."""
    if part is None or whole is None:
        return None
    return 100 * part / whole if whole > 0 else 0.0


def _first(raw, sources):
    for names in sources:
        values = [number(*raw[name]) for name in names if name in raw]
        if names[0] in raw and values[0] is not None:
            return sum(value for value in values if value is not None)
    return None


def number(text, unit=""):
    """A cell as a number in seconds, bytes or hertz; None if it is no number ("", "n/a", "no data", "nan")."""
    text = text.strip()
    if not _NUMBER.match(text):
        return None
    value = float(text.replace(",", "")) * _SCALES.get(unit.strip().lower(), 1)
    return value if math.isfinite(value) else None


def _limits(raw):
    limits = {name: number(*raw[metric]) for name, metric in _LIMITS.items() if metric in raw}
    return {name: int(blocks) for name, blocks in limits.items() if blocks is not None and blocks > 0}


def _stalls(raw):
    """[(reason, share)] of the stalls, the largest first: by warp states in hardware, else by samples of the PC."""
    for pattern in (_STALL, _SAMPLED_STALL):
        found = {}
        for metric, cell in raw.items():
            reason = pattern.match(metric)
            value = number(*cell) if reason and not reason[1].endswith("_not_issued") else None
            if value is not None:
                found[reason[1].replace("_", " ")] = value
        total = sum(found.values())
        if total > 0:
            found.pop("selected", None)  # a warp that issues waits for nothing
            return sorted(
                ((reason, value / total) for reason, value in found.items() if value > 0),
                key=lambda stall: (-stall[1], stall[0]),
            )
    return []


def _triple(raw, column):
    return [int(word) for word in re.findall(r"\d+", raw[column][0])] if column in raw else []


def _short_name(name):
    """A kernel's name without arguments, anonymous namespaces, "ladder::" and return type."""
    name = re.sub(r"(\(anonymous namespace\)|<unnamed>|unnamed>)::", "", name)
    depth = 0
    for at, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            name = name[:at]
            break
    return re.sub(r"^void ", "", name).replace("ladder::", "").strip()
