"""`./ladder try`: a kernel from an author whom nobody trusts, compiled and run in a sandbox, judged, and kept in the log."""

import argparse
import re
import signal
from pathlib import Path

from registry import listing, selection
from search import definition, log, sandbox, serve, trial

from . import device, interpreter, json_file, paths, plain, plain_python, say
from .errors import UsageError
from .options import Parser, at_least, between

_MOST_SECONDS = 1e6
_MOST_GIB = 1 << 20
_MOST_IDEA = 500  # characters
_MOST_VALUES = 1 << 26  # in the tensors of the problems that are timed where none is named
_MOST_READ = 1 << 26  # characters of a candidate's file
_EXAMPLES = """\
examples:
  ./ladder try silu/forward mine.cu --idea '32 bytes a load' --parent v02
  ./ladder try conv3x3/fprop mine.cu --problem res64 --dtype bf16 --parent 17     made from node 17 of the log
  ./ladder try softmax/forward kernel.cu --entry 'softmax<256><<<m, 256, 0, stream>>>(y, x, n)'     a plain file, on a GPU
  ./ladder try softmax/forward kernel.py:softmax     a Triton or PyTorch function of x and y, or of x alone, on a GPU
  ./ladder try --serve --jobs 2 <requests.jsonl      {"id": 1, "target": "silu/forward", "path": "mine.cu"} a line
docs/try.md says what a candidate may do, what a verdict holds, and what no sandbox can see."""


def main(arguments):
    chosen = _parse(arguments)
    lacking = "" if chosen.unsandboxed else sandbox.lacking()
    if lacking:
        raise UsageError(f"no sandbox: {lacking}; --unsandboxed runs the candidate as you, with all that you may do")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    choice = device.choose(chosen.device)
    say.line(choice)
    limits = trial.Limits(chosen.limit, int(chosen.memory * (1 << 30)), not chosen.unsandboxed)
    if chosen.problem_file:
        return _printed(_tried_by_definition(chosen, choice, limits), chosen, "host code trusted")
    words = _words_of_entry(chosen, choice.preset)
    python = _python(chosen, choice.preset)
    read = python.read if python else ()
    prepared = serve.once(lambda path: trial.prepare(listing.read(paths.ROOT).find(path), choice.preset, words, read))
    if chosen.serve:
        return serve.serve(lambda request: _tried(request, prepared, limits), chosen.jobs)
    request = {"target": chosen.target, "path": chosen.candidate}
    request.update({name: getattr(chosen, name) for name in ("idea", "parent", "problem", "set", "dtype")})
    request.update(_source(chosen, python))
    verdict = _tried(request, prepared, limits, say.progress)
    trust = "GPU only, host code trusted" if chosen.entry or python else ""
    if verdict["device"] == "emulator":
        trust = "right outputs; host code trusted"
    return _printed(verdict, chosen, trust)


def _tried_by_definition(chosen, choice, limits):
    if choice.preset not in paths.CUDA_PRESETS:
        raise UsageError("--problem-file needs a GPU: the reference is PyTorch's, and the emulator has none")
    return definition.tried(
        chosen.problem_file,
        chosen.target,
        limits,
        problem=chosen.problem,
        workloads=chosen.workloads,
        entry=chosen.entry,
        include=[Path(folder).resolve() for folder in chosen.include],
        progress=say.progress,
    )


def _printed(verdict, chosen, trust):
    """Prints the verdict. Returns the exit status."""
    say.close()
    print(json_file.line(verdict) if chosen.json else _readable(verdict, trust), flush=True)
    return 0 if verdict["verdict"] == "PASS" else 1


