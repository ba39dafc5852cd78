"""Names of a pass's tensors and of its problem's fields, from dev/<layer>/<layer>.h, and what an author's names mean."""

import re
from dataclasses import dataclass, field

from . import paths, signature

_FIELD = re.compile(
    r"^  (int|unsigned|float|double|bool|std::int64_t) (\w+) = [^;]*;[ \t]*(?://[ ]*(.*))?$", re.MULTILINE
)
_METHOD = re.compile(r"^  (int|bool|float|double|std::int64_t) (\w+)\(\) const\b", re.MULTILINE)
_AFFIXES = re.compile(r"^(?:d|dev|device|g|gpu|num|n)_|_(?:d|dev|device|gpu|ptr)$|^p(?=[A-Z])|^d(?=[A-Z])")


@dataclass
class Names:
    sizes: dict = field(default_factory=dict)  # {name: (type, C++ expression, comment)}
    tensors: dict = field(default_factory=dict)  # {name: is an input}

    @property
    def all(self):
        return [*self.tensors, *self.sizes, "stream"]

    def size(self, *words):
        """The name of the size that the first of an author's names stands for, by its name or its comment; None."""
        for word in words:
            short = _AFFIXES.sub("", word).lower()
            if word in self.sizes or short in self.sizes:
                return word if word in self.sizes else short
            stem = short.rstrip("s")
            for name, (_, _, comment) in self.sizes.items():
                if len(stem) > 2 and any(each.startswith(stem) for each in re.findall(r"[a-z]+", comment)):
                    return name
        return None

    def tensor(self, *words):
        """The name of the tensor that one of an author's names is, or None."""
        candidates = [*words, *map(str.lower, words), *(_AFFIXES.sub("", word).lower() for word in words)]
        return next((word for word in candidates if word in self.tensors), None)


def of_pass(layer, pass_name):
    text = (paths.ROOT / "dev" / layer / f"{layer}.h").read_text(encoding="utf-8")
    problem = re.search(r"^struct Problem \{.*?^\};", text, re.MULTILINE | re.DOTALL)[0]
    names = Names()
    for kind, name, comment in _FIELD.findall(problem):
        names.sizes[name] = (kind, f"problem.{name}", re.split("[,;:]", comment)[0])
    for kind, name in _METHOD.findall(problem):
        names.sizes[name] = (kind, f"problem.{name}()", "")
    tensors = re.search(
        rf"^struct {signature.struct(pass_name)} \{{.*?^  struct Tensors \{{(.*?)^  \}};", text, re.M | re.S
    )
    for constant, _, declared in re.findall(
        r"^    (const |)(\w+)\s*(\*[^;]*);", tensors[1] if tensors else "", re.MULTILINE
    ):
        for one in declared.split(","):
            names.tensors[re.search(r"\w+", one)[0]] = bool(constant)
    return names
