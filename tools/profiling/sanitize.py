"""`./ladder sanitize [layers...]`: compute-sanitizer's four tools on every version, each proven able to fire."""

import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from cli import build, device, paths, say, tools, wheels
from cli.columns import aligned
from cli.errors import Failure, UsageError
from cli.options import Parser
from records import record_files
from registry import listing, selection

from . import keep, sanitizer, where

SCHEMA = "ladder.sanitizer/1"
PRESET = "cuda"
_PIN = "nvidia-cuda-sanitizer-api==13.5.25"  # releases before 13.4 lack a program that the tool starts
_PLANTED = "planted"
_PLANTED_SECONDS = 180
_INSTALL = (
    "no compute-sanitizer on PATH, in CUDA_HOME/bin or /usr/local/cuda*/bin, and it could not be fetched: it "
    f"is part of the CUDA toolkit, alone the package cuda-sanitizer-13-0 or, from PyPI, {_PIN}"
)


def main(arguments):
    options = _parse(arguments)
    there = listing.read(paths.ROOT)
    chosen = _passes(options, there)
    model, why = device.gpu()
    if model is None:
        raise Failure(f"sanitize needs a GPU: {why}; ./ladder test --sanitize checks kernels on the emulator")
    program = _tool()
    say.line(f"{PRESET} build ({model}), {program}")
    folder = _built(sorted({f"bench_{path.split('/')[0]}" for path in chosen}))
    with tempfile.TemporaryDirectory(prefix="ladder-sanitize-") as scratch:
        session = _Session(options, there, program, folder, Path(scratch), len(options.tool) * (2 + len(chosen)))
        for path in chosen:
            session.refuse_what_the_bench_refuses(path)
        for tool in options.tool:
            session.use(tool, chosen)
        return session.finish(arguments)


def _parse(arguments):
    parser = Parser(
        "sanitize", description="compute-sanitizer's four tools on every version, each proven able to fire."
    )
    parser.add_argument("layers", nargs="*", help=selection.HELP["target"] + " (default: all)")
    parser.add_argument(
        "--tool",
        type=lambda words: words.split(","),
        default=list(sanitizer.TOOLS),
        help="some of " + ",".join(sanitizer.TOOLS),
    )
    parser.add_selection("version", "dtype", "set", "problem", version="all")
    parser.add_argument("--record", action="store_true", help="keep the outcome as results/<device>/..._sanitizer.json")
    options = parser.parse_args(arguments)
    unknown = [tool for tool in options.tool if tool not in sanitizer.TOOLS]
    if unknown:
        raise UsageError(f"no tool '{unknown[0]}'; there are: {', '.join(sanitizer.TOOLS)}")
    return options


def _passes(options, there):
    """The asked passes, as <layer>/<pass>, that have what --version says."""
    chosen = selection.passes(there, options.layers)
    if not chosen:
        raise Failure("nothing to sanitize: dev/ has no versions")
    layers = selection.layers_of(there, chosen)
    if options.dtype:
        selection.dtypes(options.dtype)
    if options.problem:
        problems = selection.problems_of(layers, options.problem)
        chosen = [a_pass for a_pass in chosen if a_pass.layer in problems]
    else:
        options.set = selection.set_name(layers, options.set or "ci")
    return list(selection.versions_of(chosen, options.version))


def _tool():
    """Path of compute-sanitizer, fetched where it is missing. Throws Failure."""
    found = where.find("compute-sanitizer")
    if found:
        return found
    try:
        wheels.install("compute-sanitizer (18 MB)", [_PIN], "sanitizer", paths.SETUP_LOG)
    except Failure:
        raise Failure(f"{_INSTALL} ({paths.SETUP_LOG})") from None
    return where.find("compute-sanitizer")


def _built(programs):
    build.build(PRESET, targets=[*programs, _PLANTED])
    return build.folder(PRESET)


