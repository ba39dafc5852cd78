"""A recording: the bench programs' runs, one after the other, and the file that their results are joined into."""

import datetime
import json
import os
import shutil
import subprocess
import time
from collections import Counter

from dev import disassembly, machine_code, resources
from records import current, record_files
from records.results import version_name
from registry import listing

from . import build, files, paths, say, tools
from .errors import Failure, UsageError
from .options import INTERRUPTED
from .progress import Progress, seconds_spent


def build_programs(chosen):
    """Builds the bench programs of {"layer/pass": Versions}: ({"layer/pass": its program}, kernels of
    resources.collect(), digests of machine_code.of_build())."""
    # Programs run in ROOT and are named from there, so that the commands in a record work in anybody's checkout.
    folder = build.folder("cuda")
    disassembly.fetched()  # now, as a machine without a network had better say so before the build
    programs = {path: folder.relative_to(paths.ROOT) / f"bench_{path.split('/')[0]}" for path in chosen}
    build.build("cuda", targets=sorted({program.name for program in programs.values()}))
    passes = [a_pass for a_pass in listing.read(paths.ROOT).passes if a_pass.path in programs]
    return programs, resources.collect(folder)[0], machine_code.of_build(folder, passes)


class Recording:
    """One recording from its first program to its file. `parts` are the arguments of Parts but for the folder,
    `programs` the bench programs of each "layer/pass", `code` the digests of machine_code.of_build()."""

    def __init__(self, options, parts, programs, results, kernels, code, machine):
        self.options, self.parts, self.programs, self.kernels, self.machine = options, parts, programs, kernels, machine
        self.environment = environment_of(next(iter(programs.values())))
        arch = f"sm_{self.environment['device'].get('arch')}"
        self.code = {arch: code[arch]} if arch in code else {}
        self.digests = self.code[arch]["versions"] if self.code else {}
        folder = results / self.environment["device"]["slug"]
        folder.mkdir(parents=True, exist_ok=True)
        self.estimates = seconds_spent(results, folder.name)
        self.folder = folder

    def run(self):
        parts, plan = self._begin()
        names = {part.name: part.jobs(self.programs) for part in parts}
        total = sum(len(jobs) for jobs in names.values())
        progress = Progress(names, self.estimates)
        say.line(f"{total} results, {progress.forecast()}, into {files.shown(self.file)}")
        try:
            for part in parts:
                part.run(self.programs, plan, progress)
        except KeyboardInterrupt:
            say.line(f"interrupted with {progress.done} of {total} results kept; go on with {self._again()}")
            return INTERRUPTED
        except Failure as failure:
            raise Failure(f"{failure}; {progress.done} of {total} results kept, go on with {self._again()}") from None
        finally:
            say.close()
        return self._finish(parts, plan)

    def _name(self, tag):
        short = self.environment["commit"][:7] + ("_dirty" if self.environment["dirty"] else "")
        return f"{short}_{tag}" if tag else short

    def _again(self):
        return "./ladder record --resume" + (f" --tag {self.options.tag}" if self.options.tag else "")

    def _begin(self):
        """Parts and plan, of a new recording or of the one that was interrupted."""
        name = self._name(self.options.tag)
        partial = next(iter(sorted(self.folder.glob(f"????-??-??_{name}.partial"))), None)
        if self.options.resume and not partial:
            raise UsageError(f"record --resume: {files.shown(self.folder)} has no interrupted recording of {name}")
        if partial and not self.options.resume:
            raise UsageError(
                f"{files.shown(partial)} is an interrupted recording: go on with {self._again()}, or remove it"
            )
        self._set_partial(partial or self._partial_of_today(self.options.tag))
        if taken := self._taken():
            raise UsageError(
                f"{files.shown(taken)} exists, and records are never changed: --tag NAME makes another of "
                "the same commit"
            )
        if not self.options.resume:
            return self._new_plan()
        plan = json.loads((partial / "plan.json").read_text(encoding="utf-8"))
        begun_with = plan.setdefault("machine_code", {})
        if any(self.digests.get(version, digest) != digest for version, digest in begun_with.items()):
            raise UsageError(
                f"the kernels' machine code has changed since {files.shown(partial)} was begun: remove it, and record anew"
            )
        return self._parts(plan), plan

    def _partial_of_today(self, tag):
        return self.folder / f"{datetime.date.today().isoformat()}_{self._name(tag)}.partial"

    def _set_partial(self, partial):
        self.partial, self.file = partial, partial.with_suffix(".json.xz")

    def _taken(self):
        """The file that already has the record's name, packed or plain; None without one."""
        return next((file for file in (self.file, self.file.with_suffix("")) if file.exists()), None)

    def _new_plan(self, **more):
        """(Parts, plan) of a recording that begins, its plan written."""
        self.partial.mkdir()
        plan = {"created": record_files.now(), "parts": self.parts, "machine": self.machine(), **more}
        plan.update(kernels=self.kernels, machine_code=self.digests)
        files.replace(self.partial / "plan.json", json.dumps(plan))
        return self._parts(plan), plan

    def _parts(self, plan):
        unknown = {path for path, *_ in plan["parts"]} - set(self.programs)
        self.programs.update(
            {path: next(iter(self.programs.values())).with_name(f"bench_{path.split('/')[0]}") for path in unknown}
        )
        return [Part(self.partial, at, *part) for at, part in enumerate(plan["parts"])]

    def _finish(self, parts, plan):
        pieces = [json.loads(part.file.read_text(encoding="utf-8")) for part in parts]
        record = joined([part.path for part in parts], pieces)
        record["created"] = plan["created"]
        record["machine"] = {"before": plan["machine"], "after": self.machine()}
        record["kernels"] = kernels_of(record["results"], plan.get("kernels", self.kernels))
        record["machine_code"] = _digests_of(record["results"], plan["machine_code"])
        write_new(self.file, record_files.text_of(record))
        current.keep(self.folder.parent, self.code)
        shutil.rmtree(self.partial)
        counts = Counter(result["verdict"]["status"] for result in record["results"])
        for line in standings(record_files.load(self.file)):
            print(line)
        print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
        print(f"record: {files.shown(self.file)}", flush=True)
        say.line("next: ./ladder compare, ./ladder dashboard, ./ladder table")
        return 1 if counts["FAIL"] else 0


