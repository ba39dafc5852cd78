"""`./ladder record`: every version checked and timed on the GPU, into one new file of results/.

The results of each bench program lie in <name>.partial/ until all are there, so an interrupted recording goes on with
--resume. A record that exists is never written again. --missing records the versions that have none (missing.py),
--missing --list only names them.
"""

import argparse
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

from dev import resources
from records import missing, record_files
from registry import listing, selection

from . import build, device, files, flags, paths, say, tools
from .device import read_machine
from .errors import Failure, UsageError
from .options import Parser, filled
from .progress import Progress, seconds_spent

_BASELINE = "all"  # promotions count no record without a full search


def main(arguments):
    options = _parse(arguments)
    there = listing.read(paths.ROOT)
    chosen = _chosen(options, there)
    gaps = None
    if options.missing and not options.resume:  # what was interrupted knows what it records
        slug = _device(options)
        gaps = _gaps(options, there, chosen, slug)
        if options.list or not any(gap.missing for gap in gaps):
            return _answer(options, gaps, slug, arguments)
    model, why = device.gpu()
    if model is None:
        raise Failure(f"record needs a GPU: {why}; ./ladder bench checks kernels without one")
    if gaps and slug != device.slug():
        raise UsageError(f"record --missing --device {slug}: the GPU here is {device.slug()}; --list needs no GPU")
    say.line(f"GPU build ({model})")
    # Programs run in ROOT and are named from there, so that the commands in a record work in anybody's checkout.
    folder = build.folder("cuda").relative_to(paths.ROOT)
    parts = _parts(options, there, chosen, gaps)
    programs = {path: folder / f"bench_{path.split('/')[0]}" for path, _, _ in parts}
    build.build("cuda", targets=sorted({program.name for program in programs.values()}))
    kernels, _ = resources.collect(build.folder("cuda"))
    return Recording(options, parts, programs, options.results, kernels, read_machine).run()


