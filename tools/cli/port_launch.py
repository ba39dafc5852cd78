"""launch() of a ported kernel: the author's launch, after declarations of all names in it from the pass's tensors and sizes."""

import re

from . import cuda_source
from .constructs import MARK, blanked
from .errors import UsageError

# {type of an element: its name in Dtype, and in problem lines}
_DTYPES = {
    "float": ("f32", "fp32"),
    "half": ("f16", "fp16"),
    "__half": ("f16", "fp16"),
    "nv_bfloat16": ("bf16", "bf16"),
    "__nv_bfloat16": ("bf16", "bf16"),
}
_WORDS = set(
    "dim3 sizeof static_cast reinterpret_cast const_cast const unsigned int long size_t float double bool char short void "
    "true false nullptr NULL std min max int32_t uint32_t int64_t uint64_t half2 __half2 __nv_bfloat162 float2 float4".split()
)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_DEFINED = re.compile(
    r"#\s*define\s+(\w+)|\b(?:constexpr|const|enum|using|struct|__device__)\b[^;{}()=]*?\b(\w+)\s*[=({;]"
)


class PortedLaunch:
    def __init__(self, launch, kernel, names, source, body, is_entry):
        """Declares the names of `launch`, of the item `kernel`, in C++. `body` is the device code that is kept. In an entry
        (`is_entry`) names are the pass's; else they are the author's, and guessed. Throws UsageError."""
        self._launch, self._names, self._is_entry = launch, names, is_entry
        self._known = {name for pair in _DEFINED.findall(blanked(body)) for name in pair} | _WORDS
        self._locals = {} if is_entry else cuda_source.declarations(_before(source, launch))
        self._lines, self._declared, self._dtypes, self._mapped = [], {"stream"}, [], []
        parameters = kernel.parameters
        if len(parameters) != len(launch.arguments):
            counts = f"takes {len(parameters)} arguments; the launch has {len(launch.arguments)}"
            raise UsageError(f"{launch.kernel} {counts}: '{', '.join(launch.arguments)}'")
        missing = ["float"] * (len(kernel.template) - len(launch.template))
        self._template = launch.template + missing
        types = dict(zip(kernel.template, self._template))
        for argument, (kind, name) in zip(launch.arguments, parameters):
            kind = re.sub(r"\s*\b__restrict(?:__)?\b", "", kind)
            self._declare(argument, re.sub(r"\w+", lambda word: types.get(word[0], word[0]), kind).strip(), name)
        for text in [*self._template, *launch.config[:3]]:
            self._declare(text)

    @property
    def dtypes(self):
        return ", ".join(f"ladder::Dtype::{_DTYPES[each][0]}" for each in self._elements)

    @property
    def needs(self):
        return ", ".join(_DTYPES[each][1] for each in self._elements)

    @property
    def said(self):
        return f"its names: {', '.join(self._mapped) or 'none'}"

    @property
    def _elements(self):
        return list(dict.fromkeys(self._dtypes)) or ["float"]

    def function(self, symbol, struct):
        template = f"<{', '.join(self._template)}>" if self._template else ""
        grid, block, *more = self._launch.config
        smem = f", .dynamic_smem = static_cast<std::size_t>({more[0]})" if more and more[0] != "0" else ""
        problem, tensors = (
            word if any(f"{word}." in line for line in self._lines) else "" for word in ("problem", "tensors")
        )
        lines = [
            f"void launch(const Problem& {problem}, const {struct}::Tensors& {tensors}, void*, Stream stream) {{",
            *(f"  {line}" for line in self._lines),
            f"  ladder::launch({symbol}{template}, {{.grid = dim3({grid}), .block = dim3({block}){smem}}}, stream,",
            f"                 {', '.join(self._launch.arguments)});",
            "}",
        ]
        return "\n".join(lines).replace("& ,", "&,") + "\n"

    def _declare(self, text, kind="", parameter=""):
        """Declares every name in an expression of the launch. `kind` and `parameter` are those of the kernel."""
        for name in _NAME.findall(blanked(text)):
            if name not in self._declared and name not in self._known:
                self._declared.add(name)
                self._declare_name(name, kind, parameter)

    def _declare_name(self, name, kind, parameter):
        words = [name] if self._is_entry else [name, parameter] if parameter else [name]
        tensor = self._tensor(words, kind) if "*" in kind else None
        size = None if "*" in kind else name if self._is_entry else self._names.size(*words)
        if tensor:
            self._declare_tensor(name, kind, tensor)
        elif size in self._names.sizes:
            of_type, expression, _ = self._names.sizes[size]
            self._lines.append(f"const {of_type} {name} = {expression};")
            self._mapped.append(f"{name} = {size}")
        elif name in self._locals and "*" not in kind:
            of_type, initializer = self._locals[name]
            self._declare(initializer)
            is_assigned = initializer.startswith("=")
            self._lines.append(f"const {of_type} {name}{' ' if is_assigned else ''}{initializer};")
        else:
            there = f"the pass has {', '.join(self._names.all)}"
            if self._is_entry:
                raise UsageError(f"--entry: '{name}' is no tensor, size or constant; {there}")
            self._lines.append(f"{MARK}{name}: no tensor or size of that name; {there}")

    def _tensor(self, words, kind):
        """The name of a tensor: by its own, else the only one left that is an input, or an output, as the kernel's is."""
        tensors = self._names.tensors
        if self._is_entry:
            return words[0] if words[0] in tensors else None
        left = [name for name, is_input in tensors.items() if is_input == kind.startswith("const")]
        return self._names.tensor(*words) or (left[0] if len(left) == 1 else None)

    def _declare_tensor(self, name, kind, tensor):
        is_const = kind.startswith("const")
        cast = f"static_cast<{kind}>(tensors.{tensor})"
        if self._names.tensors[tensor] and not is_const:
            cast = f"const_cast<{kind}>(static_cast<const {kind}>(tensors.{tensor}))"
        self._lines.append(f"{kind} const {name} = {cast};")
        self._mapped.append(f"{name} = {tensor}")
        element = re.sub(r"const\b|[\s*]", "", kind)
        element = {"float2": "float", "float4": "float", "half2": "half", "__half2": "half"}.get(element, element)
        self._dtypes += [element] if element in _DTYPES else []


def _before(source, launch):
    """The code of the function with the launch, up to it."""
    code = blanked(source)[: launch.offset]
    start = max((at.end() for at in re.finditer(r"^\S.*\{\s*$|^\}", code, re.MULTILINE)), default=0)
    return code[start:]