class Part:
    """The measurements of one run of one bench program, number `at` of the recording in `folder`. Where they are known
    beforehand, `planned` are the names of its results, and `seconds` is what it may take."""

    def __init__(self, folder, at, path, dtype, arguments, planned=(), seconds=0):
        self.path, self.planned, self.seconds = path, planned, seconds
        self.name = "_".join(filter(None, (f"{at:03d}", path.replace("/", "_"), dtype)))
        self.file = folder / f"{self.name}.json"
        self.partial = folder / f"{self.name}.json.partial"
        self.log = folder / f"{self.name}.log"
        self.arguments = ["--pass", path.split("/")[1], *arguments, *(["--dtype", dtype] if dtype else [])]

    def jobs(self, programs):
        """Names of the results to come, in order."""
        done = tools.captured(programs[self.path], *self.arguments, "--benchmark_list_tests", cwd=paths.ROOT)
        if done.returncode != 0:
            raise (UsageError if done.returncode == 2 else Failure)(tools.last_line(done.stderr))
        # Google Benchmark adds how it counts and times: ".../iterations:1/manual_time".
        return [line.split("/iterations:")[0] for line in done.stdout.splitlines() if line.startswith(self.path + "/")]

    def run(self, programs, plan, progress):
        progress.start(self.name)
        if self.file.exists():  # done before the interruption
            progress.show(self.name, len(json.loads(self.file.read_text(encoding="utf-8"))["results"]))
            return
        resume = ["--resume"] if self.partial.exists() else []
        file = os.path.relpath(self.file, paths.ROOT) if self.file.is_relative_to(paths.ROOT) else self.file
        command = [programs[self.path], *self.arguments, "--record", file, *resume]
        with open(self.log, "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                cwd=paths.ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=tools.environment(),
            )
            try:
                while process.poll() is None:
                    progress.show(self.name, _results_in(self.partial))
                    time.sleep(0.25)
            except KeyboardInterrupt:
                process.terminate()
                process.wait()
                progress.show(self.name, _results_in(self.partial))
                raise
        progress.show(self.name, _results_in(self.partial))
        if not self.file.exists():
            said = self.log.read_text(encoding="utf-8", errors="replace")
            program = programs[self.path].name
            raise Failure(f"{program} ended with status {process.returncode}: {tools.last_line(said)}")
        progress.show(self.name, len(progress.names[self.name]))