class _Session:
    """The tools one after the other, and what they said."""

    def __init__(self, options, there, program, folder, scratch, steps):
        self.there = there
        self.options, self.program, self.folder, self.scratch = options, program, folder, scratch
        self.steps, self.step = steps, 0
        self.tools = {}  # {tool: {"proven", "reason", "fault", "clean", "runs"}}, as in the record
        self.environment = None

    def use(self, tool, chosen):
        """Proves `tool` and, if that went well, runs it over the benchmarks."""
        planted = self.folder / "tests" / _PLANTED
        fault, fault_said = self._run(tool, f"{tool}: its planted fault", [planted, tool, "fault"], _PLANTED_SECONDS)
        clean, _ = self._run(tool, f"{tool}: the clean twin", [planted, tool, "clean"], _PLANTED_SECONDS)
        reason = sanitizer.proof(tool, fault, fault_said, clean)
        entry = {"proven": not reason, "reason": reason, "fault": fault.json(), "clean": clean.json(), "runs": []}
        self.tools[tool] = entry
        if reason:
            print(f"{tool:<10} NOT PROVEN: it {reason}", flush=True)
            return
        print(
            f"{tool:<10} proven: it reports its planted fault ({fault.findings}) and nothing of the clean twin",
            flush=True,
        )
        for path in chosen:
            entry["runs"].append(self._sanitize(tool, path))

    def refuse_what_the_bench_refuses(self, path):
        """Throws UsageError with the bench's own line, before any tool has run for minutes."""
        done = tools.captured(*self._bench(path), "--benchmark_list_tests", cwd=paths.ROOT, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            said = tools.last_line(done.stderr, done.stdout, otherwise="bench --benchmark_list_tests failed")
            raise (UsageError if done.returncode == 2 else Failure)(said)

    def _bench(self, path):
        a_pass = self.there.find(path)
        layer = self.there.layer(a_pass.layer)
        problem, dtype = self.options.problem, self.options.dtype
        lines = [selection.problem(layer, problem)] if problem else []
        dtypes = selection.dtypes(dtype) if dtype else ()
        return [
            *(self.folder / f"bench_{layer.name}", "--pass", a_pass.name),
            *selection.program_words(layer, a_pass, self.options.version, lines, self.options.set, dtypes),
            *(["--dtype", dtype] if dtype else []),
            *"--check --baseline none --seed 1".split(),
        ]

    def _sanitize(self, tool, path):
        file = self.scratch / f"{tool}_{path.replace('/', '_')}.json"
        command = self._bench(path)
        started = time.monotonic()
        outcome, _ = self._run(tool, f"{tool}: {path}", [*command, "--record", file])
        counts = self._counts(file)
        if outcome.status == "clean" and not counts:
            outcome = sanitizer.Outcome("broken", 0, "nothing was checked")
        seconds = time.monotonic() - started
        checks = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no checks"
        print(f"{tool:<10} {path}: {outcome.reason or 'clean'} ({checks}; {seconds:.0f} s)", flush=True)
        for line in outcome.report:
            print(f"           | {line}")
        return {
            "path": path,
            "command": self._words(tool, command),
            "checks": counts,
            "seconds": seconds,
            **outcome.json(),
        }

    def _counts(self, file):
        """{status: how many} of the checks that the bench recorded."""
        try:
            recorded = json.loads(file.read_text(encoding="utf-8"))
            self.environment = recorded["environment"]
            return Counter(result["verdict"]["status"] for result in recorded["results"])
        except (OSError, ValueError, KeyError):
            return {}

    def _run(self, tool, what, command, limit=None):
        """(Outcome, what was said): `command` under `tool`."""
        self.step += 1
        log = self.scratch / "log"
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [self.program, *_flags(tool), *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=paths.ROOT,
                env={**tools.environment(), "LADDER_GUARDS": "0"},  # tensors end with their allocations
                start_new_session=True,
            )
            code = _wait(process, f"{self.step} of {self.steps}, {what}", limit)
        said = log.read_text(encoding="utf-8", errors="replace")
        return sanitizer.outcome(said, code), said

    def _words(self, tool, command):
        shown = [str(word).replace(f"{paths.ROOT}/", "") for word in command]
        return shlex.join(["compute-sanitizer", *_flags(tool), *shown])

    def finish(self, arguments):
        bad = [f"{tool} is not proven" for tool, entry in self.tools.items() if not entry["proven"]]
        bad += [
            f"{tool} {run['path']}: {run['reason']}"
            for tool, entry in self.tools.items()
            for run in entry["runs"]
            if run["status"] != "clean"
        ]
        print("\n" + table(self.tools))
        if self.options.record:
            self._record(arguments)
        for line in bad:
            say.line(line)
        return 1 if bad else 0

    def _record(self, arguments):
        if self.environment is None:
            raise Failure("sanitize --record: no run got as far as to name its device; nothing was kept")
        created = record_files.now()
        data = {
            "schema": SCHEMA,
            "created": created,
            "command": ["./ladder", "sanitize", *arguments],
            "environment": self.environment,
            "sanitizer": _version(self.program),
            "tools": self.tools,
        }
        sha = self.environment["commit"][:7] + ("_dirty" if self.environment["dirty"] else "")
        kept = keep.publish(
            paths.ROOT / "results" / self.environment["device"]["slug"],
            f"{created[:10]}_{sha}_sanitizer",
            {".json": json.dumps(data, indent=1) + "\n", ".txt": text(data)},
        )
        for path in kept.values():
            print(f"record: {path}")


def _flags(tool):
    return ["--tool", tool, *sanitizer.FLAGS.get(tool, []), "--error-exitcode", str(sanitizer.EXIT_ON_FINDING)]


def _wait(process, what, limit):
    """The exit status, with the time on the screen; None after `limit` seconds."""
    started = time.monotonic()
    try:
        while True:
            try:
                return process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                say.progress(f"{what} ... {time.monotonic() - started:.0f} s")
            if limit and time.monotonic() - started > limit:
                return None
    finally:
        say.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # the tool and the program that it has started
            process.wait()


def _version(program):
    found = re.search(r"^Version (\S+)", tools.captured(program, "--version").stdout, re.MULTILINE)
    return found[1] if found else ""


def table(entries):
    """A row a tool, a column a pass."""
    columns = sorted({run["path"] for entry in entries.values() for run in entry["runs"]})
    rows = [["tool", "proven", *columns]]
    for tool, entry in entries.items():
        runs = {run["path"]: run for run in entry["runs"]}
        cells = [
            f"{runs[path]['status']}, {sum(runs[path]['checks'].values())} checks" if path in runs else "not run"
            for path in columns
        ]
        rows.append([tool, "yes" if entry["proven"] else "NO", *cells])
    return "\n".join(aligned(rows))


def text(data):
    """The record for reading."""
    environment = data["environment"]
    lines = [
        f"# compute-sanitizer {data['sanitizer']} on {environment['device']['name']}, {data['created']}, "
        f"commit {environment['commit'][:7]}{'+' if environment['dirty'] else ''}",
        "",
        table(data["tools"]),
    ]
    for tool, entry in data["tools"].items():
        proven = "reports its planted fault, not the clean twin"
        lines += ["", f"{tool}: {proven if entry['proven'] else 'NOT PROVEN, it ' + entry['reason']}"]
        lines += [f"    | {line}" for line in entry["fault"]["report"]]
        for run in entry["runs"]:
            checks = ", ".join(f"{count} {status}" for status, count in sorted(run["checks"].items()))
            lines += ["", f"$ {run['command']}", f"{run['reason'] or 'clean'}; {checks or 'no checks'}"]
            lines += [f"    | {line}" for line in run["report"]]
    return "\n".join(lines) + "\n"
