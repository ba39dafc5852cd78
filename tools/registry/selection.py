"""Resolution of command-line words to passes, versions and problems of the listing, the same for every verb:

    conv3x3/dgrad          a pass; conv3x3 stands for all of its passes or, if one is needed, for the default
    --version 7            a number, v07, v07_wmma, 5-9, a word of the idea (all versions with it), several with
                           commas between, all, or best
    --problem res64        a name from shapes.txt (edge/square if several sets have it), or a line: 'n1 h8 w8 c16 k16'
    --dtype bf16,fp16      one or several, or all
    --set unet             a set of shapes.txt

Programs take numbers and problem lines (program_words). Every function throws UsageError, listing the valid choices.
"""

import difflib
import re

from cli.errors import UsageError
from registry.listing import DTYPES

HELP = {
    "target": "a layer or layer/pass, as in ./ladder list",
    "version": "7, v07, 5-9, 7,9, a word of the idea (wmma), all, or best: the promoted one, as in training",
    "problem": "a problem line, or a name that tables and ./ladder list show",
    "dtype": f"of {', '.join(DTYPES)}, with commas between, or all",
    "set": "a set of problems, from dev/<layer>/shapes.txt",
}

_NUMBER = re.compile(r"[vV]?(\d{1,2})")
_LABEL = re.compile(r"[vV](\d{1,2})_(\w+)")
_RANGE = re.compile(r"[vV]?(\d{1,2})-[vV]?(\d{1,2})")
_MOST_SEED = 2**64 - 1


def passes(listing, words):
    """The Passes that `words` name, in the listing's order; all without words."""
    there = listing.passes
    if not words:
        return there
    chosen = set()
    for word in words:
        found = [a_pass.path for a_pass in there if word.rstrip("/") in (a_pass.layer, a_pass.path)]
        if not found:
            raise _no_target(listing, word)
        chosen.update(found)
    return [a_pass for a_pass in there if a_pass.path in chosen]


def one_pass(listing, word, pass_name=None):
    """The Pass of "conv3x3/dgrad"; for "conv3x3", the pass `pass_name` or else the default."""
    layer_name, _, named = word.rstrip("/").partition("/")
    layer = listing.layer(layer_name)
    if layer is None:
        raise _no_target(listing, word)
    if named and pass_name and named != pass_name:
        raise UsageError(f"{word} and --pass {pass_name} contradict each other")
    named = named or pass_name or layer.default
    names = [a_pass.name for a_pass in layer.passes]
    if not named:
        raise UsageError(
            f"{layer_name} has no default pass: name one of {_list(a_pass.path for a_pass in layer.passes)}"
        )
    if named not in names:
        raise UsageError(f"{layer_name} has no pass '{named}'; it has: {', '.join(names)}{meant(named, names)}")
    return listing.find(f"{layer_name}/{named}")


def is_target(listing, word):
    return any(word in (a_pass.layer, a_pass.path) for a_pass in listing.passes)


def versions(a_pass, text):
    """The Versions of a pass that --version `text` selects; all of them for "all" and "best"."""
    if text in ("all", "best"):
        return list(a_pass.versions)
    numbers = set()
    for word in text.split(","):
        numbers.update(_numbers(a_pass, word, text))
    return [version for version in a_pass.versions if version.number in numbers]


def versions_of(some_passes, text):
    """{path: Versions} that --version `text` selects in each of several passes, without passes that have none of them.
    Throws UsageError for a pass that has only a part of them: else that part would be silently left out."""
    found, refused = {}, None
    for a_pass in some_passes:
        try:
            found[a_pass.path] = versions(a_pass, text)
        except UsageError as error:
            if any(_has(a_pass, word) for word in text.split(",")):
                raise
            refused = refused or error
    if not found and refused:
        raise refused
    return found


def _has(a_pass, word):
    try:
        return bool(_numbers(a_pass, word, word))
    except UsageError:
        return False


def names_each(text):
    """Returns True if --version `text` names each version by number or label: a version that cannot run is then an
    error, not silently left out."""
    return text not in ("all", "best") and all(
        _NUMBER.fullmatch(word) or _LABEL.fullmatch(word) for word in text.split(",")
    )


def program_words(layer, a_pass, text, lines=(), a_set=None, dtypes=(), without=()):
    """Arguments of a bench program for the versions that --version `text` selects, less the numbers `without`, and for
    the problems `lines` or the set `a_set`.

    The program rejects a version number that supports none of the problems' dtypes. Versions of a range or of an idea's
    word are therefore filtered by dtype here.
    """
    problems = [word for line in lines for word in ("--problem", line)] or (["--set", a_set] if a_set else [])
    if text == "best":
        return ["--promoted", *problems]
    if text == "all":
        return ["--version", "all", *problems]
    chosen = [version for version in versions(a_pass, text) if version.number not in without]
    if not names_each(text):
        asked = lines or (layer.sets[a_set].values() if a_set else ())
        chosen = having(chosen, dtypes or {dtype_of(line) for line in asked}) or chosen
    return ["--version", ",".join(str(version.number) for version in chosen), *problems]


def having(some_versions, dtypes):
    """The Versions that support one of `dtypes`; all if `dtypes` is empty or contains None (any dtype)."""
    if not dtypes or None in dtypes:
        return list(some_versions)
    return [version for version in some_versions if not version.dtypes or set(dtypes) & set(version.dtypes)]


