"""launch() of a ported kernel: the author's launch, after a declaration of each name in it from the pass's tensors and sizes."""

import re

from . import cuda_source, signature
from .constructs import MARK, blanked
from .errors import UsageError

# {first word of a type: its name in Dtype, and in problem lines}
_DTYPES = {"half": ("f16", "fp16"), "nv_bfloat16": ("bf16", "bf16"), "float": ("f32", "fp32")}
_DEFINED = re.compile(
    r"#\s*define\s+(\w+)|\b(?:constexpr|const|enum|using|struct|__device__)\b[^;{}()=]{0,200}?\b(\w+)\s*[=({;]"
)
_AFFIXES = re.compile(r"^(?:(?:d|dev|device|g|gpu|num|n)_|[dp](?=[A-Z])|n(?=rows|cols))|_(?:d|dev|device|gpu|ptr)$")


class PortedLaunch:
    def __init__(self, launch, kernel, a_pass, source, body, is_entry):
        """Declares the names of `launch`, of the item `kernel`, in C++. `body` is the device code that is kept. Names of an
        entry (`is_entry`) are the pass's; else they are the author's, and guessed. Throws UsageError."""
        self._launch, self._is_entry = launch, is_entry
        self.struct, self._tensors, self._sizes = signature.names(a_pass)
        self._known = (
            {name for pair in _DEFINED.findall(blanked(body)) for name in pair} | cuda_source.WORDS | {"stream"}
        )
        before = "" if is_entry else blanked(source)[: launch.offset]
        self._locals = cuda_source.variables(re.split(r"^(?:\S.*\{\s*$|\})", before, flags=re.MULTILINE)[-1])
        self._lines, self._mapped, self._dtypes = [], [], []
        parameters = kernel.parameters
        if len(parameters) != len(launch.arguments):
            raise UsageError(f"{kernel.kernel} takes {len(parameters)} arguments, not {len(launch.arguments)}")
        given = ["float" if word in kernel.template else word for word in launch.template]
        self._template = dict(zip(kernel.template, given + ["float"] * len(kernel.template)))
        kinds = [self._kind(kind) for kind, _ in parameters]
        is_input = sorted(kind.startswith("const") for kind in kinds if "*" in kind)
        self._is_alike = is_input == sorted(self._tensors.values())  # as many const pointers as inputs
        for argument, kind, (_, name) in zip(launch.arguments, kinds, parameters):
            self._declare(argument, kind, name)
        for text in [*self._template.values(), *launch.config[:3]]:
            self._declare(text)
        self.said = ", ".join(self._mapped) or "none"
        word, self.dtype = _DTYPES[(self._dtypes or ["float"])[0]]
        self.cpp_dtype = f"ladder::Dtype::{word}"

    def function(self, symbol):
        template = f"<{', '.join(self._template.values())}>" if self._template else ""
        grid, block, *more = self._launch.config
        smem = f", .dynamic_smem = static_cast<std::size_t>({more[0]})" if more and more[0] != "0" else ""
        lines = [
            f"void launch(const Problem& problem, const {self.struct}::Tensors& tensors, void*, Stream stream) {{",
            *self._lines,
            f"ladder::launch({symbol}{template}, {{.grid = dim3({grid}), .block = dim3({block}){smem}}}, stream,",
            f"               {', '.join(self._launch.arguments)});",
        ]
        return "\n  ".join(lines) + "\n}"

    def _kind(self, text):
        """The type of a parameter without what it promises, in types that are no parameters of the template."""
        kind = re.sub(r"\w+", lambda word: self._template.get(word[0], word[0]), text.partition("__restrict")[0])
        return " ".join(kind.split()).replace(" *", "*")

    def _declare(self, text, kind="", parameter=""):
        """Declares each name in an expression of the launch. `kind` and `parameter` are the kernel's, of an argument."""
        for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*", blanked(text)):
            if name in self._known:
                continue
            self._known.add(name)
            words = [name] if self._is_entry else [name, parameter]
            tensor = self._tensor(words, kind) if "*" in kind else None
            size = None if "*" in kind else self._size(words)
            if tensor:
                self._declare_tensor(name, kind, tensor)
            elif size:
                of_type, expression, _ = self._sizes[size]
                self._lines.append(f"const {of_type} {name} = problem.{expression};")
            elif name in self._locals and "*" not in kind:
                of_type, initializer = self._locals[name]
                self._declare(initializer)
                self._lines.append(f"const {of_type} {name}{' ' * initializer.startswith('=')}{initializer};")
            else:
                said = f"{name} is no tensor or size; there are: {', '.join([*self._tensors, *self._sizes])}"
                if self._is_entry:
                    raise UsageError(f"--entry: {said}")
                self._lines.append(f"{MARK}{said}")
            self._mapped += [f"{name} = {tensor or size}"] if tensor or size else []

    def _declare_tensor(self, name, kind, tensor):
        is_input = self._tensors[tensor] and not kind.startswith("const")
        cast = f"static_cast<{'const ' * is_input}{kind}>(tensors.{tensor})"
        self._lines.append(f"{kind} const {name} = {f'const_cast<{kind}>({cast})' if is_input else cast};")
        self._dtypes += [each for each in _DTYPES if re.match(rf"(?:const )?(?:__)?{each}", kind)]

    def _tensor(self, words, kind):
        """A tensor by its name, or the only one that is an input, or an output, as the kernel's."""
        alike = [name for name, is_input in self._tensors.items() if is_input == kind.startswith("const")]
        guessed = alike if len(alike) == 1 and self._is_alike and not self._is_entry else []
        return next(iter([word for word in self._short(words) if word in self._tensors] + guessed), None)

    def _size(self, words):
        """A size by its name, or by a word of the comment on it in the layer's header."""
        stems = [] if self._is_entry else [word.rstrip("s") for word in self._short(words) if len(word) > 2]
        said = [name for name, (*_, words) in self._sizes.items() for stem in stems if f" {stem}" in f" {words}"]
        return next(iter([word for word in self._short(words) if word in self._sizes] + said), None)

    def _short(self, words):
        """An author's names, also without what they say of memory and counts: "x" for "d_x" and for "X"."""
        short = [*map(str.lower, words), *(_AFFIXES.sub("", word).lower() for word in words)]
        return words if self._is_entry else words + short
