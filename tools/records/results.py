"""What a record says: of each version on each problem a Result. record_files.py reads them."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from registry import old_names

_ROUNDING_STEPS = 2  # of 0.1 ns, to which samples are written


def version_name(path, number):
    """A version's name in digests of machine code: "conv3x3/fprop/v07"."""
    return f"{path}/v{number:02d}"


@dataclass
class Times:
    """Of a version, or of the baseline's plan that was sampled in turn with it. Seconds and hertz."""

    seconds: list  # cold samples in the order taken
    clocks: list  # the SM clock right after each; nan where a timer does not know it
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
    """One way of a baseline's to do a problem."""

    name: str
    seconds: float  # as it was ranked; nan if it did not run
    reason: str  # why it did not
    library: str  # whose it is, without the release: "cuDNN"


@dataclass
class Result:
    """One version on one problem in one record."""

    record: "Record" = field(repr=False)
    path: str  # "conv3x3/fprop"
    version: int
    idea: str
    problem: str  # its line, dtype included
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
    baseline: str  # "cuDNN 9.19.0", or "" where there was none
    baseline_reason: str  # why there is none, or why some library is not among them
    search: str  # that the best plan comes from: "all", "kept" (of an earlier "all"), "listed" or "heuristic"
    tried_plans: list  # [Plan]; in a problem's first result of a run only
    best_plan: str
    heuristic_plan: str
    baseline_error: float
    baseline_times: "Times | None"
    heuristic_times: "Times | None"
    streaming: float  # seconds of a kernel that only moves the case's bytes; nan if none was timed
    is_dated: bool = False  # not known to be of today's machine code; current.mark() says so

    @property
    def key(self):
        return (self.record.device, self.path, self.version, self.problem)

    @property
    def version_name(self):
        return version_name(self.path, self.version)

    @property
    def machine_code(self):
        """Digest of its version's; "" where the record has none."""
        return self.record.machine_code.get(self.version_name, "")

    @property
    def label(self):
        return f"{self.path} v{self.version:02d} {self.problem}"

    @property
    def shape(self):
        """The problem without its dtype."""
        return " ".join(word for word in self.problem.split() if word != self.dtype)

    @property
    def cold(self):
        """Median seconds; nan where the version got no time."""
        return self.times.median if self.times else math.nan

    @property
    def warm(self):
        return self.times.warm_median if self.times else math.nan

    @property
    def baseline_cold(self):
        """Of its best plan in the same run."""
        return self.baseline_times.median if self.baseline_times else math.nan

    @property
    def baseline_warm(self):
        return self.baseline_times.warm_median if self.baseline_times else math.nan

    @property
    def fully_searched(self):
        """True where its baseline is the library's best plan, and where there is no baseline."""
        return not self.baseline or self.search in ("all", "kept")

    @property
    def heuristic_cold(self):
        """Of the plan that an untuned user gets."""
        return self.heuristic_times.median if self.heuristic_times else math.nan

    @property
    def plans(self):
        """[Plan] that the baseline tried for this problem, for whichever result of the record."""
        return self.record.plans.get((self.path, self.problem), [])

    @property
    def best_library(self):
        """Whose best_plan is, with its release; "" where there was none."""
        if not self.baseline:
            return ""
        owner = next((plan.library for plan in self.plans if plan.name == self.best_plan), "")
        owner = owner or old_names.library_of(self.best_plan, self.baseline)
        return next((each for each in self.baseline.split(", ") if each.split(" ")[0] == owner), owner)

    @property
    def copy_rate(self):
        """Bytes per second of a device copy, by the same program; nan if unknown."""
        runs = [run for run in self.record.programs.get(self.path, []) if run.get("calibration")]
        calibration = runs[-1]["calibration"] if runs else self.record.calibration or {}
        return calibration.get("copy_bytes_per_s") or math.nan

    @property
    def memory_bound(self):
        """Whether moving the least bytes takes longer than the arithmetic, at the device's peaks."""
        dram_rate = self.record.environment["device"].get("dram_bytes_per_s") or math.nan
        # The roofline is the longer of the two, so it is the bytes' own time.
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
    programs: dict  # {"conv3x3/fprop": how that program was run} where `./ladder record` wrote the file
    machine: "dict | None"  # what nvidia-smi said before and after
    kernels: list  # registers, shared memory and spills of every kernel of the build
    machine_code: dict  # {"conv3x3/fprop/v07": digest}; {} in older records
    results: list

    @property
    def short(self):
        return self.commit[:7] + ("+" if self.dirty else "")

    @property
    def slug(self):
        """The name of its device's folder in results/."""
        return self.environment["device"].get("slug", self.device)

    @cached_property
    def identity(self):
        """Equal for a record and a copy of its file, whatever their names: when and of which code, and the samples."""
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
        """Seconds between two readings of the clock that took the samples, by their differences; 0 where none shows."""
        steps = set()
        for result in self.results:
            values = sorted({round(1e10 * each) for each in result.times.seconds}) if result.times else []
            steps.update(high - low for low, high in zip(values, values[1:]))
        tick = min((step for step in steps if step > _ROUNDING_STEPS), default=0)
        on_clock = all(abs(step - tick * round(step / tick)) <= _ROUNDING_STEPS for step in steps) if tick else False
        return 1e-10 * tick if on_clock else 0.0

    @property
    def arch(self):
        """ "sm_90"."""
        return f"sm_{self.environment['device'].get('arch', '')}"

    @cached_property
    def plans(self):
        """{("conv3x3/fprop", problem): [Plan] that the baseline tried}"""
        return {(result.path, result.problem): result.tried_plans for result in self.results if result.tried_plans}

    @cached_property
    def fingerprint(self):
        """What a time depends on besides the source."""
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