def problem(layer, text):
    """The problem line of a Layer that --problem `text` names or is."""
    words = text.split()
    lines = [line for cases in layer.sets.values() for line in cases.values()]
    example = f", as in '{lines[0]}'" if lines else ""
    missing = [letter for letter in _needed(lines) if letter not in map(size, words)]
    if len(words) > 1 and missing:
        raise UsageError(f"--problem '{text}': {layer.name} needs {', '.join(missing)}{example}")
    if len(words) > 1 or (words and lines and not missing):
        return " ".join(words)
    wanted_set, _, name = text.strip().rpartition("/")
    found = {}
    for set_name, cases in layer.sets.items():
        if name in cases and wanted_set in ("", set_name):
            found.setdefault(cases[name], f"{set_name}/{name}")
    if len(found) > 1:
        raise UsageError(f"--problem '{text}' is several: {_list(found.values())}")
    if not found:
        names = [name for cases in layer.sets.values() for name in cases]
        raise UsageError(
            f"--problem '{text}': {layer.name} has no problem of that name{meant(name, names)}; "
            f"./ladder list {layer.name} shows them, and a line does as well{example}"
        )
    return next(iter(found))


def problems_of(layers, text):
    """{layer: problem line} of the Layers that have --problem `text`. Throws UsageError if none has."""
    found, refused = {}, None
    for layer in layers:
        try:
            found[layer.name] = problem(layer, text)
        except UsageError as error:
            refused = refused or error
    if not found and refused:
        raise refused
    return found


def layers_of(listing, some_passes):
    """The Layers that the passes belong to."""
    names = {a_pass.layer for a_pass in some_passes}
    return [layer for layer in listing.layers if layer.name in names]


def dtypes(text):
    """The dtypes of --dtype `text`, in its order; [] for "all"."""
    words = [] if text == "all" else text.split(",")
    for word in words:
        if word not in DTYPES:
            raise UsageError(
                f"--dtype '{text}': {', '.join(DTYPES)}, several with commas between, or all{meant(word, DTYPES)}"
            )
    return list(dict.fromkeys(words))


def set_name(layers, text):
    """Returns `text` if each of the Layers has that set, else throws UsageError."""
    for layer in layers:
        if text not in layer.sets:
            raise UsageError(
                f"--set '{text}': {layer.name} has {', '.join(layer.sets) or 'no sets'}{meant(text, layer.sets)}"
            )
    return text


def seed(text):
    """The value of --seed."""
    if not re.fullmatch(r"[0-9]+", text) or int(text) > _MOST_SEED:
        raise UsageError(f"--seed '{text}': a whole number from 0 to {_MOST_SEED}")
    return int(text)


def without_dtype(line):
    return " ".join(word for word in line.split() if word not in DTYPES)


def dtype_of(line):
    """The dtype word of a problem's line, or None."""
    return next((word for word in line.split() if word in DTYPES), None)


def gtest_filter(chosen):
    """The GoogleTest filter of {path: Versions}: a version's suite is named <layer>_<pass>_vNN_<idea>."""
    return ":".join(
        f"{path.replace('/', '_')}_{version.label}.*" for path, these in chosen.items() for version in these
    )


def _numbers(a_pass, word, text):
    has = f"{a_pass.path} has {', '.join(version.label for version in a_pass.versions) or 'none'}"
    number, label, bounds = _NUMBER.fullmatch(word), _LABEL.fullmatch(word), _RANGE.fullmatch(word)
    if number or label:
        wanted = int((number or label)[1])
        version = a_pass.version(wanted)
        if version is None or (label and label[2] != version.idea):
            raise UsageError(f"no version '{word}': {has}")
        return [wanted]
    if bounds:
        low, high = int(bounds[1]), int(bounds[2])
        found = [each for each in a_pass.numbers if low <= each <= high]
        if not found:
            why = f"--version '{word}': the smaller number first" if low > high else f"no version '{word}': {has}"
            raise UsageError(why)
        return found
    if re.fullmatch(r"[a-z0-9]+([_ -][a-z0-9]+)*", word) and word not in ("all", "best"):
        wanted = f"_{re.sub('[ -]', '_', word)}_"
        found = [version.number for version in a_pass.versions if wanted in f"_{version.idea}_"]
        if found:
            return found
        ideas = [part for version in a_pass.versions for part in (version.idea, *version.idea.split("_"))]
        raise UsageError(f"--version '{word}': no number, and no word of an idea{meant(word, ideas)}; {has}")
    raise UsageError(f"--version '{text}': {HELP['version']}")


def size(word):
    """The letter of a size, "h" for "h64"; None for other words."""
    found = re.fullmatch(r"([a-z]+)\d+", word)
    return found[1] if found and word not in DTYPES else None


def _needed(lines):
    """Letters of the sizes that every problem line in `lines` has."""
    of_lines = [[size(word) for word in line.split() if size(word)] for line in lines]
    return [letter for letter in (of_lines[0] if of_lines else []) if all(letter in sizes for sizes in of_lines)]


def _no_target(listing, word):
    if word.endswith(".cu"):
        return UsageError(f"'{word}' is a file; its kernel is judged by ./ladder try <layer>/<pass> {word}")
    layer_name, _, _ = word.partition("/")
    if "/" in word and listing.layer(layer_name):
        names = [a_pass.path for a_pass in listing.layer(layer_name).passes]
        return UsageError(f"no pass '{word}'; there are: {_list(names)}{meant(word, names)}")
    names = [layer.name for layer in listing.layers]
    return UsageError(f"no layer '{layer_name}'; there are: {_list(names)}{meant(layer_name, names)}")


def meant(word, names):
    """Suffix of an error message that suggests the name closest to `word`; "" if none is close."""
    close = difflib.get_close_matches(word, list(names), 1, 0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def _list(words):
    return ", ".join(words) or "none yet"