class Recording:
    """One recording from its first program to its file. `parts` are of _parts(), `programs` the bench programs of each
    "layer/pass"."""

    def __init__(self, options, parts, programs, results, kernels, machine):
        self.options, self.parts, self.programs, self.kernels, self.machine = options, parts, programs, kernels, machine
        self.environment = _environment(next(iter(programs.values())))
        folder = results / self.environment["device"]["slug"]
        folder.mkdir(parents=True, exist_ok=True)
        self.name = self._name()
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
            say.close()
            say.line(f"interrupted with {progress.done} of {total} results kept; go on with {self._again()}")
            return 130
        except Failure as failure:
            raise Failure(f"{failure}; {progress.done} of {total} results kept, go on with {self._again()}") from None
        finally:
            say.close()
        return self._finish(parts, plan)

    def _name(self):
        short = self.environment["commit"][:7] + ("_dirty" if self.environment["dirty"] else "")
        return f"{short}_{self.options.tag}" if self.options.tag else short

    def _again(self):
        return "./ladder record --resume" + (f" --tag {self.options.tag}" if self.options.tag else "")

    def _begin(self):
        """Parts and plan, of a new recording or of the one that was interrupted."""
        partial = sorted(self.folder.glob(f"????-??-??_{self.name}.partial"))
        if self.options.resume:
            if not partial:
                raise UsageError(
                    f"record --resume: {files.shown(self.folder)} has no interrupted recording of {self.name}"
                )
            self.partial = partial[0]
            plan = json.loads((self.partial / "plan.json").read_text(encoding="utf-8"))
        else:
            if partial:
                raise UsageError(
                    f"{files.shown(partial[0])} is an interrupted recording: go on with {self._again()}, or remove it"
                )
            self.partial = self.folder / f"{datetime.date.today().isoformat()}_{self.name}.partial"
        self.file = self.partial.with_suffix(".json")
        if self.file.exists():
            raise UsageError(
                f"{files.shown(self.file)} exists, and records are never changed: --tag NAME makes another of "
                "the same commit"
            )
        if not self.options.resume:
            self.partial.mkdir()
            plan = {"created": record_files.now(), "parts": self.parts, "machine": self.machine()}
            (self.partial / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        unknown = {path for path, _, _ in plan["parts"]} - set(self.programs)
        self.programs.update(
            {path: next(iter(self.programs.values())).with_name(f"bench_{path.split('/')[0]}") for path in unknown}
        )
        return [Part(*part, self.partial) for part in plan["parts"]], plan

    def _finish(self, parts, plan):
        pieces = [json.loads(part.file.read_text(encoding="utf-8")) for part in parts]
        record = joined([part.path for part in parts], pieces)
        record["created"] = plan["created"]
        record["machine"] = {"before": plan["machine"], "after": self.machine()}
        record["kernels"] = self.kernels
        write_new(self.file, record_files.text_of(record))
        shutil.rmtree(self.partial)
        counts = Counter(result["verdict"]["status"] for result in record["results"])
        for line in standings(record_files.load(self.file)):
            print(line)
        print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
        print(f"record: {files.shown(self.file)}", flush=True)
        say.line("next: ./ladder compare, ./ladder dashboard, ./ladder table")
        return 1 if counts["FAIL"] else 0


class Part:
    """What one run of one bench program measures."""

    def __init__(self, path, dtype, arguments, folder):
        self.path = path
        self.name = path.replace("/", "_") + (f"_{dtype}" if dtype else "")
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
    """One record of several programs' records. Throws Failure where they were not made in one place."""
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


def standings(record):
    """For each pass and dtype a line: how every version stands against the baseline, over the problems both did."""
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


def _parse(arguments):
    parser = Parser(
        "record",
        description="Checks and times versions on the GPU, "
        "beside the baseline, into results/<device>/<date>_<commit>.json.",
    )
    parser.add_argument("layers", nargs="*", help=selection.HELP["target"] + " (default: all)")
    parser.add_selection("version", "set", "problem", version="all")
    parser.add_argument("--dtype", type=selection.dtypes, help=selection.HELP["dtype"] + " (default: all)")
    parser.add_argument("--seed", type=selection.seed, help="of the inputs (default: another one every run)")
    parser.add_argument("--tag", type=_tag, help="a word for the file's name, for a second record of the same commit")
    parser.add_argument("--results", type=Path, default=paths.ROOT / "results", help="folder of the records")
    parser.add_argument("--resume", action="store_true", help="go on with the recording that was interrupted")
    notes = {"--baseline": f"default: {_BASELINE}"}
    own = flags.Flags(parser, "bench/flags.json", notes, only=("--samples", "--baseline"))
    missing = parser.add_argument_group("what has no record yet")
    missing.add_argument(
        "--missing",
        action="store_true",
        help="record only versions without a result that passed on this "
        "GPU, with --dtype in that dtype; on the set perf unless --set or --problem says otherwise",
    )
    missing.add_argument("--list", action="store_true", help="with --missing: only say which those are; needs no GPU")
    missing.add_argument(
        "--device",
        type=filled("device"),
        metavar="SLUG",
        help="with --missing: whose records count, a "
        "folder of results/ (default: the GPU here, else the one with the newest record)",
    )
    options = parser.parse_args(arguments)
    if options.baseline and options.baseline.endswith(".py"):
        raise UsageError("records are kept beside the libraries; a baseline of your own is for ./ladder bench")
    options.baseline = options.baseline or _BASELINE
    options.own = own.words(options)
    if not options.missing and (options.list or options.device):
        raise UsageError(
            f"{'--list' if options.list else '--device'} needs --missing: ./ladder record --missing --list"
        )
    if options.missing and options.version == "best":
        raise UsageError("--missing and --version best exclude each other: best is the promoted one")
    if options.list and options.resume:
        raise UsageError("--list and --resume exclude each other: --list records nothing")
    return options


def _tag(text):
    if not re.fullmatch(r"[A-Za-z0-9-]+", text):
        raise argparse.ArgumentTypeError(f"'{text}': letters, digits and dashes")
    return text


def _chosen(options, there):
    """{"layer/pass": Versions} of the asked passes that have what --version says."""
    chosen = selection.passes(there, options.layers)
    layers = selection.layers_of(there, chosen)
    if options.problem:
        problems = selection.problems_of(layers, options.problem)
        chosen = [a_pass for a_pass in chosen if a_pass.layer in problems]
    else:
        for layer in layers:
            selection.set_name([layer], _set(options, layer))
    return selection.versions_of(chosen, options.version)


def _device(options):
    """The slug of the GPU whose records --missing asks about."""
    known = missing.devices(options.results)
    if options.device and options.device not in known and options.device != device.slug():
        raise UsageError(
            f"--device {options.device}: no record of it; there are those of: {', '.join(known) or 'none yet'}"
        )
    slug = options.device or device.slug()
    if not slug and not known:
        raise UsageError(f"record --missing: no GPU here, and {files.shown(options.results)} has no record of one")
    records = record_files.load_all(options.results)[0] if not slug and len(known) > 1 else []
    return slug or (record_files.newest_device(records) if records else known[0])


def _gaps(options, there, chosen, slug):
    """The missing.Gaps of chosen passes, for each of the dtypes that --dtype or --problem asks for."""
    records, bad = record_files.load_all(options.results, slug)
    for error in bad:
        say.line(f"not counted: {error}")
    recorded = missing.passed(records)
    gaps = [
        missing.gap(path, versions, recorded, dtype)
        for path, versions in chosen.items()
        for dtype in options.dtype or [_dtype_of_problem(options, there.layer(path.split("/")[0]))]
    ]
    if not any(gap.asked for gap in gaps):
        raise UsageError(f"no version that was asked for has {' or '.join(dict.fromkeys(gap.dtype for gap in gaps))}")
    return gaps


def _answer(options, gaps, slug, arguments):
    """Says what is missing: a table with --list, a line where that is nothing."""
    command = shlex.join(["./ladder", "record", *(word for word in arguments if word != "--list")])
    line = missing.summary(gaps, slug, command)
    if options.list:
        print(*missing.table(gaps), "", line, sep="\n")
    else:
        say.line(f"nothing to record: {line}")
    return 0


def _parts(options, there, chosen, gaps=None):
    """What each run of a bench program measures: its "layer/pass", a dtype or None for all, and its other arguments; of
    `gaps` only what is missing."""
    if gaps is None:
        wanted = [(path, dtype, options.version) for path in chosen for dtype in options.dtype or [None]]
    else:
        wanted = [(gap.path, gap.dtype, ",".join(map(str, gap.missing))) for gap in gaps if gap.missing]
    return [[path, dtype, _bench_arguments(options, there, path, dtype, version)] for path, dtype, version in wanted]


def _bench_arguments(options, there, path, dtype, version):
    layer = there.layer(path.split("/")[0])
    lines = [selection.problem(layer, options.problem)] if options.problem else []
    what = selection.program_words(
        layer, there.find(path), version, lines, None if lines else _set(options, layer), [dtype] if dtype else ()
    )
    return [*what, *options.own, *(["--seed", str(options.seed)] if options.seed is not None else [])]


def _set(options, layer):
    """The set to record of a layer: the U-Net's problems. What has no record yet gets one of the few problems of perf, as
    does a layer that is none of the U-Net's."""
    return options.set or ("perf" if "perf" in layer.sets and (options.missing or "unet" not in layer.sets) else "unet")


def _dtype_of_problem(options, layer):
    return selection.dtype_of(selection.problem(layer, options.problem)) if options.problem else None


def _environment(program):
    done = tools.captured(program, "--environment", cwd=paths.ROOT)
    try:
        environment = json.loads(done.stdout)
        environment["device"]["slug"]
        return environment
    except (ValueError, KeyError):
        raise Failure(f"{program.name} does not say where it runs: {done.stderr.strip()}") from None


def _results_in(partial):
    """Whole lines after the first."""
    try:
        return max(partial.read_bytes().count(b"\n") - 1, 0)
    except OSError:
        return 0
