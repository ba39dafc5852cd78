"""Data classes of a record: one Result per version and problem. record_files.py reads them."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from registry import old_names

_ROUNDING_STEPS = 2  # in units of 0.1 ns, to which samples are rounded


def version_name(path, number):
    """A version's name in digests of machine code: "conv3x3/fprop/v07"."""
    return f"{path}/v{number:02d}"


@dataclass
class Times:
    """Times of a version, or of the baseline's plan that was sampled in turn with it. In seconds and hertz."""

    seconds: list  # cold samples in the order taken
    clocks: list  # SM clock right after each cold sample; nan if the timer does not know it
    warm: list
    median: float  # of the cold samples, with its 95 % interval
    low: float
    high: float
    warm_median: float  # nan if there are no warm samples
    throttled: int

    @property
    def cycles(self):
        return [seconds * clock for seconds, clock in zip(self.seconds, self.clocks)]


@dataclass
class Plan:
    """A library's plan for a problem."""

    name: str
    seconds: float  # time by which plans were ranked; nan if it did not run
    reason: str  # why it did not run
    library: str  # its library, without the release: "cuDNN"


@dataclass
class Result:
    """One version on one problem in one record."""

    record: "Record" = field(repr=False)
    path: str  # "conv3x3/fprop"
    version: int
    idea: str
    problem: str  # problem line with dtype
    dtype: str
    status: str  # one of record_files.STATUSES
    reason: str
    error: float  # ||y - ref|| / ||ref||; nan if it was not checked
    worst_over_bound: float
    digest: str  # of the outputs; "" in older records
    command: str
    seconds_spent: float  # on the result, the baseline's search included; nan in older records
    flops: float
    min_bytes: float
    roofline: float  # seconds; nan if the device's peak is unknown
    times: "Times | None"
    baseline: str  # "cuDNN 9.19.0"; "" without a baseline
    baseline_reason: str  # why there is no baseline, or why a library is missing from it
    search: str  # search that found the best plan: "all", "kept" (of an earlier "all"), "listed" or "heuristic"
    tried_plans: list  # [Plan]; in a problem's first result of a run only
    best_plan: str
    heuristic_plan: str
    baseline_error: float
    baseline_times: "Times | None"
    heuristic_times: "Times | None"
    streaming: float  # seconds of a kernel that only moves the case's bytes; nan if none was timed
    is_dated: bool = False  # not known to be of today's machine code; set by current.mark()

    @property
    def key(self):
        return (self.record.device, self.path, self.version, self.problem)

    @property
    def version_name(self):
        return version_name(self.path, self.version)

    @property
    def machine_code(self):
        """Digest of the version's machine code; "" if the record has none."""
        return self.record.machine_code.get(self.version_name, "")

    @property
    def label(self):
        return f"{self.path} v{self.version:02d} {self.problem}"

    @property
    def shape(self):
        """The problem line without dtype."""
        return " ".join(word for word in self.problem.split() if word != self.dtype)

    @property
    def cold(self):
        """Median of the cold samples, seconds; nan without times."""
        return self.times.median if self.times else math.nan

    @property
    def warm(self):
        return self.times.warm_median if self.times else math.nan

    @property
    def baseline_cold(self):
        """Cold median of the baseline's best plan in the same run, seconds; nan without."""
        return self.baseline_times.median if self.baseline_times else math.nan

    @property
    def baseline_warm(self):
        return self.baseline_times.warm_median if self.baseline_times else math.nan

    @property
    def fully_searched(self):
        """Returns True if the baseline's plan is the best of a full search, or if there is no baseline."""
        return not self.baseline or self.search in ("all", "kept")

    @property
    def heuristic_cold(self):
        """Cold median of the library heuristic's plan, which a user without tuning gets, in seconds; nan without."""
        return self.heuristic_times.median if self.heuristic_times else math.nan

    @property
    def plans(self):
        """[Plan] that the baseline tried for this problem, found in any result of the record."""
        return self.record.plans.get((self.path, self.problem), [])

    @property
    def best_library(self):
        """Library of best_plan, with its release; "" without a baseline."""
        if not self.baseline:
            return ""
        owner = next((plan.library for plan in self.plans if plan.name == self.best_plan), "")
        owner = owner or old_names.library_of(self.best_plan, self.baseline)
        return next((each for each in self.baseline.split(", ") if each.split(" ")[0] == owner), owner)

    @property
    def copy_rate(self):
        """Bytes per second of a device copy, measured by the same program; nan if unknown."""
        runs = [run for run in self.record.programs.get(self.path, []) if run.get("calibration")]
        calibration = runs[-1]["calibration"] if runs else self.record.calibration or {}
        return calibration.get("copy_bytes_per_s") or math.nan

    @property
    def memory_bound(self):
        """Returns True if moving the least bytes takes longer than the arithmetic, at the device's peaks."""
        dram_rate = self.record.environment["device"].get("dram_bytes_per_s") or math.nan
        # The roofline is the longer of both times: memory-bound if it equals the time of the bytes.
        return self.roofline <= self.min_bytes / dram_rate * (1 + 1e-9)