def _parse(arguments):
    parser = Parser(
        "try",
        description="Compiles and runs a candidate, a version's file, where it reaches neither network, home nor tree; "
        "checks it, times it on a GPU, and adds it to results/search/.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", nargs="?", help=selection.HELP["target"] + "; a layer is its default pass")
    parser.add_argument(
        "candidate",
        nargs="?",
        metavar="candidate.cu",
        help="or kernel.py:FUNCTION, a Triton or PyTorch function of the pass's tensors by name, on a GPU",
    )
    parser.add_argument(
        "--entry",
        metavar="LAUNCH",
        help="for a plain .cu file, on a GPU: a launch or a call with the pass's tensors and sizes by name, and stream",
    )
    parser.add_argument("--when", default="", metavar="CONDITION", help="of a plain file: of the sizes, where it runs")
    parser.add_argument(
        "--include", action="append", default=[], metavar="FOLDER", help="with --entry: of headers; may be repeated"
    )
    parser.add_argument(
        "--problem-file",
        metavar="definition.json",
        help="an op definition of flashinfer-bench or SOL-ExecBench in place of a pass, on a GPU; the candidate is "
        "kernel.py:function, a solution's .json, or a .cu file with --entry",
    )
    parser.add_argument(
        "--workloads", metavar="FILE", help="with --problem-file: a workload a line (default: beside it)"
    )
    parser.add_argument("--idea", help="a sentence; without it the Idea of the file's header")
    parser.add_argument("--parent", metavar="v08|NODE", help="the version or the node of the log that it was made from")
    parser.add_selection("problem", "set", "dtype")
    parser.add_device()
    parser.add_argument("--json", action="store_true", help="the verdict as one line of JSON")
    parser.add_argument("--serve", action="store_true", help="candidates from stdin, verdicts to stdout: JSON lines")
    parser.add_argument("--jobs", type=at_least(1), default=1, metavar="N", help="with --serve: at a time")
    parser.add_argument(
        "--limit",
        type=between(0, _MOST_SECONDS),
        default=300,
        metavar="SECONDS",
        help="to compile it, and to wait for it (default: 300)",
    )
    parser.add_argument(
        "--memory", type=between(0, _MOST_GIB), default=8, metavar="GIB", help="for a process, and for all (default: 8)"
    )
    parser.add_argument("--unsandboxed", action="store_true", help="without bubblewrap: trusts the candidate")
    chosen = parser.parse_args(arguments)
    if chosen.serve and chosen.target:
        raise UsageError("--serve takes its candidates from stdin")
    if chosen.problem_file:
        return _checked_with_definition(chosen)
    if chosen.workloads:
        raise UsageError("--workloads goes with --problem-file")
    if not chosen.serve and not chosen.candidate:
        raise UsageError("try needs a pass and a file: ./ladder try silu/forward mine.cu")
    is_python = chosen.candidate and plain_python.split(chosen.candidate)
    if is_python and (chosen.entry or chosen.include):
        raise UsageError("--entry and --include are for a .cu file")
    if not chosen.entry and (chosen.include or (chosen.when and not is_python)):
        raise UsageError("--when and --include go with --entry")
    return chosen


def _checked_with_definition(chosen):
    others = {"a pass": chosen.candidate, "--serve": chosen.serve, "--parent": chosen.parent, "--when": chosen.when}
    others.update({"--set": chosen.set, "--dtype": chosen.dtype, "--idea": chosen.idea})
    if wrong := [name for name, value in others.items() if value]:
        raise UsageError(f"--problem-file and {wrong[0]} exclude each other")
    if not chosen.target:
        raise UsageError("no candidate: ./ladder try --problem-file definition.json kernel.py:run")
    return chosen


def _words_of_entry(chosen, preset):
    """Compiler options of a plain file. Throws UsageError where it cannot run."""
    if not chosen.entry:
        return []
    if preset not in paths.CUDA_PRESETS:
        raise UsageError(
            "--entry needs a GPU: a plain file is compiled by nvcc alone; "
            f"./ladder port {chosen.candidate} --as {chosen.target} makes a version of it, which runs without one"
        )
    folders = [Path(folder).resolve() for folder in chosen.include]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise UsageError(f"--include {missing[0]}: no such folder")
    return ["--expt-relaxed-constexpr", "--expt-extended-lambda", *(f"-I{folder}" for folder in folders)]


def _python(chosen, preset):
    """The interpreter of a Python function; None for a .cu file. Throws UsageError where it cannot run."""
    if not chosen.candidate or not plain_python.split(chosen.candidate):
        return None
    if preset not in paths.CUDA_PRESETS:
        raise UsageError(f"{chosen.candidate} needs a GPU: a Python function runs on one only")
    return interpreter.find()


def _source(chosen, python):
    """Fields of the request: the source, with the registration that a plain file lacks."""
    file, function = (python and plain_python.split(chosen.candidate)) or (chosen.candidate, "")
    source = _read(file)
    if chosen.entry or python:
        dtypes = selection.dtypes(chosen.dtype or "fp32")
        if len(dtypes) != 1:
            raise UsageError(f"a plain file is judged in one dtype, not '{chosen.dtype}'")
        a_pass = selection.one_pass(listing.read(paths.ROOT), chosen.target)
        name = re.sub(r"[^\w.+-]", "_", Path(file).name)
        if python:
            text = plain_python.candidate(a_pass, source, function, dtypes[0], python, chosen.when, name)
        else:
            text = plain.candidate(a_pass, source, chosen.entry, dtypes[0], chosen.when, name)
        return {"source": text, "dtype": dtypes[0]}
    if "LADDER_VERSION" not in source:
        raise UsageError(
            f"{chosen.candidate} registers no version: --entry says how to launch it, on a GPU; "
            f"./ladder port {chosen.candidate} --as {chosen.target} makes a version of it"
        )
    return {"source": source}


