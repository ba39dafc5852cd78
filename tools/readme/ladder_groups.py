"""Groups of a ladder's table: a group is one pass in one dtype on one set of problems, the U-Net's sets, or perf in a
layer outside the U-Net.

Figures in one column must be over the same shapes: a group's common shapes are those that every broad version passed. A
version without times for more than an eighth of its results is narrow, and has figures over its own shapes only.
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
        self.problems = problems  # {problem without its dtype: its name in shapes.txt}
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
        """Shapes that every broad version has a time for."""
        passed = [{row.shape for row in self.timed(v)} for v in self.versions if self.is_broad(v)]
        return set.intersection(*passed) if passed else set()

    def in_common(self, version):
        """The version's rows on the common shapes; [] if it lacks one of them."""
        rows = [row for row in self.timed(version) if row.shape in self.common]
        return rows if len(rows) == len(self.common) else []

    def step(self, version):
        """Speed-up over the fastest earlier version, geometric mean over the version's own shapes; nan without one."""
        earlier = {}
        for row in self.rows:
            if row.version < version and row.status == "PASS" and row.cold > 0:
                earlier[row.problem] = min(row.cold, earlier.get(row.problem, row.cold))
        return geometric_mean(earlier[row.problem] / row.cold for row in self.timed(version) if row.problem in earlier)


def groups(root, layer, rows):
    """[Group] of the rows of one layer and device, ordered by pass, dtype, set."""
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
    """Returns True if the groups differ in an attribute, so that each label must name it."""
    return len({getattr(group, name) for group in groups}) > 1


def rows_of(groups):
    return [row for group in groups for row in group.rows]
