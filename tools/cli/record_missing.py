"""`./ladder record --missing` and `--stale`: what has no record on this GPU, or none of today's machine code, by the plan of
records/missing.py.

A record is made of the groups of results that were whole when the time was up, at an interruption, or at the end; the next
call goes on with what is missing still. --list needs no GPU.
"""

import itertools
import json
import shutil
import time
from dataclasses import dataclass

from dev import machine_code
from records import missing, record_files
from registry import listing, selection

from . import build, device, files, paths, say
from .device import read_machine
from .errors import Failure, UsageError
from .options import INTERRUPTED
from .progress import Progress
from .recording import Recording, build_programs


@dataclass(frozen=True)
class Gaps:
    """Results that the records of a device lack. `groups` are those to record, `unbuilt` are versions without today's code."""

    device: str
    states: dict  # of missing.states()
    groups: list
    unbuilt: int

    def line(self, what):
        results = sum(len(group.jobs) for group in self.groups)
        if not results and self.unbuilt:
            return f"nothing is known to be stale on {self.device}"
        if not results:
            return f"nothing to record: {self.device} has records of all {len(self.states)} results{what}"
        return (
            f"{results} of {len(self.states)} results are to be recorded on {self.device}, about {minutes(self.groups)}"
        )


def main(options, chosen, arguments):
    """`chosen`: {"layer/pass": Versions}; `arguments`: those of the command line."""
    started = time.monotonic()
    slug = _device(options)
    model, why = device.gpu()
    if options.list:
        return _list(options, chosen, slug, arguments)
    if model is None:
        raise Failure(f"record needs a GPU: {why}; --list says what it would record without one")
    if slug != device.slug():
        raise UsageError(f"--device {slug}: the GPU here is {device.slug()}; --list needs no GPU")
    say.line(f"GPU build ({model})")
    programs, kernels, code = build_programs(chosen)
    recording = Bounded(options, [], programs, options.results, kernels, code, read_machine)
    recording.finish_killed()
    gaps = find(options, chosen, slug, recording.digests if options.stale else None)
    print(*missing.plan_table(gaps.groups), sep="\n", flush=True)
    say.line(gaps.line(_whose(options)))
    if not gaps.groups:
        return 0
    recording.parts = [_part(options, group) for group in gaps.groups]
    recording.deadline = started + 60 * options.minutes if options.minutes else None
    return recording.run()


def find(options, chosen, slug, digests):
    """The Gaps of a device by the `digests` of today's code, or, where these are None, by any record."""
    records, bad = record_files.load_all(options.results)
    for error in bad:
        say.line(f"not counted: {error}")
    only_lines = bool(options.set or options.problem)
    try:
        cases = missing.wanted(
            paths.ROOT, options.results, chosen, slug, records, _lines(options, chosen), options.dtype, only_lines
        )
    except record_files.BadRecord as error:
        raise Failure(str(error)) from None
    if not cases:
        raise UsageError("no version that was asked for has a problem of that dtype")
    states = missing.states(cases, records, slug, digests)
    due = {case: phase for case, phase in cases.items() if states[case] in (missing.DATED, missing.NONE)}
    unbuilt = {case[:2] for case, state in states.items() if state == missing.UNKNOWN}
    return Gaps(slug, states, missing.groups(due, chosen, records), len(unbuilt))


def minutes(groups):
    seconds = round(sum(group.seconds for group in groups))
    return f"{seconds // 60}:{seconds % 60:02d}"


