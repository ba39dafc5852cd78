"""Checks symbols of versions' object files: a launch enqueues kernels and does nothing else.

    python3 tools/dev/objects.py build/emulator

names every version of an emulator build that refers to more than its kernels need (threads, files, clocks, the
environment, the harness, the reference), or that keeps state from one launch to the next. Exits 1 if there is one.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.compile(r"dev/(?P<layer>\w+)/\w+/v\d\d_\w+\.cu\.o$")

# Undefined symbols that an object may refer to, without their parameters.
_ALLOWED = re.compile(
    r"ladder::(?:"
    # the emulator's implementation of kernels and launches
    r"simt::(?:detail::\w+|(?!options|Options|\w*memory|\w*read_only|catch_)\w+)"
    # problems, shapes and dtypes
    r"|name|size_of|is_integer|round_to|aligned|ceil_div|throw_failure|one_line|encode_\w+|make_tensor_map\w*|"
    r"(?:UsageError|Failure|Pointers|HostTensors|Case|Pass|TensorMap)::\S+|TensorSpec::\w+|each_once|written"
    # the device's properties, and the entry in the registry
    r"|backend::device|loads_early|set_bytes_async|detail::(?:add_pass|add_version|names_dtype|overlap_allowed|serial_launches|\w*occupan\w*)"
    r"|max_blocks\w*|\w+_refusal|occupancy\w*|cluster_shape\w*|num_\w+|detail::\w*cluster\w*"
    r")$"
    r"|(?:nvcuda|cooperative_groups|fmt)::"
    r"|(?:(?:new|delete)(?:\[\])?|mem(?:cpy|move|set|cmp)|str(?:len|cmp|ncmp|chr)|_Unwind_Resume|"
    r"_GLOBAL_OFFSET_TABLE_|__\w+)$"
    r"|(?:a?(?:sin|cos|tan)h?|exp2?|expm1|log(?:2|10|1p|b)?|pow|r?sqrt|cbrt|fmod|floor|ceil|trunc|l?l?r(?:ound|int)|nearbyint|"
    r"pthread_mutex_(?:un)?lock|sincos|fma|fmin|fmax|fabs|ldexp|scalbl?n|copysign|erfc?|hypot|frexp|modf)f?$"
    r"|(?:vtable|typeinfo|guard variable|typeinfo name|VTT) for "
    r"|std::"
)
_STD = re.compile(r"std::(?:thread|jthread|this_thread|chrono|filesystem|basic_[io]?f?stream|basic_filebuf|random_device|"
                  r"future|async|_V2|__basic_future|condition_variable|mutex)\b")  # fmt: skip
# Look-ups in the registry, allowed for passes whose versions delegate to another pass's version.
_LOOK_UP = re.compile(r"ladder::(?:find_version|all_versions|versions_of)$")
_MAY_LOOK_UP = re.compile(r"dev/conv3x3/dgrad/")

# Line of `objdump --syms`: address, flags, section, size, name.
_SYMBOL = re.compile(r"[0-9a-f]{8,16} .{7} (\S+)\t[0-9a-f]+ +(?:\.hidden )?(\S.*)$")
_WRITABLE = re.compile(r"\.(?:t?bss|t?data)(?!\.rel\.ro)")

# Writable data that does not come from the version itself: LADDER_VERSION, the emulator's __shared__, and the like.
_KEPT = re.compile(
    r"_key$|::kept$|ladder_registered$|^ladder::simt::LaunchChoice<.*>::(?:mutex_|chosen_)$|pass_of<.*>\(\)::pass$|ladder_version\w*$|_S_ti\(\)::__tag$|^guard variable for |"
    r"ladder::detail::(?:overlap_allowed|serial_launches)$|^DW\.ref\.|^std::|^fmt::|^\.t?(?:bss|data)|"
    r"conv3x3::Flipped<\d+>::rung\(\)::version$"  # const: the fprop version that a dgrad version runs
)


def _plain(symbol):
    """The symbol without parameters and template arguments."""
    while True:
        shorter = re.sub(r"<[^<>]*>", "", symbol)
        if shorter == symbol:
            break
        symbol = shorter
    symbol = re.sub(r"\[abi:\w+\]", "", symbol)
    symbol = symbol.replace("(anonymous namespace)", "anonymous")
    return re.sub(r"\(.*$", "", symbol).split(" ")[-1] if " for " not in symbol else symbol


def faults(symbols, file):
    """Lists the forbidden symbols of a version, in `symbols`: `objdump --syms --demangle` of the object `file`."""
    layer = VERSION.search(file)
    own = f"ladder::{layer['layer']}::" if layer else "ladder::no_layer::"
    found = []
    for line in symbols.splitlines():
        entry = _SYMBOL.match(line)
        if not entry:
            continue
        section, symbol = entry.groups()
        plain = _plain(symbol)
        if _WRITABLE.match(section) and not _KEPT.search(symbol):
            found.append(f"keeps {symbol}")
        elif section == "*UND*":
            refused = _STD.search(symbol)
            if _LOOK_UP.match(plain):
                refused = not _MAY_LOOK_UP.search(file)
            elif not refused:
                refused = not (plain.startswith(own) or _ALLOWED.match(plain))
            if refused:
                found.append(f"asks for {symbol}")
    return found


def faults_of(path, file=None):
    """faults() of the object `path`; `file` is the version's name to judge by, the object's own by default."""
    command = ["objdump", "--syms", "--demangle", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return faults(done.stdout, file or str(path))


def source_faults(text):
    """Lists the forbidden words of a version's source. `#if` gives each compiler a different kernel; const_cast makes
    an input writable. A load by __ldg() or through a __restrict__ pointer may move above griddepcontrol.wait, because
    the compiler assumes that no store changes its data."""
    rules = {
        "#if": r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b",
        "const_cast": r"\bconst_cast\b",
        "__ldg": r"\b__ldg\b",
        "__restrict__": r"\b__restrict(?:__)?\b",
    }
    return [f"says {word}" for word, rule in rules.items() if re.search(rule, text, re.MULTILINE)]


def main(arguments):
    if len(arguments) != 1:
        print("objects: which build? For instance build/emulator", file=sys.stderr)
        return 2
    objects = [path for path in sorted(Path(arguments[0]).rglob("*.cu.o")) if VERSION.search(str(path))]
    if not objects:
        print(f"objects: no version's object in {arguments[0]}", file=sys.stderr)
        return 1
    status = 0
    for path in objects:
        for fault in faults_of(path):
            status = 1
            print(f"{VERSION.search(str(path))[0][:-2]}: {fault}")
    print(f"{len(objects)} objects of versions")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
