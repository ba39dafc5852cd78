"""`./ladder mutants [AREA...]`: deliberate bugs, tests/mutants/<area>.toml, each planted alone and run against its tests.

A mutant changes one file: its text `before`, which occurs once, becomes `after`. `unit` names the test program, and the
version whose tests run; `filter` is GoogleTest's. The unit `package` is the PyTorch package, and its filter a file or
node of python/tests.

Bugs are planted in a copy of the tree, build/mutants/tree, with builds of its own: one switch for all of them cannot be
compiled in, as most change types, templates or constants. A bug is looked for twice: by the values and reports of the
emulator's schedules, and, in a kernel, by preset order, which names races. Results are kept in tests/mutants/results.json
until the mutant or its file changes; an interrupted run goes on where it was.
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
from cli.test_programs import Unit

FOLDER = paths.ROOT / "tests" / "mutants"
_HOME = paths.BUILD / "mutants"
_TREE = _HOME / "tree"
_RESULTS = FOLDER / "results.json"
_KEYS = {"name", "file", "before", "after", "kind", "unit", "why", "caught_by", "filter", "survives"}
_MOST_SECONDS = 900  # of a build or of a run, which hangs after that
_SCHEDULES, _ORDER = "emulator", "order"  # presets
_PACKAGE = "from cli import package; sys.exit(bool(package.test('emulator', (), sys.argv[1:]).failed))"


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

    @property
    def presets(self):
        is_of_kernel = self.file.startswith("dev/") and self.unit.startswith("test_versions_")
        return (_ORDER, _SCHEDULES) if is_of_kernel else (_SCHEDULES,)


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
    parser = Parser("mutants", description=__doc__.partition("\n\n")[2])
    every = read()
    areas = sorted({mutant.area for mutant in every})
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"default: all, which takes hours: {', '.join(areas)}")
    parser.add_argument("--only", metavar="WORD", default="", help="only mutants with this word in their names")
    parser.add_argument("--async", action="store_true", dest="is_async", help="only those of asynchronous protocols")
    parser.add_argument("--report", action="store_true", help="only print what is known")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.areas) - set(areas):
        raise UsageError(f"no area '{min(unknown)}'; there are: {', '.join(areas)}")
    mutants = [
        mutant
        for mutant in every
        if (not chosen.areas or mutant.area in chosen.areas)
        and chosen.only in mutant.name
        and (not chosen.is_async or mutant.kind == "async")
    ]
    known = _known()
    if not chosen.report:
        _copy_tree()
        planned = [(mutant, preset) for mutant in mutants for preset in mutant.presets]
        waiting = [(mutant, preset) for mutant, preset in planned if _key(mutant, preset) not in known]
        _build_unchanged(waiting)
        for done, (mutant, preset) in enumerate(waiting, 1):
            say.progress(f"mutants: {done} of {len(waiting)}, {mutant.area}/{mutant.name}, preset {preset}")
            known[_key(mutant, preset)] = _planted(mutant, preset)
            _RESULTS.parent.mkdir(parents=True, exist_ok=True)
            files.replace(_RESULTS, json.dumps(known, indent=1) + "\n")
    say.close()
    print(report(mutants, lambda mutant, preset: known.get(_key(mutant, preset))))
    return 0


def _known():
    try:
        return json.loads(_RESULTS.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _key(mutant, preset):
    text = (paths.ROOT / mutant.file).read_text(encoding="utf-8") + repr(mutant)
    return f"{preset} {mutant.area}/{mutant.name} {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _copy_tree():
    """Makes _TREE equal to the working tree's own files; what is equal keeps its time, so that builds go on."""
    listed = tools.git(paths.ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    wanted = {name for name in listed if name and (paths.ROOT / name).is_file()}
    for name in wanted:
        source, copy = paths.ROOT / name, _TREE / name
        if copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy)
        os.utime(copy)
    for folder in {name.partition("/")[0] for name in wanted if "/" in name}:
        for copy in (_TREE / folder).rglob("*"):
            if copy.is_file() and copy.suffix in (".cu", ".cpp", ".h") and str(copy.relative_to(_TREE)) not in wanted:
                copy.unlink()
    private = _TREE / paths.PRIVATE.name
    if not private.exists():
        private.symlink_to(paths.PRIVATE)