def joined(part_paths, pieces):
    """Joins several programs' records into one. Throws Failure if they differ in commit, local changes or device."""
    first = pieces[0]
    for piece in pieces[1:]:
        for key in ("commit", "dirty", "device"):
            if piece["environment"][key] != first["environment"][key]:
                raise Failure(f"the parts differ in {key}: {first['environment'][key]} and {piece['environment'][key]}")
    programs = {}
    for path, piece in zip(part_paths, pieces):
        told = {key: piece[key] for key in ("command", "created", "seed", "calibration")}
        programs.setdefault(path, []).append({**told, "binary": piece["environment"].get("binary")})
    return {
        **{key: first[key] for key in ("schema", "created", "command", "seed", "environment", "calibration")},
        "programs": programs,
        "results": [result for piece in pieces for result in piece["results"]],
    }


def kernels_of(results, kernels):
    """The `kernels` of the versions that have a result, and those that the versions of their layers share."""
    versions = {f"dev/{result['layer']}/{result['pass']}/v{result['version']:02d}_" for result in results}
    layers = {f"dev/{result['layer']}" for result in results}
    return [
        kernel
        for kernel in kernels
        if kernel["file"].startswith(tuple(versions)) or os.path.dirname(kernel["file"]) in layers
    ]


def _digests_of(results, digests):
    """The digests of the versions that have a result."""
    names = {version_name(f"{result['layer']}/{result['pass']}", result["version"]) for result in results}
    return {name: digest for name, digest in digests.items() if name in names}


def standings(record):
    """Yields a line per pass and dtype: each version's mean speed-up over the baseline, on problems that both have
    times for."""
    groups = {}
    for result in record.results:
        if result.status == "PASS" and result.times and result.baseline_times:
            ratio = result.baseline_times.median / result.times.median
            groups.setdefault((result.path, result.dtype), {}).setdefault(result.version, []).append(ratio)
    for (path, dtype), versions in sorted(groups.items()):
        stand = ", ".join(
            f"v{version:02d} {record_files.geometric_mean(ratios):.2f}" for version, ratios in sorted(versions.items())
        )
        yield f"{path} {dtype}, x baseline: {stand}"


def write_new(file, text):
    """Writes a file that must not exist yet; nothing half-written ever bears its name."""
    try:
        files.create(file, text)
    except FileExistsError:
        raise Failure(f"{files.shown(file)} exists, and records are never changed") from None
    except OSError as error:
        raise Failure(f"{files.shown(file)} was not written: {error.strerror}") from None


def environment_of(program):
    done = tools.captured(program, "--environment", cwd=paths.ROOT)
    try:
        environment = json.loads(done.stdout)
        environment["device"]["slug"]
        return environment
    except (ValueError, KeyError):
        raise Failure(f"{program.name} does not say where it runs: {done.stderr.strip()}") from None


def _results_in(partial):
    """Number of results in a partial file: its complete lines after the first."""
    try:
        return max(partial.read_bytes().count(b"\n") - 1, 0)
    except OSError:
        return 0