class Bounded(Recording):
    """A recording of what fits into the time, whose record is of the parts that are whole."""

    deadline = None  # of time.monotonic()

    def run(self):
        parts, plan = self._begin()
        progress = Progress({part.name: part.planned for part in parts}, self.estimates)
        status, late, began, expected = 0, 0, time.monotonic(), 0.0
        try:
            for part in parts:
                now = time.monotonic()
                pace = max(1.0, (now - began) / expected) if expected else 1.0
                if self.deadline and now + pace * part.seconds > self.deadline:
                    late += len(part.planned)
                    continue
                expected += part.seconds
                try:
                    part.run(self.programs, plan, progress)
                except Failure as failure:
                    say.line(failure)
                    status = 1
        except KeyboardInterrupt:
            status = INTERRUPTED
        say.close()
        if late:
            say.line(f"{late} results would not have fitted into --minutes {self.options.minutes:g}")
        return max(status, self._finish(parts, plan))

    def finish_killed(self):
        """Makes the records of what killed runs have left whole."""
        for file in sorted(self.folder.glob("*.partial/plan.json")):
            plan = json.loads(file.read_text(encoding="utf-8"))
            if plan.get("bounded"):
                self._set_partial(file.parent)
                self._finish(self._parts(plan), plan)

    def _begin(self):
        for number in itertools.count(1):
            suffix = f"-{number}" if number > 1 else ""
            self._set_partial(self._partial_of_today((self.options.tag or "current") + suffix))
            if not self._taken() and not self.partial.exists():
                return self._new_plan(bounded=True)

    def _finish(self, parts, plan):
        whole = [part for part in parts if part.file.exists()]
        if whole:
            return super()._finish(whole, plan)
        shutil.rmtree(self.partial)
        say.line("no group of results was whole: nothing is recorded")
        return 0


def _list(options, chosen, slug, arguments):
    digests = None
    if options.stale:
        there = listing.read(paths.ROOT)
        code = machine_code.of_build(build.folder("cuda"), [there.find(path) for path in chosen])
        digests = code.get(_arch(options, slug, code), {"versions": {}})["versions"]
    gaps = find(options, chosen, slug, digests)
    print(*missing.table(gaps.states), "", *missing.plan_table(gaps.groups), "", sep="\n")
    if gaps.unbuilt:
        print(f"unknown: {gaps.unbuilt} versions have no object in build/cuda; first: ./ladder build --preset cuda")
    command = " ".join(["./ladder", "record", *(word for word in arguments if word != "--list")])
    print(gaps.line(_whose(options)) + (f"; run {command}" if gaps.groups else ""))
    return 0


def _arch(options, slug, code):
    """The architecture of a device by its newest record, else the newest in `code`."""
    records = record_files.load_all(options.results, slug)[0]
    return records[-1].arch if records else max(code, default="")


def _whose(options):
    return " of today's machine code" if options.stale else ""


def _device(options):
    """The slug of the GPU whose records are asked about."""
    known = missing.devices(options.results)
    if options.device and options.device not in known and options.device != device.slug():
        raise UsageError(
            f"--device {options.device}: no record of it; there are those of: {', '.join(known) or 'none yet'}"
        )
    slug = options.device or device.slug()
    if not slug and not known:
        raise UsageError(f"record: no GPU here, and {files.shown(options.results)} has no record of one")
    records = record_files.load_all(options.results)[0] if not slug and len(known) > 1 else []
    return slug or (record_files.newest_device(records) if records else known[0])


def _lines(options, chosen):
    """{layer: problem lines of the phase of all versions}."""
    there = listing.read(paths.ROOT)
    layers = {path.split("/")[0]: there.layer(path.split("/")[0]) for path in chosen}
    if options.problem:
        return {name: [selection.problem(layer, options.problem)] for name, layer in layers.items()}
    return {name: list(layer.sets.get(options.set or "perf", {}).values()) for name, layer in layers.items()}


def _part(options, group):
    """The arguments of a Part."""
    numbers = ",".join(str(int(label[1:3])) for label in group.versions)
    words = ["--version", numbers, *(word for line in group.problems for word in ("--problem", line)), *options.own]
    seed = ["--seed", str(options.seed)] if options.seed is not None else []
    return [group.path, group.dtype, [*words, *seed], group.jobs, group.seconds]
