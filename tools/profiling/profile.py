"""`./ladder profile <layer> --version N`: Nsight Compute on exactly that launch, and what its figures say."""

import json
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import ladder_records
from cli import build, device, paths, say, setup, tools
from cli.errors import Failure, UsageError
from cli.options import Parser

from . import keep, metrics, ncu, record, show

PRESET = "profile"  # the GPU build, with source lines
_DTYPES = ("bf16", "fp16", "tf32", "fp32")  # tensor cores' first, as the project's kernels have them


def main(arguments):
    options = _parse(arguments)
    if options.diff and all(isinstance(side, Path) for side in options.diff):
        _print_difference([record.read(side) for side in options.diff])
        return 0
    profiler = _Profiler(options)
    if not options.diff:
        data, files, raw = profiler.profile(options.version)
        print(show.profile(data, files, raw if options.full else ()))
        return 0
    profiles = []
    for side in options.diff:
        if isinstance(side, Path):
            profiles.append(record.read(side))
            continue
        data, files, raw = profiler.profile(side)
        print(show.profile(data, files, raw if options.full else ()) + "\n", flush=True)
        profiles.append(data)
    _print_difference(profiles)
    return 0


def _print_difference(profiles):
    print(show.difference(*(record.side(profile) for profile in profiles), record.UNITS))


def _parse(arguments):
    parser = Parser(prog="./ladder profile", allow_abbrev=False, description=__doc__)
    parser.add_argument("layer", nargs="?", help="layer or layer/pass, as in ./ladder list")
    parser.add_argument("--version", help="its number")
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"),
                        help="two versions side by side; a profile's .json is read instead of measured")
    parser.add_argument("--pass", dest="pass_", metavar="PASS", help="default: the layer's forward pass")
    parser.add_argument("--problem", help="a problem line; default: the first of the layer's set perf")
    parser.add_argument("--dtype", help="default: the first of " + ", ".join(_DTYPES) + " that the version has")
    parser.add_argument("--seed", default="1", help="of the inputs (default: 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: results/<device>/profiles")
    parser.add_argument("--full", action="store_true", help="list every metric of the report as well")
    options = parser.parse_args(arguments)
    if bool(options.version) == bool(options.diff):
        raise UsageError("profile: one of --version N and --diff A B, as in ./ladder profile conv3x3 --version 7")
    if options.diff:
        options.diff = [_side(word) for word in options.diff]
    else:
        options.version = _version(options.version)
    if options.layer and "/" in options.layer:
        options.layer, pass_ = options.layer.split("/", 1)
        if options.pass_ not in (None, pass_):
            raise UsageError(f"profile: {options.layer}/{pass_} and --pass {options.pass_}: one of the two")
        options.pass_ = pass_
    needs_layer = options.version is not None or not all(isinstance(side, Path) for side in options.diff)
    layers = paths.layers()
    if needs_layer and options.layer not in layers:
        wrong = f"no layer '{options.layer}'" if options.layer else "profile needs a layer"
        raise UsageError(f"{wrong}; there are: {', '.join(layers) or 'none yet'}")
    return options


def _version(word):
    if not re.fullmatch(r"[vV]?\d{1,2}", word):
        raise UsageError(f"profile: version '{word}': a number, as in 7")
    return int(word.lstrip("vV"))


def _side(word):
    return Path(word) if word.endswith(".json") else _version(word)


