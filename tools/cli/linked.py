"""The test programs of a build, and the digest of everything that decides the result of a unit of them: the tokens and
options of each source whose object is linked in, and the data files that the program may read."""

import hashlib
import os
import re

from . import digests, paths, tokens

_LINK = re.compile(r"^build (\S+): \w+_EXECUTABLE_LINKER__\w+ (.*)\n((?:  .*\n)*)", re.MULTILINE)
_LINK_FLAGS = re.compile(r"^  (?:FLAGS|LINK_FLAGS|LINK_LIBRARIES) =( .*)", re.MULTILINE)
_GENERATED_HEADER = re.compile(r"^build (?:[^:|\n]* )?(\S+\.h)\b[^:\n]*: CUSTOM_COMMAND", re.MULTILINE)
_VERSION = re.compile(r"(dev/(\w+)/\w+/v\d\d_\w+)\.cu$")
# Variables of the command line, which no test program reads.
_NOT_READ = ("LADDER_CACHE", "LADDER_NEEDS_SANDBOX", "LADDER_STARTED")


class Build:
    def __init__(self, folder, root=paths.ROOT):
        """Read build.ninja of the build in `folder`, which is up to date."""
        text = (folder / "build.ninja").read_text(encoding="utf-8")
        self._folder, self._root = folder, root
        self._links = {output: (inputs.split(), variables) for output, inputs, variables in _LINK.findall(text)}
        self.generated_headers = _GENERATED_HEADER.findall(text)
        self.programs = {path.name: path for path in map(folder.joinpath, self._links) if path.name[:5] == "test_"}
        self._tokens = tokens.Tokens(folder, root)

    def digests(self, units):
        """{unit: digest}, without the units of which a source cannot be preprocessed."""
        linked = {unit: self._linked(unit) for unit in units}
        of_objects = self._tokens.of(sorted(set().union(*(objects for objects, _ in linked.values()))))
        return {
            unit: self._digest(unit, objects, flags, of_objects)
            for unit, (objects, flags) in linked.items()
            if of_objects.keys() >= objects
        }

    def _linked(self, unit):
        """(objects, link flags) of the unit's program and of programs that are built with it, without the other versions of
        the unit's layer, unless its version has them do its work."""
        objects, flags, seen = set(), [], set()
        ahead = [str(self.programs[unit.program].relative_to(self._folder))]
        while ahead:
            output = ahead.pop()
            if output in seen or output not in self._links:
                continue
            seen.add(output)
            inputs, variables = self._links[output]
            objects |= {name for name in inputs if name.endswith(".o")}
            flags += map(tokens.of_code, _LINK_FLAGS.findall(variables))
            ahead += inputs
        if unit.version and not digests.hands_on(self._root / "dev" / f"{unit.version}.cu", self._root):
            objects = {each for each in objects if not self._is_other_version(each, unit)}
        return objects, flags

    def _is_other_version(self, target, unit):
        found = _VERSION.match(self._tokens.source(target))
        return found and found[1] != f"dev/{unit.version}" and found[2] == unit.version.partition("/")[0]

    def _digest(self, unit, objects, flags, of_objects):
        sources = {self._tokens.source(each) for each in objects}
        facts = [
            unit.key,
            *sorted(set(filter(None, flags))),
            *(f"{each} {of_objects[each]}" for each in sorted(objects)),
        ]
        facts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if _is_read(name)]
        digest = hashlib.sha256("\n".join(facts).replace(str(self._root), ".").encode())
        for name, content in self._data(unit, sources):
            digest.update(f"\n{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:20]

    def _data(self, unit, sources):
        """(name, content) of the files that the unit's program, of these sources, may read; it may show lines of the source
        that has its name."""
        folders = {source.partition("/")[0] for source in sources}
        layers = {source.split("/")[1] for source in sources if source.startswith("dev/")}
        patterns = ["tests/golden/*", f"tests/{unit.program}.cpp", *(f"dev/{layer}/shapes.txt" for layer in layers)]
        patterns += [f"{folder}/*.json" for folder in folders & {"bench", "policy", "train"}]
        if "reference/baseline_worker.cpp" in sources and not unit.version:
            patterns.append("reference/pytorch/*.py")
        for path in sorted({path for pattern in patterns for path in self._root.glob(pattern)}):
            yield path.relative_to(self._root), path.read_bytes()
        if "runtime/promoted.cpp" in sources:
            for path in sorted(self._root.glob("runtime/promoted/*.txt")):
                yield path.relative_to(self._root), self._promotions(path, layers)

    def _promotions(self, path, layers):
        """The lines of a promotion table without those of layers that the program does not have."""
        other = {folder.name for folder in self._root.glob("dev/*")} - layers
        lines = path.read_bytes().splitlines()
        return b"\n".join(line for line in lines if line.partition(b"/")[0].decode(errors="replace") not in other)


def _is_read(name):
    return name.startswith(("LADDER_", "GTEST_")) and name not in _NOT_READ
