"""`./ladder check <layer>/<pass> --version N`: the quick edit-check loop for a kernel's author, without a GPU. Runs the
version's ci problems and a few random ones on the emulator, while nvcc compiles its file: registers, shared memory,
spills."""

import sys
from concurrent.futures import ThreadPoolExecutor

from dev import resources
from registry import listing, selection

from . import bench, build, constructs, paths, race, say, setup, watch
from .errors import Failure, UsageError
from .options import Parser

_PRESET = "cuda"
_RANDOM = 5  # random problems, if no problem, set or dtype is named


def main(arguments):
    parser = Parser(
        "check",
        description="Checks versions on the emulator, on the problems of the set ci and on a few random ones, and compiles them "
        "with nvcc where it is installed. A spill that the version's header does not admit is a failure.",
    )
    parser.add_argument("target", help=selection.HELP["target"] + "; a layer is its default pass")
    parser.add_selection("version", "set", "dtype")
    parser.add_argument("--problem", action="append", default=[], help=selection.HELP["problem"] + "; may be repeated")
    parser.add_argument(
        "--order",
        action="store_true",
        help="also name races, whatever values come out: preset order, two to four times slower",
    )
    parser.add_watch()
    chosen = parser.parse_args(arguments)
    a_pass = selection.one_pass(listing.read(paths.ROOT), chosen.target)
    if not chosen.version:
        raise UsageError(f"check needs --version; {a_pass.path} has {', '.join(v.label for v in a_pass.versions)}")
    sources = [version.file for version in selection.versions(a_pass, chosen.version)]
    if chosen.watch:
        return watch.repeated("check", arguments)
    lacking = [(source, *each) for source in sources for each in constructs.scan(source.read_text(encoding="utf-8"))]
    for source, line, word, instead in lacking:
        say.line(f"{source.relative_to(paths.ROOT)}:{line}: the emulator has no {word}: {instead}")
    if lacking:
        return 1
    with ThreadPoolExecutor(1) as beside:
        compiled = beside.submit(_compiled, sources)
        try:
            status = bench.main(_words(a_pass, chosen), False, race.PRESET if chosen.order else None)
        except Failure as failure:
            say.line(failure)
            status = 1
        say.progress("waiting for nvcc")
        return max(status, _report(sources, *compiled.result()))


def _words(a_pass, chosen):
    """Arguments of the bench verb, for _RANDOM problems or those chosen."""
    words = [a_pass.path, f"--version={chosen.version}", *(f"--problem={problem}" for problem in chosen.problem)]
    if chosen.set or not chosen.problem:
        words.append(f"--set={chosen.set or 'ci'}")
    words += [f"--dtype={chosen.dtype}"] if chosen.dtype else []
    words += [] if chosen.set or chosen.problem or chosen.dtype else [f"--random={_RANDOM}"]
    return [*words, "--check", "--device=emulator"]


def _compiled(sources):
    """Compiles the sources with nvcc. Returns (success, nvcc's output), or (None, reason) without an nvcc."""
    if not setup.has_nvcc():
        return None, "no nvcc, so no registers, shared memory or spills; ./ladder setup --preset cuda fetches it"
    folder = build.folder(_PRESET)
    return build.compiled(_PRESET, [resources.object_of(source, folder).relative_to(folder) for source in sources])


def _report(sources, well, words):
    if well is None:
        say.line(words)
        return 0
    say.close()
    print(words, end="", file=sys.stderr)
    if not well:
        say.line("nvcc does not compile it")
        return 1
    kernels, wrong = resources.of_files(sources, build.folder(_PRESET))
    print(f"\n{resources.table(kernels)}" if kernels else "no kernels")
    for line in wrong + resources.complaints(kernels, lambda file: (paths.ROOT / file).read_text(encoding="utf-8")):
        say.line(line)
        well = False
    return 0 if well else 1
