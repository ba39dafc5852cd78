"""`./ladder try --serve`: candidates come as lines of JSON, verdicts go as lines of JSON."""

import functools
import io
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from cli import json_file, say
from cli.errors import Failure, UsageError

from . import sandbox

FIELDS = {"id", "target", "source", "path", "idea", "parent", "problem", "set", "dtype"}


def serve(tried, jobs, lines=None, out=None):
    """Answers `lines` with what tried(request) returns, a dictionary, or with its error; `jobs` of them at a time."""
    lines, out = lines or io.TextIOWrapper(sys.stdin.buffer, "utf-8", errors="replace"), out or sys.stdout
    lock = threading.Lock()

    def answer(line):
        number = None
        try:
            request = _object(line)
            number = request.get("id")
            _check(request)
            said = tried(request)
        except (UsageError, Failure, OSError) as error:
            said = {"error": say.harmless(error)}
        except KeyboardInterrupt:
            return
        except Exception as error:  # a fault of ours: it costs this candidate, and not the others
            said = {"error": say.harmless(f"{type(error).__name__}: {error}")}
        with lock:
            print(json_file.line({"id": number, **said}), file=out, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for line in lines:
                if line.strip():
                    pool.submit(answer, line)
        except KeyboardInterrupt:
            sandbox.end_all()
            raise
    return 0


def once(function):
    """`function`, called once for each argument, also where threads ask at the same time."""
    cached, lock = functools.cache(function), threading.Lock()

    def call(word):
        with lock:
            return cached(word)

    return call


def _object(line):
    try:
        request = json_file.parse(line)
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from None
    if not isinstance(request, dict):
        raise UsageError("a request is a JSON object")
    return request


def _check(request):
    wrong = [name for name in request if name not in FIELDS]
    wrong += [name for name in FIELDS - {"id", "parent"} if not isinstance(request.get(name, ""), str)]
    if wrong:
        raise UsageError(f"'{wrong[0]}' is no field of a request, or no string; there are: {', '.join(sorted(FIELDS))}")
    if "target" not in request or ("source" in request) == ("path" in request):
        raise UsageError("a request has a target, and a source or a path")
