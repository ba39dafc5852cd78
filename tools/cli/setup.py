"""Set-up: fetches the tools and libraries that a build lacks on this machine. Uses no network if nothing is missing."""

import hashlib
import json
import os
import re
import shlex
import shutil

from . import debian, lock, prepare, say, tools, wheels
from .errors import Failure
from .paths import CUDA_PRESETS, PRIVATE, SETUP_LOG

# {header that shows that a library is installed: the Debian package that installs it}
_LIBRARIES = {
    "fmt/core.h": "libfmt-dev",
    "nlohmann/json.hpp": "nlohmann-json3-dev",
    "CLI/CLI.hpp": "libcli11-dev",
    "gtest/gtest.h": "libgtest-dev",
    "benchmark/benchmark.h": "libbenchmark-dev",
    "boost/context/fiber.hpp": "libboost-context-dev",
    "stb/stb_image_write.h": "libstb-dev",
    "xxhash.h": "libxxhash-dev",
}

_LEAST_NVCC = (12, 8)
_LEAST_NCCL = (2, 27)  # in CMakeLists.txt too


def ensure(preset, again=False):
    """Fetches what building `preset` lacks; `again` checks even after a full set-up. Returns True if it did fetch."""
    kind = "cuda" if preset in CUDA_PRESETS else "emulator"
    if not again and _stamp(kind).exists() and _stamp(kind).read_text() == _fingerprint(kind):
        return False
    with lock.held(PRIVATE / "setup.lock"):
        # Not |=: every step has to run.
        changed = [_tools_and_libraries(_LIBRARIES), _cuda(kind)]
        if kind == "cuda":
            changed += [_baseline(), _nccl()]
        tools.forget()
        aside = _stamp(kind).with_suffix(".new")
        aside.write_text(_fingerprint(kind))
        aside.rename(_stamp(kind))
    return any(changed)


def ensure_for_package(kind):
    """Fetches what pip's build of python/ lacks; `kind` is "cuda" or "emulator"."""
    named = ["fmt/core.h", "nlohmann/json.hpp", *(["boost/context/fiber.hpp"] if kind == "emulator" else [])]
    with lock.held(PRIVATE / "setup.lock"):
        _tools_and_libraries({header: _LIBRARIES[header] for header in named})
        _cuda(kind)


def ensure_dev_tools():
    """Fetches the tools that check the sources: compilers and linters, a compiler cache, pytest, a sandbox, a browser
    and its driver, safetensors, the writer of TensorBoard's events, plotting and image comparison, and the preparation
    of the trainer's data."""
    programs = {
        "clang++": "clang",
        "clang-format": "clang-format",
        "clang-tidy": "clang-tidy",
        "ccache": "ccache",
        "bwrap": "bubblewrap",
        "chromium": "chromium",
        "chromedriver": "chromium-driver",
    }
    with lock.held(PRIVATE / "setup.lock"):
        _install_programs(programs)
        _needs_ensurepip()
        wheels.python_with(wheels.BROWSER_DRIVER, SETUP_LOG)
        wheels.python_with(wheels.SAFETENSORS, SETUP_LOG)
        for pins in (wheels.PYTEST, wheels.RUFF, wheels.TENSORBOARD, wheels.MATPLOTLIB, wheels.PLOTEXT):
            wheels.python_with(pins, SETUP_LOG)
        wheels.python_with(list(wheels.PIXELS.values()), SETUP_LOG)
    prepare.fetch()


def program(name, package):
    """Path of a program that few commands need; installs its package if missing."""
    with lock.held(PRIVATE / "setup.lock"):
        _install_programs({name: package})
    return shutil.which(name)


def _install_programs(programs):
    """Installs the packages of the missing programs of {program: package}."""
    missing = {package for name, package in programs.items() if shutil.which(name) is None}
    if missing and (not debian.present() or debian.rights() is None):
        raise Failure(f"missing, and no root to install them: {' '.join(sorted(missing))}")
    if missing:
        debian.install(missing, SETUP_LOG)


def _stamp(kind):
    return PRIVATE / f"ready-{kind}"


