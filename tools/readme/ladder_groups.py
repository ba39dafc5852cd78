"""What the rows of a ladder's table have in common: a group is one pass in one dtype on one of the U-Net's sets of problems,
or on perf in a layer that the U-Net has not.

A column of a table is over one set of shapes, so a group names the shapes that its times are of: those that every broad
version passed. A version that skips more than an eighth of what it was run on is narrow, and has figures over its own
shapes only.
"""

from functools import cached_property

from records.record_files import geometric_mean
from registry import listing
from registry.listing import DTYPES

_LEAST_BROAD = 7 / 8


class Group:
    def __init__(self, path, dtype, set_name, problems, rows):
        self.path = path
        self.dtype = dtype
        self.set_name = set_name
        self.problems = problems  # {problem without its dtype: the name in shapes.txt}
        self.rows = rows
        self.versions = sorted({row.version for row in rows})

    @property
    def is_of_unet(self):
        return listing.is_of_unet(self.set_name)

    @property
    def num_measured(self):
        return len({row.shape for row in self.rows})

    def of(self, version):
        return [row for row in self.rows if row.version == version]

    def timed(self, version):
        return [row for row in self.of(version) if row.status == "PASS" and row.cold > 0]

    def is_broad(self, version):
        return len(self.timed(version)) >= _LEAST_BROAD * len(self.of(version))

    @cached_property
    def common(self):
        """The problems that the group's times are of."""
        passed = [{row.shape for row in self.timed(v)} for v in self.versions if self.is_broad(v)]
        return set.intersection(*passed) if passed else set()

    def in_common(self, version):
        """The version's rows on the common problems; none where it has not all of them."""
        rows = [row for row in self.timed(version) if row.shape in self.common]
        return rows if len(rows) == len(self.common) else []

    def step(self, version):
        """How many times as fast as the fastest version before it, over its own shapes; nan where there is none."""
        earlier = {}
        for row in self.rows:
            if row.version < version and row.status == "PASS" and row.cold > 0:
                earlier[row.problem] = min(row.cold, earlier.get(row.problem, row.cold))
        return geometric_mean(earlier[row.problem] / row.cold for row in self.timed(version) if row.problem in earlier)


def groups(root, layer, rows):
    """The groups of the rows of one layer and device, in the tables' order: pass by pass, dtype by dtype, set by set."""
    sets = listing.sets_of_tables(root, layer)
    found = []
    for path, dtype in sorted({(row.path, row.dtype) for row in rows}, key=_order):
        for name, problems in sets.items():
            names = {problem: label for label, problem in problems.items()}
            chosen = [row for row in rows if (row.path, row.dtype) == (path, dtype) and row.shape in names]
            if chosen:
                found.append(Group(path, dtype, name, names, chosen))
    return found


def _order(key):
    path, dtype = key
    return path, (*DTYPES, dtype).index(dtype)


def differ(groups, name):
    """Whether the groups have several of an attribute, so that each has to say its own."""
    return len({getattr(group, name) for group in groups}) > 1


def rows_of(groups):
    return [row for group in groups for row in group.rows]
