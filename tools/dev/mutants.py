"""`./ladder mutants [AREA...]`: plants each bug of tests/mutants/<area>.toml in a copy of the tree, and runs the tests that
should catch it.

A mutant changes one file: its text `before`, which occurs once, becomes `after`. `unit` names the test program, and the
version whose tests run; `filter` is GoogleTest's. The unit `package` is the PyTorch package, and its filter a file or
node of python/tests. Host code runs a second time under the schedule `late`. A result is kept until the mutant or its
file changes. A survivor without `survives`, the reason why that is right, fails the command.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import tomllib

from cli import files, paths, say, tools
from cli.errors import Failure, UsageError
from cli.options import Parser

FOLDER = paths.ROOT / "tests" / "mutants"
_HOME = paths.BUILD / "mutants"
_TREE = _HOME / "tree"
_RESULTS = _HOME / "results.json"
_SECONDS = 600  # of one run of a test program; one that takes longer hangs
_KEYS = {"name", "file", "before", "after", "kind", "unit", "why", "caught_by", "filter", "survives"}


@dataclass(frozen=True)
class Mutant:
    area: str
    name: str
    file: str
    before: str
    after: str
    kind: str  # "async" or "plain"
    unit: str  # "test_train", or "test_versions_silu silu/forward/v01_naive"
    why: str
    filter: str = ""
    survives: str = ""  # the reason, if no test should catch it
    caught_by: str = ""  # what its author expected

    def wrong(self, root=paths.ROOT):
        """Reason that the mutant cannot be planted, or ""."""
        path = root / self.file
        if not path.is_file():
            return f"{self.file} does not exist"
        count = path.read_text(encoding="utf-8").count(self.before)
        return "" if count == 1 else f"{self.file} has its text {count} times, not once"

    def modes(self):
        """(preset, schedule) of each run."""
        if self.unit == "package" or self.file.startswith("dev/"):
            return [("emulator", "")]
        return [("emulator", ""), ("emulator", "late")]

    def arguments(self):
        version = self.unit.partition(" ")[2]
        chosen = self.filter or (version.replace("/", "_") + ".*" if version else "")
        return [f"--gtest_filter={chosen}"] if chosen else []

    def digest(self):
        text = json.dumps([self.file, self.before, self.after, self.arguments()])
        return hashlib.sha256(text.encode() + (paths.ROOT / self.file).read_bytes()).hexdigest()[:16]


def read(folder=FOLDER):
    """All Mutants, by area. Throws Failure for a file that is not such a list."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        try:
            for raw in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
                if unknown := raw.keys() - _KEYS:
                    raise ValueError(f"unknown key {min(unknown)}")
                found.append(Mutant(path.stem, **raw))
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(f"{path.name}: not a list of mutants: {error}") from error
    return found


def main(arguments):
    parser = Parser("mutants", description="Plants bugs, and counts those that the tests catch.")
    parser.add_argument("areas", nargs="*", help="files of tests/mutants (default: all)")
    parser.add_argument("--name", help="one mutant")
    parser.add_argument("--list", action="store_true", help="only name them")
    chosen = parser.parse_args(arguments)
    there = read()
    known = {mutant.area for mutant in there}
    if unknown := set(chosen.areas) - known:
        raise UsageError(f"mutants: no area '{min(unknown)}'; there are: {', '.join(sorted(known))}")
    mutants = [m for m in there if m.area in (chosen.areas or known) and chosen.name in (None, m.name)]
    if chosen.name and not mutants:
        raise UsageError(f"mutants: no mutant '{chosen.name}'; --list names them")
    if chosen.list:
        print("\n".join(f"{m.area}/{m.name}: {m.why}" for m in mutants))
        return 0
    for mutant in mutants:
        if why := mutant.wrong():
            raise Failure(f"{mutant.area}/{mutant.name}: {why}")
    return _report(mutants, _run(mutants))