class _Profiler:
    """What every version of a run shares: the profiler, the program, the problem."""

    def __init__(self, options):
        self.options = options
        name, why = device.gpu()
        if name is None:
            raise Failure(f"profile needs a GPU: {why}")
        self.ncu = ncu.find()
        self.ncu_version = ncu.version(self.ncu)
        say.line(f"{PRESET} build ({name}), ncu {self.ncu_version or '(unknown version)'}: {self.ncu}")
        self.program = _built(f"bench_{options.layer}")
        self.dtypes = listed(self.program, options.pass_)

    def profile(self, version):
        """Measures and keeps one version: (profile, files, [(kernel's name, raw metrics)])."""
        problem = self._problem(version)
        with tempfile.TemporaryDirectory(prefix="ladder-profile-") as folder:
            report, launch, log = (Path(folder) / name for name in ("launch.ncu-rep", "launch.json", "ncu.log"))
            program = [str(self.program), "--version", str(version), *_pass_words(self.options.pass_), "--problem",
                       problem, "--seed", self.options.seed, "--once", "--record", str(launch)]
            if self.options.dtype:
                program[-3:-3] = ["--dtype", self.options.dtype]
            ncu.profile(self.ncu, self.options.layer, program, report, log)
            try:
                launched = json.loads(launch.read_text(encoding="utf-8"))
                kernels = metrics.kernels(ncu.raw_page(self.ncu, report))
            except (OSError, ValueError) as error:
                raise Failure(f"{self.program.name} --once wrote no record: {error}") from None
            except metrics.BadReport as error:
                raise Failure(str(error)) from None
            if not kernels:
                raise Failure("ncu's report holds no kernel")
            data = record.make(launched, kernels, self.ncu_version, self._command(version, problem))
            files = self._keep(data, report)
        return data, files, [(kernel.name, kernel.raw) for kernel in kernels]

    def _keep(self, data, report):
        folder = self.options.out or paths.ROOT / "results" / data["environment"]["device"]["slug"] / "profiles"
        kept = keep.publish(folder, record.name(data),
                            {".ncu-rep": report, ".json": json.dumps(data, indent=1) + "\n"})
        return [kept[suffix] for suffix in (".ncu-rep", ".json")]

    def _command(self, version, problem):
        command = f"./ladder profile {self.options.layer} --version {version} --problem {shlex.quote(problem)}"
        command += f" --pass {self.options.pass_}" if self.options.pass_ else ""
        return command + (f" --seed {self.options.seed}" if self.options.seed != "1" else "")

    def _problem(self, version):
        """The asked one, else the first of the layer's set perf; with --dtype or the version's where it names none.

        What the bench does not know (a version, a word of the problem) is left to the bench to say.
        """
        problem = self.options.problem
        if problem is None:
            problems = ladder_records.problems_of_set(paths.ROOT, self.options.layer, "perf")
            if not problems:
                raise UsageError(f"dev/{self.options.layer}/shapes.txt has no set perf; name one with --problem")
            problem = next(iter(problems))
        if set(problem.split()) & set(_DTYPES):
            return problem
        has = self.dtypes.get(version, [])
        dtype = self.options.dtype or (self._preferred(has)[0] if has else "")
        return f"{problem} {dtype}".strip()

    def _preferred(self, has):
        """Dtypes in order; in a comparison those that both versions have come first."""
        shared = set(has)
        for side in self.options.diff or []:
            if isinstance(side, int):
                shared &= set(self.dtypes.get(side, []))
        return sorted(has, key=lambda dtype: (dtype not in shared, _DTYPES.index(dtype)))


def _pass_words(pass_):
    """The bench knows its layer's forward pass."""
    return ["--pass", pass_] if pass_ else []


def listed(program, pass_):
    """{version: [dtypes]} as `bench --list` says. Throws the bench's own line."""
    done = subprocess.run([program, *_pass_words(pass_), "--list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env=tools.environment())
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"{program} --list failed"]
        raise (UsageError if done.returncode == 2 else Failure)(said[-1])
    rows = re.findall(r"^v(\d+)_\w+ +(\w+(?: \w+)*)", done.stdout, re.MULTILINE)
    return {int(number): [word for word in words.split() if word in _DTYPES] for number, words in rows}


def _built(program):
    if setup.ensure(PRESET):
        build.forget(PRESET)
    build.build(PRESET, targets=[program])
    path = build.folder(PRESET) / program
    if not os.access(path, os.X_OK):
        raise Failure(f"the {PRESET} build made no {program}")
    return path
