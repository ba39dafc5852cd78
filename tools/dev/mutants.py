"""Bugs as data, tests/mutants/<area>.toml: each is to be planted alone, and caught by the tests of its unit.

A mutant changes one file: its text `before`, which occurs once, becomes `after`. `unit` names the test program, and the
version whose tests run; `filter` is GoogleTest's. The unit `package` is the PyTorch package, and its filter a file or
node of python/tests. `caught_by` is what its author expects.
"""

from dataclasses import dataclass

import tomllib

from cli import paths
from cli.errors import Failure

FOLDER = paths.ROOT / "tests" / "mutants"
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
