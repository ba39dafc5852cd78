"""`./ladder profile <layer> --version N`: Nsight Compute on exactly one launch, with its figures interpreted."""

import json
import os
import shlex
import tempfile
from pathlib import Path

from cli import build, device, partial, paths, say
from cli.errors import Failure, UsageError
from cli.options import Parser, filled
from registry import listing, selection

from . import keep, metrics, ncu, record, show

PRESET = "profile"  # the GPU build, with source lines
_DTYPES = ("bf16", "fp16", "tf32", "fp32")  # order of preference: tensor-core dtypes first


def main(arguments):
    options = _parse(arguments)
    sides = options.diff or [options.version]
    profiler = None if all(isinstance(side, Path) for side in sides) else _Profiler(options, sides)
    profiles = []
    for side in sides:
        if isinstance(side, Path):
            profiles.append(record.read(side))
            continue
        data, files, raw = profiler.profile(side)
        print(show.profile(data, files, raw if options.full else ()) + "\n" * bool(options.diff), flush=True)
        profiles.append(data)
    if options.diff:
        print(show.difference(*map(record.side, profiles), record.UNITS))
    return 0


def _parse(arguments):
    parser = Parser("profile", description="Nsight Compute on exactly one launch, and what its figures say.")
    parser.add_argument(
        "target", nargs="?", metavar="layer", help=selection.HELP["target"] + "; a layer is its default pass"
    )
    parser.add_selection("version")
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar=("A", "B"),
        help="two versions side by side; a profile's .json is read instead of measured",
    )
    parser.add_argument("--pass", dest="pass_", metavar="PASS", help="as in <layer>/<pass>")
    parser.add_argument(
        "--problem",
        type=filled("problem"),
        help=selection.HELP["problem"] + " (default: the first of the layer's set perf)",
    )
    parser.add_argument("--dtype", help="one (default: the first of " + ", ".join(_DTYPES) + " that the version has)")
    parser.add_argument("--seed", type=selection.seed, default=1, help="of the inputs (default: 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: results/<device>/profiles")
    parser.add_argument("--full", action="store_true", help="list every metric of the report as well")
    options = parser.parse_args(arguments)
    if bool(options.version) == bool(options.diff):
        raise UsageError("profile: one of --version V and --diff A B, as in ./ladder profile conv3x3 --version 7")
    if options.dtype and options.dtype not in _DTYPES:
        raise UsageError(f"profile: --dtype {options.dtype}: one of {', '.join(_DTYPES)}")
    if options.diff and all(_is_file(side) for side in options.diff):
        options.diff = [Path(side) for side in options.diff]
        return options
    there = listing.read(paths.ROOT)
    if not options.target:
        raise UsageError(f"profile needs a layer; there are: {', '.join(layer.name for layer in there.layers)}")
    options.chosen = selection.one_pass(there, options.target, options.pass_)
    if options.diff:
        options.diff = [Path(side) if _is_file(side) else _version(options.chosen, side) for side in options.diff]
    else:
        options.version = _version(options.chosen, options.version)
    options.problem = _problem_line(there.layer(options.chosen.layer), options.problem)
    return options


def _is_file(word):
    return word.endswith(".json")


def _version(a_pass, word):
    found = selection.versions(a_pass, word)
    if len(found) != 1 or word in ("all", "best"):
        raise UsageError(
            f"profile: version '{word}': one, as in 7; that is {', '.join(version.label for version in found)}"
        )
    return found[0]


def _problem_line(layer, text):
    """The problem line of --problem, else the first of the layer's set perf."""
    if text is not None:
        return selection.problem(layer, text)
    problems = layer.sets.get("perf")
    if not problems:
        raise UsageError(f"dev/{layer.name}/shapes.txt has no set perf; name a problem with --problem")
    return next(iter(problems.values()))


class _Profiler:
    """Profiles versions of one pass: holds ncu, the program and the options that they share."""

    def __init__(self, options, sides):
        self.options = options
        self.versions = [side for side in sides if isinstance(side, listing.Version)]
        name, why = device.gpu()
        if name is None:
            raise Failure(f"profile needs a GPU: {why}")
        self.ncu = ncu.find()
        self.ncu_version = ncu.version(self.ncu)
        say.line(f"{PRESET} build ({name}), ncu {self.ncu_version or '(unknown version)'}: {self.ncu}")
        self.program = _built(options.chosen, self.versions)

    def profile(self, version):
        """Profiles a listing.Version, keeps the files. Returns (profile, files, [(kernel's name, raw metrics)])."""
        problem = self._problem(version)
        with tempfile.TemporaryDirectory(prefix="ladder-profile-") as folder:
            report, launch, log = (Path(folder) / name for name in ("launch.ncu-rep", "launch.json", "ncu.log"))
            program = [str(self.program), "--pass", self.options.chosen.name, "--version", str(version.number)]
            program += ["--problem", problem, "--seed", str(self.options.seed)]
            program += ["--dtype", self.options.dtype] if self.options.dtype else []
            program += ["--once", "--record", str(launch)]
            ncu.profile(self.ncu, self.options.chosen.layer, program, report, log)
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
        kept = keep.publish(folder, record.name(data), {".ncu-rep": report, ".json": json.dumps(data, indent=1) + "\n"})
        return [kept[suffix] for suffix in (".ncu-rep", ".json")]

    def _command(self, version, problem):
        command = (
            f"./ladder profile {self.options.chosen.path} --version {version.number} --problem {shlex.quote(problem)}"
        )
        return command + (f" --seed {self.options.seed}" if self.options.seed != 1 else "")

    def _problem(self, version):
        """The problem line; if it names no dtype, --dtype or the version's preferred dtype is added."""
        problem = self.options.problem
        if selection.dtype_of(problem):
            return problem
        dtype = self.options.dtype or (self._preferred(version) or [""])[0]
        return f"{problem} {dtype}".strip()

    def _preferred(self, version):
        """The version's dtypes in order of preference; in a comparison, dtypes of both versions come first."""
        shared = set.intersection(*(set(each.dtypes) for each in self.versions))
        return sorted(version.dtypes, key=lambda dtype: (dtype not in shared, _DTYPES.index(dtype)))


def _built(a_pass, versions):
    """Builds the layer's program with these versions alone. Returns its path. Throws Failure."""
    program, numbers = f"bench_{a_pass.layer}", [version.number for version in versions]
    part = partial.of(program, {a_pass.path: versions}, ",".join(map(str, numbers)))
    for broken in build.build(PRESET, targets=[program], keep_going=True, part=part):
        if broken.path == a_pass.path and broken.number in numbers:
            raise Failure(broken.line)
    path = build.program(PRESET, program, part)
    if not os.access(path, os.X_OK):
        raise Failure(f"the {PRESET} build made no {program}")
    return path
