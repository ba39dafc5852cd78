"""A Python function as a candidate of `./ladder try`, on a GPU: `kernel.py:softmax`, a function of the pass's tensors by name.

The candidate is a version whose launch calls the function in a CPython that its program loads: the author's text, a prelude
(plain_python_prelude.py) that turns device memory to PyTorch's tensors, and the interpreter's paths. Nothing here imports or
runs the author's file.
"""

import ast
import re
from pathlib import Path

from . import plain, signature
from .errors import UsageError

_PRELUDE = Path(__file__).with_name("plain_python_prelude.py")
_FIRST_WORDS = "static const char* const ladder_python_source"
_EMBEDDING = """\
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"

static const char* const ladder_python_prelude = @PRELUDE@;

// The author's function in an interpreter, which the first launch starts and which lives as long as the process.
class LadderPython {
 public:
  // `about` is JSON text. Throws Failure with the text of a Python exception.
  static void launch(const std::string& about, void* stream) {
    static LadderPython python;
    if (!python.error_.empty()) throw ladder::Failure(python.error_);
    char error[kErrorBytes] = "";
    python.launch_(about.c_str(), stream, error);
    if (error[0] != 0) throw ladder::Failure(error);
  }

 private:
  static constexpr int kErrorBytes = 1024;

  LadderPython() {
    void* const library = dlopen(@LIBRARY@, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      error_ = dlerror();
      return;
    }
    const auto initialize = reinterpret_cast<void (*)(int)>(dlsym(library, "Py_InitializeEx"));
    const auto run = reinterpret_cast<int (*)(const char*, void*)>(dlsym(library, "PyRun_SimpleStringFlags"));
    const auto release = reinterpret_cast<void* (*)()>(dlsym(library, "PyEval_SaveThread"));
    setenv("PYTHONHOME", @HOME@, 1);
    setenv("PYTHONNOUSERSITE", "1", 1);
    initialize(0);  // 0: no signal handlers
    unsetenv("PYTHONHOME");
    char error[kErrorBytes] = "";
    const auto address = [](const void* of) { return std::to_string(reinterpret_cast<std::uintptr_t>(of)); };
    const std::string start = std::string("start(") + @CONFIG@ + ", " + address(ladder_python_source) + ", " +
                              address(&launch_) + ", " + address(error) + ")";
    const bool ran = run(ladder_python_prelude, nullptr) == 0 && run(start.c_str(), nullptr) == 0;
    error_ = ran ? error : "the Python interpreter does not start";
    release();  // a launch takes the interpreter's lock again
  }

  void (*launch_)(const char* about, void* stream, char* error) = nullptr;
  std::string error_;  // why it did not start
};"""
_LAUNCH = """\
template <class T>
static std::string ladder_json(T value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  if constexpr (std::is_integral_v<T>) return std::to_string(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
  return text;
}

static void ladder_entry(const LadderPass::Problem& problem, const LadderPass::Tensors& tensors, void*, ladder::Stream stream) {
  const std::map<std::string, const void*> pointers = {@POINTERS@};
  std::string listed;
  for (const ladder::TensorSpec& spec : LadderPass::tensors(problem)) {
    const auto pointer = pointers.find(spec.name);
    if (pointer == pointers.end()) continue;
    std::string shape;
    for (const std::int64_t size : spec.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    listed += std::string(listed.empty() ? "" : ", ") + "[\\"" + spec.name + "\\", " +
              std::to_string(reinterpret_cast<std::uintptr_t>(pointer->second)) + ", \\"" + ladder::name(spec.dtype) +
              "\\", [" + shape + "], " + ladder_json(spec.is_written()) + "]";
  }
  const std::string sizes = @SIZES@;
  LadderPython::launch("{\\"tensors\\": [" + listed + "], \\"sizes\\": {" + sizes + "}}", stream);
}"""


def split(candidate):
    """(file, function) of `kernel.py:softmax`, (file, "") of `kernel.py`; None for another file."""
    found = re.fullmatch(r"(.+\.py)(?::(\w*))?", candidate)
    return (found[1], found[2] or "") if found else None


def candidate(a_pass, source, function, dtype, python, when="", file="kernel.py"):
    """Text of a version's file that calls `function` of the Python `source` for problems of one dtype for which `when` holds.
    Throws UsageError for a function that is not there, or a parameter that is neither a tensor nor a size of the pass."""
    struct, tensors, expressions = signature.names(a_pass)
    sizes = plain.sizes_of(tensors, expressions)
    parameters = _parameters(source, function, (*tensors, *sizes), file)
    of_sizes = [f'"\\"{name}\\": " + ladder_json(problem.{text})' for name, text in sizes.items()]
    launch = _LAUNCH.replace("@POINTERS@", ", ".join(f'{{"{name}", tensors.{name}}}' for name in tensors))
    launch = launch.replace("@SIZES@", ' + ", " + '.join(of_sizes) or "std::string()")
    return "\n".join(
        [
            embedding(source, function, parameters, python, file),
            "",
            "#include <cstdio>",
            "#include <map>",
            "#include <type_traits>",
            "",
            f'#include "dev/{a_pass.layer}/{a_pass.layer}.h"',
            "",
            f"using LadderPass = ladder::{a_pass.layer}::{struct};",
            launch,
            *plain.registration(a_pass, sizes, dtype, when),
        ]
    )


def is_candidate(text):
    return text.startswith(_FIRST_WORDS)


def embedding(source, function, parameters, python, file="kernel.py", prelude=None):
    """C++ of the class LadderPython and, first, the author's text."""
    config = {"path": list(python.path), "prefix": python.prefix, "executable": python.executable}
    config.update(file=file, function=function, parameters=parameters)
    text = _EMBEDDING
    for name, value in (
        ("PRELUDE", prelude or _PRELUDE.read_text(encoding="utf-8")),
        ("LIBRARY", python.library),
        ("HOME", python.home),
        ("CONFIG", repr(config)),
    ):
        text = text.replace(f"@{name}@", _literal(value))
    return f"{_FIRST_WORDS} = {_literal(source)};\n\n{text}"


def _literal(text):
    """`text` as a raw string of C++."""
    mark = next(mark for mark in map("text{}".format, range(len(text) + 1)) if f'){mark}"' not in text)
    return f'R"{mark}({text}){mark}"'


def _parameters(source, function, known, file):
    """Names of the function's parameters that a launch fills in: all but those that have a default and are not of the pass."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UsageError(f"{file}: {error}") from None
    functions = {each.name: each.args for each in body if isinstance(each, ast.FunctionDef)}
    if function not in functions:
        lacks = f"no function '{function}'" if function else f"which function? {file}:NAME"
        raise UsageError(f"{file}: {lacks}; there are: {', '.join(functions) or 'none'}")
    arguments = functions[function]
    if arguments.posonlyargs:
        raise UsageError(f"{file}: '{function}' has positional-only parameters; it is called with names")
    positional, keywords = arguments.args, arguments.kwonlyargs
    optional = {each.arg for each in positional[len(positional) - len(arguments.defaults) :]}
    optional |= {each.arg for each, default in zip(keywords, arguments.kw_defaults) if default is not None}
    names = [each.arg for each in (*positional, *keywords)]
    unknown = [name for name in names if name not in known and name not in optional]
    if unknown:
        raise UsageError(f"{file}: '{function}' has a parameter '{unknown[0]}'; there are: {', '.join(known)}")
    return [name for name in names if name in known]
