"""Results of units of tests (linked.py says by which digest), so that nothing runs again that is as it was.

Each lies in a small file of its own in folder(), which clones share. tests/kept_results.json is a copy for machines that
have none yet. A unit that failed has a result as well, which counts as none but outdoes the copy's.
"""

import datetime
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from . import files, paths, say, tokens, tools
from .errors import Failure

SCHEMA = "ladder.kept_results/1"
COPY = paths.ROOT / "tests" / "kept_results.json"
_MOST_OF_A_UNIT = 20  # results, the newest: those of the branches that somebody works on
_RUN_AGAIN = 30  # the oldest of so many results is not relied on


@dataclass(frozen=True)
class Result:
    digest: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    date: str  # "2026-01-31T12:00:00", in UTC


class Results:
    def __init__(self, since="", copy=None):
        """Count only results that were kept `since` a date."""
        self._since, self._copy = since, copy or COPY
        self._session = {}  # key -> Result that this run found or made
        try:
            raw = json.loads(self._copy.read_text(encoding="utf-8"))
            if raw["schema"] != SCHEMA:
                raise ValueError
            self._compiler, date = raw["compiler"], raw["date"]
            self._copied = {
                key: Result(digest, passed, 0, skipped, seconds, date)
                for key, (digest, passed, skipped, seconds) in raw["results"].items()
            }
        except (OSError, ValueError, KeyError, TypeError):
            self._compiler, self._copied = "", {}

    def divide(self, units, of_units):
        """(units to run, the longest first, {unit: Result} of the others) by the digests `of_units`."""
        kept = {unit: result for unit in units if (result := self._find(unit.key, of_units.get(unit)))}
        if not self._since:
            today = now()[:10]
            by_age = sorted(
                kept, key=lambda unit: (kept[unit].date, hashlib.sha256(f"{today}{unit.key}".encode()).digest())
            )
            for unit in by_age[: len(kept) // _RUN_AGAIN]:
                del kept[unit]
        self._session |= {unit.key: result for unit, result in kept.items()}
        waiting = [unit for unit in units if unit not in kept]
        return sorted(waiting, key=lambda unit: -(self.seconds(unit) or float("inf"))), kept

    def seconds(self, unit):
        """The unit's last time in seconds, None for an unknown one."""
        known = [result for result, _ in _newest_first(unit.key)[:1]] or [self._copied.get(unit.key)]
        return known[0] and known[0].seconds

    def keep(self, unit, digest, counts, seconds):
        """Keep the result of a run; one without failures enters the copy too."""
        result = Result(digest, counts.passed, counts.failed, counts.skipped, round(seconds, 1), now())
        path = _file(unit.key, digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.replace(path, json.dumps(asdict(result)) + "\n")
        except OSError as error:
            raise Failure(f"no results are kept in {folder()}: {error}; LADDER_CACHE names another folder") from None
        for _, old in _newest_first(unit.key)[_MOST_OF_A_UNIT:]:
            old.unlink(missing_ok=True)
        if not result.failed:
            self._session[unit.key] = result

    def write_copy(self):
        """Write the results that this run knows, and the copy's of presets that did not run."""
        presets = {key.partition(" ")[0] for key in self._session}
        others = {key: result for key, result in self._copied.items() if key.partition(" ")[0] not in presets}
        results = sorted((others | self._session).items())
        rows = [f"  {json.dumps(key)}: {json.dumps([r.digest, r.passed, r.skipped, r.seconds])}" for key, r in results]
        head = json.dumps({"schema": SCHEMA, "compiler": _compiler(), "date": now()}, indent=1)[:-2]
        files.replace(self._copy, head + ',\n "results": {\n' + ",\n".join(rows) + "\n }\n}\n")
        say.line(f"wrote {self._copy.name} with {len(rows)} results; commit it for machines that have none")

    def say_if_of_another_compiler(self):
        if self._copied and self._compiler != _compiler():
            minutes = sum(result.seconds for result in self._copied.values()) / cores() / 60
            say.line(
                f"{self._copy.name} is of {self._compiler}, this is {_compiler()}: all runs that has no result of this "
                f"compiler in {folder()}, about {minutes:.0f} min"
            )

    def _find(self, key, digest):
        if not digest:
            return None
        result = _read(_file(key, digest)) or self._copied.get(key)
        good = result and result.digest == digest and not result.failed and result.date >= self._since
        return result if good else None


def folder():
    cache = (
        os.environ.get("LADDER_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ladder"
    )
    return Path(cache).absolute() / "tests"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def cores():
    return len(os.sched_getaffinity(0))


def _compiler():
    return tokens.compiler(*tools.cxx())


def _file(key, digest):
    return folder() / key.replace(" ", "/") / f"{digest}.json"


def _newest_first(key):
    """[(Result, its file)] of a unit."""
    found = [(result, path) for path in _file(key, "").parent.glob("*.json") if (result := _read(path))]
    return sorted(found, key=lambda each: each[0].date, reverse=True)


def _read(path):
    try:
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
