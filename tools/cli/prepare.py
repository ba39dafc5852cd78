"""`./ladder prepare DIR`: a folder of pictures as one file to train on; `--emoji`: the sample set."""

import signal
import subprocess
from pathlib import Path

from images import folder, ldata

from . import debian, files, lock, paths, say, tools, wheels
from .errors import Failure, UsageError
from .options import INTERRUPTED, Parser

DATA = paths.BUILD / "data"
SIZES = range(4, 1025)

_RANDOM_IMAGES = 64

_FONT = "NotoColorEmoji.ttf"
_FONT_PACKAGE = "fonts-noto-color-emoji"

_DESCRIPTION = """\
Turns a folder of pictures (PNG and JPEG, in folders inside too) into one file to train on, and a preview beside it: the
square in the middle of each picture, resized; transparent parts become white, gray becomes RGB, a photo stands as its
camera held it. What cannot be read is named and skipped, and so is a picture that is there twice. One in twenty is held
out from training. The same pictures give the same file."""


def main(arguments):
    parser = Parser("prepare", description=_DESCRIPTION)
    parser.add_argument("folder", nargs="?", metavar="DIR", help="the folder of pictures")
    parser.add_argument("--emoji", action="store_true", help="instead of DIR: the sample set, colour emoji of a font")
    parser.add_argument("--size", type=int, default=64, help="height and width of an image, pixels (default: 64)")
    parser.add_argument("--out", metavar="FILE.ldata", help="default: build/data/<DIR>-<size>.ldata")
    parser.add_argument("--replace", action="store_true", help="put the new file in the place of one that is there")
    chosen = parser.parse_args(arguments)
    if chosen.size not in SIZES:
        raise UsageError(f"--size {chosen.size}: from {SIZES[0]} to {SIZES[-1]}")
    if chosen.emoji and chosen.folder:
        raise UsageError("prepare: DIR and --emoji exclude each other")
    if chosen.emoji:
        return _emoji(chosen)
    if not chosen.folder:
        raise UsageError("prepare needs a folder of pictures, as in ./ladder prepare photos; or --emoji")
    source = Path(chosen.folder)
    if not source.is_dir():
        raise UsageError(f"'{source}' is no folder" if source.exists() else f"there is no folder '{source}'")
    found = folder.find(source)
    if not found.pictures:
        unread = f", and {len(found.unread)} that may not be read" if found.unread else ""
        raise UsageError(
            f"'{source}' has no picture: {found.others} files, none of them {', '.join(folder.SUFFIXES)}{unread}"
        )
    out = _out(chosen, source.resolve().name or "root", found.pictures)
    return _run(["folder", source, out, chosen.size])


def sample_set(size=64):
    """The sample set's file, written if missing. Its bytes depend on the font's version only."""
    path = DATA / f"emoji-{size}.ldata"
    with lock.held(paths.PRIVATE / "data.lock"):
        if not _is_good(path, size):
            DATA.mkdir(parents=True, exist_ok=True)
            status = _run(["emoji", _font(), path, size])
            if status == INTERRUPTED:
                raise KeyboardInterrupt
            if status != 0:
                raise Failure("the sample set was not made")
    return path


def random_set(size):
    """The file of random images, written if missing. Needs neither a font nor a network."""
    path = DATA / f"random-{size}.ldata"
    with lock.held(paths.PRIVATE / "data.lock"):
        if not _is_good(path, size):
            DATA.mkdir(parents=True, exist_ok=True)
            ldata.write_random(path, size, _RANDOM_IMAGES)
    return path


def fetch():
    """Fetches the missing prerequisites of sample_set(): the private Python and the font."""
    python()
    _font()


def python():
    """The private Python that runs tools/images."""
    with lock.held(paths.PRIVATE / "setup.lock"):
        return wheels.python_with(wheels.IMAGES, paths.SETUP_LOG)


def _emoji(chosen):
    if chosen.out or chosen.replace:
        return _run(["emoji", _font(), _out(chosen, "emoji"), chosen.size])
    say.line(f"the sample set: {files.shown(sample_set(chosen.size))}")
    return 0


def _out(chosen, name, pictures=()):
    """The output file. Throws UsageError if the file or its preview would overwrite one of the `pictures`, or any file
    without --replace."""
    out = Path(chosen.out) if chosen.out else DATA / f"{name}-{chosen.size}.ldata"
    if out.suffix != ".ldata":
        raise UsageError(f"--out '{out}': a name that ends in .ldata; the preview takes the same with .png")
    if not chosen.out:
        DATA.mkdir(parents=True, exist_ok=True)
    if not out.parent.is_dir():
        raise UsageError(f"--out '{out}': there is no folder '{out.parent}'")
    for each in (out, out.with_suffix(".png")):
        if each.exists() and not each.is_file():
            raise UsageError(f"'{each}' is no file, and would have to be one")
        if each.exists() and any(path.exists() and each.samefile(path) for _, path in pictures):
            raise UsageError(f"'{each}' is one of the pictures to prepare: --out FILE.ldata names another file")
        if each.exists() and not chosen.replace:
            raise UsageError(f"'{each}' exists: --replace puts a new one in its place, --out FILE.ldata names another")
    return out


def _is_good(path, size):
    try:
        return path.exists() and ldata.read_header(path).size == size
    except Failure as failure:
        say.line(f"{failure}; making it anew")
        return False


def _run(arguments):
    """Runs tools/images, which prints its own errors. Returns its exit status."""
    env = {**tools.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*tools.module(python(), "images"), *map(str, arguments)]
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # a terminal's Ctrl-C has reached it already
        return process.wait()


def _font():
    """The font's file; installs its Debian package if the machine lacks it."""
    found = _installed_font()
    if found is None:
        if not debian.present():
            raise Failure(f"no {_FONT}: install Google's font Noto Color Emoji with your package manager")
        with lock.held(paths.PRIVATE / "setup.lock"):
            (debian.unpack if debian.rights() is None else debian.install)([_FONT_PACKAGE], paths.SETUP_LOG)
        found = _installed_font()
    if found is None:
        raise Failure(f"no {_FONT}, though {_FONT_PACKAGE} was installed; see {paths.SETUP_LOG}")
    return found


def _installed_font():
    for fonts in (Path("/usr/share/fonts"), debian.UNPACKED / "usr/share/fonts"):
        found = sorted(fonts.rglob(_FONT))
        if found:
            return found[0]
    return None