def _fingerprint(kind):
    """Digest of the pins and of the tools on PATH; a change makes ensure() check again."""
    facts = [
        kind,
        wheels.TOOLS,
        wheels.CUDA,
        wheels.CUDNN_FRONTEND,
        wheels.NCCL,
        os.environ.get("LADDER_NCCL"),
        sorted(_LIBRARIES),
        shlex.join(tools.cxx()),
        shutil.which("cmake"),
        shutil.which("ninja"),
        shutil.which("nvcc"),
        _system_cuda_hidden(),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _tools_and_libraries(libraries):
    missing = _missing_packages(libraries)
    if not missing:
        return False
    if debian.present() and debian.rights() is not None:
        debian.install(missing, SETUP_LOG)
    else:
        _without_root(missing)
    tools.forget()
    if tools.cmake() is None or tools.ninja() is None:  # a distribution's CMake can be too old
        wheels.install_tools(wheels.TOOLS, SETUP_LOG)
        tools.forget()
    still = _missing_packages(libraries)
    if still:
        raise Failure(f"still missing after set-up: {' '.join(sorted(still))}; see {SETUP_LOG}")
    return True


def _without_root(missing):
    if "g++" in missing:
        raise Failure("no C++ compiler, and no root to install one: ask for the package g++ (12 or newer)")
    if missing & {"cmake", "ninja-build"}:
        wheels.install_tools(wheels.TOOLS, SETUP_LOG)
    libraries = missing & set(_LIBRARIES.values())
    if libraries and not debian.present():
        raise Failure(f"install these with your package manager (Debian's names): {' '.join(sorted(libraries))}")
    if libraries:
        debian.unpack(libraries, SETUP_LOG)


def _missing_packages(libraries):
    missing = set()
    if not tools.cxx():
        missing.add("g++")
    if tools.cmake() is None:
        missing.add("cmake")
    if tools.ninja() is None:
        missing.add("ninja-build")
    missing |= _missing_libraries(libraries)
    return missing


def _missing_libraries(libraries):
    """Debian packages of the libraries whose headers the compiler does not find."""
    if not tools.cxx():
        return set(libraries.values())
    probe = "".join(
        f"#if !__has_include(<{header}>)\nmissing {package}\n#endif\n" for header, package in libraries.items()
    )
    done = _preprocessed(probe, "-isystem", debian.UNPACKED / "usr/include")
    if done.returncode != 0:
        raise Failure(f"the C++ compiler {shlex.join(tools.cxx())} does not work: {tools.last_line(done.stderr)}")
    return set(re.findall(r"^missing (.+)$", done.stdout, re.MULTILINE))


def _preprocessed(source, *flags):
    return tools.captured(*tools.cxx(), *"-E -P -x c++".split(), *flags, "-", input=source)


def _cuda(kind):
    """Fetches the CUDA toolkit, or its headers alone for the emulator. Returns True if it fetched something."""
    if (PRIVATE / "cuda").exists():
        return False
    if kind == "cuda":
        if _system_nvcc():
            return False
        _needs_ensurepip()
        wheels.install("NVIDIA's CUDA 13.0 compiler and libraries (1.5 GB)", wheels.CUDA, "cuda", SETUP_LOG)
        return True
    if (PRIVATE / "cuda-headers").exists() or _system_cuda_file("include/cuda_bf16.h"):
        return False
    _needs_ensurepip()
    wheels.install("NVIDIA's CUDA 13.0 headers", wheels.CUDA_HEADERS, "cuda-headers", SETUP_LOG)
    return True


def _baseline():
    """Fetches cuDNN and its C++ headers. Only the baseline needs them, so a failure is reported and ignored."""
    changed = False
    try:
        if not (PRIVATE / "cuda").exists() and not (PRIVATE / "cudnn").exists() and not _system_header("cudnn.h"):
            _needs_ensurepip()
            wheels.install("cuDNN (700 MB)", wheels.CUDNN, "cudnn", SETUP_LOG)
            changed = True
        if not (PRIVATE / "include" / "cudnn_frontend.h").exists() and not _system_header("cudnn_frontend.h"):
            _needs_ensurepip()
            wheels.unpack_headers(wheels.CUDNN_FRONTEND, SETUP_LOG)
            changed = True
    except Failure as failure:
        say.line(f"no cuDNN to compare with: {str(failure).splitlines()[0]} ({SETUP_LOG})")
    return changed


def _nccl():
    """Fetches NCCL where no place of cmake/FindNCCL.cmake has it. Only trainings on several GPUs need it, so a failure is
    reported and ignored. Returns True if it fetched something."""
    if (PRIVATE / "nccl").exists() or any(_has_nccl(folder) for folder in _nccl_folders()):
        return False
    try:
        _needs_ensurepip()
        wheels.install("NCCL (190 MB)", wheels.NCCL, "nccl", SETUP_LOG)
    except Failure as failure:
        say.line(f"no NCCL for several GPUs: {str(failure).splitlines()[0]} ({SETUP_LOG})")
        return False
    return True


def _nccl_folders():
    """Include folders in which a build looks for NCCL, in its order: LADDER_NCCL's, the toolkit's, the compiler's."""
    if os.environ.get("LADDER_NCCL"):
        yield os.path.join(os.environ["LADDER_NCCL"], "include")
    if _system_cuda_hidden():
        return
    header = _system_cuda_file("include/nccl.h")
    if header:
        yield os.path.dirname(header)
    # Search list of the compiler: the indented lines of `g++ -v`.
    yield from re.findall(r"^ (/\S+)$", _preprocessed("", "-v").stderr, re.MULTILINE) if tools.cxx() else []


def _has_nccl(folder):
    """Returns True if `folder` has the header of an NCCL that is new enough."""
    try:
        with open(os.path.join(folder, "nccl.h"), encoding="utf-8") as file:
            numbers = re.findall(r"^#define NCCL_(?:MAJOR|MINOR) +(\d+)", file.read(), re.MULTILINE)
    except OSError:
        return False
    return tuple(map(int, numbers)) >= _LEAST_NCCL


def _needs_ensurepip():
    """Installs Debian's package of pip and venv, which its Python lacks; without root, wheels.py uses pip's wheel."""
    if not wheels.has_ensurepip() and debian.present() and debian.rights() is not None:
        debian.install({"python3-venv"}, SETUP_LOG)


def _system_cuda_hidden():
    """Returns True if LADDER_NO_SYSTEM_CUDA is set: it tests the wheels on a machine that has a toolkit."""
    return os.environ.get("LADDER_NO_SYSTEM_CUDA", "") not in ("", "0")


def _system_cuda_file(name):
    if _system_cuda_hidden():
        return None
    nvcc = shutil.which("nvcc")
    roots = [
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        nvcc and os.path.dirname(os.path.dirname(nvcc)),
        "/usr/local/cuda",
        "/opt/cuda",
    ]
    paths = [os.path.join(root, name) for root in roots if root]
    return next((path for path in paths if os.path.exists(path)), None)


def _system_header(name):
    """Returns True if a header is in the toolkit's include folder or in the compiler's search path, where Debian's
    packages put it (/usr/include/x86_64-linux-gnu/cudnn.h)."""
    if _system_cuda_hidden():
        return False
    if _system_cuda_file(f"include/{name}"):
        return True
    if not tools.cxx():
        return False
    return _preprocessed(f"#if !__has_include(<{name}>)\n#error missing\n#endif\n").returncode == 0


def has_nvcc():
    """Returns True if a CUDA build would find nvcc without fetching it."""
    return (PRIVATE / "cuda").exists() or _system_nvcc() is not None


def _system_nvcc():
    command = tools.named_compiler("CUDACXX", "nvcc") or list(filter(None, [_system_cuda_file("bin/nvcc")]))
    if not command or _system_cuda_hidden():
        return None
    found = re.search(r"release (\d+)\.(\d+)", tools.captured(*command, "--version").stdout)
    return command if found and (int(found[1]), int(found[2])) >= _LEAST_NVCC else None