def _tried(request, prepared, limits, progress=lambda text: None):
    """The verdict of a request, as the log has it and with its node."""
    there = listing.read(paths.ROOT)
    a_pass = selection.one_pass(there, request["target"])
    layer = there.layer(a_pass.layer)
    source = request["source"] if "source" in request else _read(request["path"])
    if "\0" in source or source != source.encode("utf-8", "replace").decode():
        raise UsageError("the source is no text")
    parent = _parent(a_pass, request.get("parent"))
    asked = asked_of(layer, request)
    verdict = trial.judge(prepared(a_pass.path), source, asked, limits, progress)
    idea = _idea(request.get("idea") or listing.header(source).get("idea", ""))
    record = {name: verdict.get(name) for name in _LOGGED}
    # Times are compared where these two are the same.
    record["problem"] = record["problem"] or asked.name
    timed = {one["dtype"] for one in verdict["times"]}
    record["dtype"] = record["dtype"] or ",".join(sorted(timed) or asked.dtypes) or None
    record.update(parent=parent, idea=idea, source=source)
    # A file that is no program is no step of a search.
    node = log.append(a_pass.layer, a_pass.name, record) if verdict.pop("compiled", True) else None
    return {"target": a_pass.path, "node": node, "parent": parent, "idea": idea, **verdict}


_LOGGED = "verdict reason problem dtype device us cold_us baseline baseline_us ratio error wall_s".split()


def _idea(text):
    """`text` as a terminal and the log may have it; of a long one the beginning, and its digest."""
    if len(text) > _MOST_IDEA:
        text = f"{text[:_MOST_IDEA]}... ({log.digested(text)})"
    return say.harmless(text)


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST_READ + 1)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if len(text) > _MOST_READ:
        raise UsageError(f"{path} is longer than {_MOST_READ} characters")
    return text


def _parent(a_pass, word):
    """A version that is there, as "v08", or a node's number; None for nothing."""
    if word is None:
        return None
    version = re.fullmatch(r"[vV](\d{1,2})", str(word))
    if version and int(version[1]) in a_pass.numbers:
        return f"v{int(version[1]):02d}"
    nodes = [node["node"] for node in log.read(a_pass.layer, a_pass.name)[0]]
    if re.fullmatch(r"[0-9]{1,9}", str(word)) and int(word) in nodes:
        return int(word)
    has = ", ".join(f"v{number:02d}" for number in a_pass.numbers)
    raise UsageError(f"no parent '{word}': {a_pass.path} has {has}, and {len(nodes)} nodes in its log")


def asked_of(layer, request):
    dtypes = tuple(selection.dtypes(request["dtype"])) if request.get("dtype") else ()
    if request.get("problem") and request.get("set"):
        raise UsageError("a problem and a set exclude each other")
    if request.get("problem"):
        line = selection.problem(layer, request["problem"])
        return trial.Asked(line, problems=(line,), dtypes=dtypes, timed=(line,))
    if request.get("set"):
        name = selection.set_name([layer], request["set"])
        return trial.Asked(name, sets=(name,), dtypes=dtypes, timed=tuple(layer.sets[name].values()))
    known = tuple(name for name in trial.Asked.sets if name in layer.sets)
    tables = listing.sets_of_tables(paths.ROOT, layer.name)
    timed = [line for cases in tables.values() for line in cases.values()]
    timed = tuple(dict.fromkeys(timed))
    return trial.Asked(", ".join(tables or known), sets=known, dtypes=dtypes, timed=timed, most_values=_MOST_VALUES)


def _readable(verdict, trust):
    node = f" node {verdict['node']}" if verdict["node"] else ""
    trusted = f": {trust}" if verdict["verdict"] == "PASS" and trust else ""
    what = [f"{verdict['target']}{node}: {verdict['verdict']}{trusted}"]
    what += [f"  {verdict['reason']}"] if verdict["reason"] else []
    if verdict.get("problem"):
        of = [verdict["problem"], verdict.get("plan"), verdict.get("schedule") and f"schedule {verdict['schedule']}"]
        what.append(f"  on {', '.join(filter(None, of))}; seed {verdict['seed']}")
    for one in verdict["times"]:
        beside = f"; {one['promoted_us']:.2f} us {one['promoted']} (promoted)" if one["promoted_us"] else ""
        beside += f"; {one['baseline_us']:.2f} us {one['baseline']}" if one["baseline_us"] else ""
        timed = f"{one['cold_us']:.2f} us cold, {one['us']:.2f} us warm" if one["us"] else "not for it"
        what.append(f"  {one['problem']}: {timed}{beside}")
    if verdict.get("untimed"):
        what.append(f"  not timed, as they are large (--problem times one): {'; '.join(verdict['untimed'])}")
    if "checked" in verdict:
        what.append(f"  checked {verdict['checked']} of {verdict['problems']} problems, {verdict['wall_s']:.1f} s")
    return "\n".join(what)