@dataclass
class Record:
    file: Path
    device: str  # slug, the folder's name: "h200"
    device_name: str
    created: str  # ISO 8601
    commit: str
    dirty: bool
    environment: dict
    calibration: "dict | None"
    programs: dict  # {"conv3x3/fprop": [run of its program]}, if `./ladder record` wrote the file
    machine: "dict | None"  # nvidia-smi's values before and after
    kernels: list  # registers, shared memory and spills of every kernel of the build
    machine_code: dict  # {"conv3x3/fprop/v07": digest}; {} in older records
    results: list

    @property
    def short(self):
        return self.commit[:7] + ("+" if self.dirty else "")

    @property
    def slug(self):
        """Name of the device's folder in results/, as the record states it."""
        return self.environment["device"].get("slug", self.device)

    @cached_property
    def identity(self):
        """Equal for a record and a copy of its file under any name: date, commit, machine code and samples."""
        measured = [
            (each.path, each.version, each.problem, each.status, tuple(each.times.seconds if each.times else ()))
            for each in self.results
        ]
        return (
            self.created,
            self.commit,
            self.dirty,
            tuple(sorted(self.machine_code.items())),
            tuple(sorted(measured)),
        )

    @cached_property
    def tick(self):
        """Resolution of the timer, in seconds, found from the differences of the samples; 0 if none shows."""
        steps = set()
        for result in self.results:
            values = sorted({round(1e10 * each) for each in result.times.seconds}) if result.times else []
            steps.update(high - low for low, high in zip(values, values[1:]))
        tick = min((step for step in steps if step > _ROUNDING_STEPS), default=0)
        on_clock = all(abs(step - tick * round(step / tick)) <= _ROUNDING_STEPS for step in steps) if tick else False
        return 1e-10 * tick if on_clock else 0.0

    @property
    def arch(self):
        """Architecture of the device: "sm_90"."""
        return f"sm_{self.environment['device'].get('arch', '')}"

    @cached_property
    def plans(self):
        """{("conv3x3/fprop", problem): [Plan that the baseline tried]}"""
        return {(result.path, result.problem): result.tried_plans for result in self.results if result.tried_plans}

    @cached_property
    def fingerprint(self):
        """Conditions that a time depends on, other than the source."""
        device = self.environment["device"]
        libraries = sorted({result.baseline for result in self.results if result.baseline})
        return {
            "device": self.device_name,
            "uuid": device.get("uuid"),
            "driver": device.get("driver"),
            "CUDA": device.get("runtime"),
            "SM clock": device.get("max_sm_clock_hz"),
            "compiler": self.environment.get("compiler"),
            "flags": self.environment.get("flags"),
            "library": ", ".join(libraries),
        }