def _run(mutants):
    """{area/name: {"digest": ..., "emulator": true, "emulator late": ...}}: true for a run that caught it."""
    results = json.loads(_RESULTS.read_text(encoding="utf-8")) if _RESULTS.exists() else {}
    waiting = [m for m in mutants if results.get(f"{m.area}/{m.name}", {}).get("digest") != m.digest()]
    if waiting:
        _copy_tree()
    for done, mutant in enumerate(waiting):
        say.progress(f"mutants: {done} of {len(waiting)}, {mutant.area}/{mutant.name}")
        path = _TREE / mutant.file
        sound = path.read_text(encoding="utf-8")
        path.write_text(sound.replace(mutant.before, mutant.after), encoding="utf-8")
        try:
            caught = {" ".join(filter(None, mode)): _caught(mutant, *mode) for mode in mutant.modes()}
        finally:
            path.write_text(sound, encoding="utf-8")
        results[f"{mutant.area}/{mutant.name}"] = {"digest": mutant.digest(), **caught}
        files.replace(_RESULTS, json.dumps(results, indent=1) + "\n")
    return results


def _copy_tree():
    """Brings _TREE to the state of the working tree; unchanged files keep their times, and so their objects."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=paths.ROOT, capture_output=True, text=True, check=True)
    wanted = {name for name in names.stdout.split("\0") if name and not name.startswith("results/")}
    for name in wanted:
        source, copy = paths.ROOT / name, _TREE / name
        if source.is_file() and not (copy.exists() and copy.read_bytes() == source.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
            os.utime(copy)
    for folder in ("bench", "core", "dev", "io", "nn", "policy", "reference", "runtime", "tests", "train"):
        for path in (_TREE / folder).rglob("*"):
            if path.is_file() and path.relative_to(_TREE).as_posix() not in wanted:
                path.unlink()
    link = _TREE / ".ladder"
    if not link.is_symlink():
        link.symlink_to(paths.PRIVATE)


def _caught(mutant, preset, schedule):
    """True if the unit fails, hangs or dies on the mutant. Throws Failure if the mutant does not compile."""
    program = mutant.unit.partition(" ")[0]
    if program == "package":
        test = f"package.test({preset!r}, tests=['python/tests/{mutant.filter}'])"
        script = f"import sys; sys.path.insert(0, 'tools'); from cli import package; sys.exit(bool({test}.failed))"
        command = [sys.executable, "-c", script]
    else:
        build = [_TREE / "ladder", "build", "--preset", preset, program]
        done = subprocess.run(build, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"{mutant.area}/{mutant.name} does not compile:\n{done.stdout}{done.stderr}")
        command = [_TREE / "build" / preset / "tests" / program, "--gtest_fail_fast", "--gtest_brief=1"]
        command += mutant.arguments()
    env = {**tools.environment(), **({"LADDER_SCHEDULE": schedule} if schedule else {})}
    try:
        return subprocess.run(command, cwd=_TREE, env=env, capture_output=True, timeout=_SECONDS).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def _report(mutants, results):
    survivors = []
    rows = {}  # (area, kind): [mutants, caught on the emulator's plain runs, caught at all]
    for mutant in mutants:
        runs = results[f"{mutant.area}/{mutant.name}"]
        row = rows.setdefault((mutant.area, mutant.kind), [0, 0, 0])
        caught = any(hit for run, hit in runs.items() if run != "digest")
        row[0], row[1], row[2] = row[0] + 1, row[1] + runs["emulator"], row[2] + caught
        if not caught:
            survivors.append(mutant)
    print(f"{'area':<16}{'kind':<8}{'mutants':>8}{'schedules':>11}{'caught':>8}")
    for (area, kind), (count, plain, caught) in rows.items():
        print(f"{area:<16}{kind:<8}{count:>8}{plain:>11}{caught:>8}")
    for mutant in survivors:
        print(f"survives: {mutant.area}/{mutant.name}: {mutant.survives or mutant.why}")
    return 1 if any(not mutant.survives for mutant in survivors) else 0