def _build_unchanged(waiting):
    """Build the programs in full, so that a mutant's build is of what it changes. Throws Failure."""
    for preset in (_ORDER, _SCHEDULES):
        programs = {mutant.unit.split()[0] for mutant, one in waiting if one == preset} - {"package"}
        if not programs:
            continue
        say.progress(f"mutants: building preset {preset}: {', '.join(sorted(programs))}")
        done = subprocess.run(["./ladder", "build", "--preset", preset, *sorted(programs)], cwd=_TREE, check=False)
        if done.returncode:
            raise Failure(f"the unchanged tree does not build in preset {preset}")


def _planted(mutant, preset):
    """The verdict of the tests with the mutant in place: "caught: ...", "survived", or "no build: ..."."""
    path = _TREE / mutant.file
    whole = (paths.ROOT / mutant.file).read_text(encoding="utf-8")
    try:
        path.write_text(whole.replace(mutant.before, mutant.after), encoding="utf-8")
        return _tested(mutant, preset)
    finally:
        path.write_text(whole, encoding="utf-8")


def _tested(mutant, preset):
    program, _, version = mutant.unit.partition(" ")
    if program == "package":
        tests = [f"python/tests/{mutant.filter}" if mutant.filter else "python/tests"]
        return _outcome(
            _run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, 'tools'); {_PACKAGE}", *tests])
        )
    built = _run(["./ladder", "build", "--preset", preset, program])
    if built is None or built.returncode != 0:
        return f"no build: {_first(r'error', built.stderr if built else '')}"
    flags = Unit(preset, program, version).gtest_flags()
    if mutant.filter:
        flags = [f"--gtest_filter={mutant.filter}"]
    test = [str(paths.BUILD.relative_to(paths.ROOT) / preset / "tests" / program), "--gtest_brief=1", *flags]
    found = _outcome(_run(test))
    if found == "survived" and not version:
        late = _outcome(_run(test, LADDER_SCHEDULE="late"))
        found = late.replace("caught", "caught under late")
    return found


def _run(command, **environment):
    """The finished process, or None if it did not end in time."""
    try:
        return subprocess.run(
            command,
            cwd=_TREE,
            env={**tools.environment(), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None


def _outcome(done):
    if done is None:
        return f"caught: no end in {_MOST_SECONDS} s"
    if done.returncode == 0:
        return "survived"
    return f"caught: {_first('a race|differs|deadlock|FAIL:|Failure|FAILED|Error', done.stdout) or done.returncode}"


def _first(pattern, text):
    """First line of `text` with one of the words, of each in turn."""
    for word in pattern.split("|"):
        for line in text.splitlines():
            if word in line:
                return line.strip()[:300]
    return ""


def report(mutants, result):
    """A table of areas, and each survivor. `result(mutant, preset)`: what _planted() said, or None."""
    lines = [f"{'area':<16}{'kind':<8}{'planted':>8}{'found':>8}{'by schedules alone':>20}"]
    survivors, groups = [], {}
    for mutant in mutants:
        said = [text for preset in (_ORDER, _SCHEDULES) if (text := result(mutant, preset))]
        if not said:
            continue
        if any(text.startswith("no build") for text in said):
            survivors.append(f"{mutant.area}/{mutant.name}: {said[-1]}")
            continue
        group = groups.setdefault((mutant.area, mutant.kind), [0, 0, 0])
        group[0] += 1
        group[1] += any(text.startswith("caught") for text in said)
        group[2] += (result(mutant, _SCHEDULES) or "").startswith("caught")
        if all(text == "survived" for text in said):
            survivors.append(f"{mutant.area}/{mutant.name} survives: {mutant.survives or mutant.why}")
    sums = {}
    for (area, kind), counts in groups.items():
        lines.append(f"{area:<16}{kind:<8}{counts[0]:>8}{counts[1]:>8}{counts[2]:>20}")
        sums[kind] = [one + other for one, other in zip(sums.get(kind, [0, 0, 0]), counts, strict=True)]
    for kind, counts in sums.items():
        shares = [f"{100 * count / counts[0]:.0f} %" for count in counts[1:]]
        lines.append(f"{'all':<16}{kind:<8}{counts[0]:>8}{shares[0]:>8}{shares[1]:>20}")
    return "\n".join([*lines, *survivors])
