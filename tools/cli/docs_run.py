"""`./ladder test docs`: runs the commands of the documents, in a copy of the tree.

The copy, build/docs_run/, holds the tree's files as they are, committed or not, a .git of its own that borrows the objects
of this one, and a link to .ladder. Its build folders stay from run to run.
"""

import contextlib
import datetime
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from . import device, docs, files, lock, options, paths, say, tools
from .test_programs import Totals

SCHEMA = "ladder.docs/1"

_LATE = "the time was up"
_LAST_LINES = 12
_SECONDS_TO_END = 10
_STAY = ("build", ".ladder", ".git")  # folders of the copy that the tree has no say in


@dataclass(frozen=True)
class Result:
    status: str  # PASS, FAIL or SKIP
    seconds: float = 0.0
    reason: str = ""


def main(arguments):
    parser = options.Parser(
        "test docs", description="Runs the documents' commands, in build/docs_run, a copy of the tree."
    )
    parser.add_argument("--full", action="store_true", help="also what has passed in this state of the tree")
    parser.add_argument("--minutes", type=options.between(0, 1e6), metavar="N", help="take up no command after that")
    parser.add_argument("--werror", action="store_true", help="warnings of the emulator build are errors")
    parser.add_argument("--json", metavar="FILE.json", help="every command's result: results/SCHEMA.md")
    chosen = parser.parse_args(arguments)
    options.check_names(chosen, json=".json")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a command ends with us
    root, copy = paths.ROOT, paths.BUILD / "docs_run"
    rules = docs.rules(root, docs.commands(root))
    deadline = float("inf") if chosen.minutes is None else time.monotonic() + chosen.minutes * 60
    with lock.held(paths.BUILD / ".docs_run.lock"):
        tree = digest(root)
        if chosen.minutes is not None:
            rules = _turned(rules, tree)
        kept = _Kept(paths.BUILD / "docs_run.json", tree)
        if chosen.full or not kept.results or not copy.exists():
            kept.begin()
            synchronise(root, copy)
        if chosen.werror:
            run("./ladder build --preset emulator --werror build.ninja", copy, 600)
        results = {command: _result(command, rule, copy, kept, deadline) for command, rule in rules.items()}
    if chosen.json:
        files.replace(chosen.json, json.dumps(record(root, results), indent=1) + "\n")
    statuses = [result.status for result in results.values()]
    left = sum(result.reason == _LATE for result in results.values())
    if left:
        print(f"{left} commands not run: {_LATE}")
    print(Totals(statuses.count("PASS"), statuses.count("FAIL"), statuses.count("SKIP")), flush=True)
    return 1 if "FAIL" in statuses or "PASS" not in statuses else 0


def _turned(rules, tree):
    """Begins with a document that follows from the tree's digest, so that all have their turn when the time is short."""
    documents = list(dict.fromkeys(command.document for command in rules))
    first = int(tree, 16) % len(documents)
    turned = documents[first:] + documents[:first]
    return dict(sorted(rules.items(), key=lambda item: turned.index(item[0].document)))


class _Kept:
    """The results in this state of the tree. What passed is on disk, so that an interrupted run goes on."""

    def __init__(self, path, tree):
        self._path, self._tree, self.results = path, tree, {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw["tree"] == tree:
                self.results = {text: Result(**each) for text, each in raw["commands"].items()}

    def begin(self):
        self.results = {}
        self._write()

    def add(self, text, result):
        self.results[text] = result
        self._write()

    def _write(self):
        passed = {text: asdict(result) for text, result in self.results.items() if result.status == "PASS"}
        files.replace(self._path, json.dumps({"tree": self._tree, "commands": passed}, indent=1) + "\n")


def _result(command, rule, copy, kept, deadline):
    """Runs the command, unless its rule, the time or a kept result says otherwise, and prints its line."""
    result, output = Result("SKIP", reason=rule.why_not()), ""
    if not result.reason:
        result = kept.results.get(command.text)
    if result is None and time.monotonic() > deadline:
        return Result("SKIP", reason=_LATE)
    place = f"{command.document}:{command.line}"
    if result is None:
        say.progress(f"{place} {command.text}")
        result, output = run(command.text, copy, rule.seconds)
        kept.add(command.text, result)
        say.close()
    reason = f"  ({result.reason})" if result.reason else ""
    print(f"{result.status} {result.seconds:7.1f} s  {place:<32} {command.text}{reason}", flush=True)
    if result.status == "FAIL" and output:
        print("\n".join(f"    {line}" for line in output.splitlines()[-_LAST_LINES:]), flush=True)
    return result


def run(text, folder, seconds):
    """(Result, output) of a command line in `folder`, which is ended after so many seconds, with all that it started."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=folder,
            env=tools.environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
            reason = f"exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            reason = f"not over after {seconds} s"
        finally:
            _end(process)
        file.seek(0)
        output = file.read().decode(errors="replace")
    return Result("FAIL" if reason else "PASS", round(time.monotonic() - started, 1), reason), output


def _end(process):
    """Ends a process and its group: by SIGTERM first, at which Ninja ends its compilers, which have groups of their own."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_SECONDS_TO_END)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def names(root):
    """The files of the tree: what git does not ignore, or where there is no git all but what commands make."""
    if not _is_repository(root):
        return sorted(_walk(root, (*_STAY, "runs", "__pycache__")))
    listed = tools.git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def digest(root):
    """A digest of the files, their names and the device."""
    whole = hashlib.sha256((device.gpu()[0] or "emulator").encode())
    for name in names(root):
        whole.update(f"\0{name}\0".encode() + hashlib.sha256((root / name).read_bytes()).digest())
    return whole.hexdigest()


def synchronise(root, copy):
    """Makes the copy's files those of the tree. A file that is the same keeps its time, so that builds go on."""
    copy.mkdir(parents=True, exist_ok=True)
    wanted = names(root)
    for name in set(_walk(copy, _STAY)) - set(wanted):
        (copy / name).unlink()
        with contextlib.suppress(OSError):
            os.removedirs((copy / name).parent)
    for name in wanted:
        source, target = root / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or source.read_bytes() != target.read_bytes():
            shutil.copy(source, target)
    if not (copy / ".ladder").exists():
        (root / ".ladder").mkdir(exist_ok=True)
        (copy / ".ladder").symlink_to(root / ".ladder")
    shutil.rmtree(copy / ".git", ignore_errors=True)
    if _is_repository(root):
        tools.git(root, "clone", "--quiet", "--shared", "--bare", root, copy / ".git")
        tools.git(copy, "config", "core.bare", "false")
        tools.git(copy, "reset", "--quiet")
        files.replace(copy / ".git" / "info" / "exclude", "/.ladder\n")  # .gitignore means a folder, and this is a link


def _walk(top, without):
    for folder, folders, found in os.walk(top):
        folders[:] = [name for name in folders if name not in without]
        yield from (str((Path(folder) / name).relative_to(top)) for name in found if name not in without)


def _is_repository(root):
    top = tools.git(root, "rev-parse", "--show-toplevel")
    return bool(top) and root.samefile(top)


def record(root, results):
    """Returns the content of --json's file."""
    return {
        "schema": SCHEMA,
        "device": device.gpu()[0] or "emulator",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": tools.git(root, "rev-parse", "HEAD"),
        "dirty": bool(tools.git(root, "status", "--porcelain", "--untracked-files=no")),
        "commands": [
            {"document": command.document, "line": command.line, "command": command.text, **asdict(result)}
            for command, result in results.items()
        ],
    }
