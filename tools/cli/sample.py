"""`./ladder sample RUN`: builds train/sample_unet.cpp if need be and draws images from a checkpoint."""

import argparse
import contextlib
import shutil
import tempfile
import zipfile
from pathlib import Path

from . import build, device, files, flags, launcher, ranks, say
from .errors import Failure, UsageError
from .options import Parser, check_names, filled

PROGRAM = "sample_unet"

_EXAMPLES = """\
examples:
  ./ladder sample runs/unet64-1                   64 images from the newest checkpoint, as a grid in its samples.png
  ./ladder sample runs/unet64-1/checkpoints/step_00020000 --sampler ddpm --steps 1000 --seed 7
  ./ladder sample runs/unet64-1 --count 50000 --npz samples.npz    what guided-diffusion's evaluation reads"""


def main(arguments):
    parser, own = _parser()
    chosen = parser.parse_args(arguments)
    own.check(chosen)
    numbers = launcher.find_rank()
    launcher.check_gpus(chosen.gpus, numbers)
    _check(chosen, numbers)
    choice = device.choose(chosen.device)
    launcher.check_gpus(chosen.gpus, numbers, choice)
    if numbers.leads:
        say.line(choice)
    build.build(choice.preset, targets=[PROGRAM])
    command = [build.folder(choice.preset) / "train" / PROGRAM, chosen.checkpoint, *own.words(chosen)]
    command += [] if chosen.out else [f"--out={files.shown(_run_folder(Path(chosen.checkpoint)) / 'samples.png')}"]
    return _with_npz(command, chosen, numbers) if chosen.npz else ranks.start(command, chosen.gpus, numbers)


def write_npz(npy, npz):
    """The array of the file `npy` as "arr_0" of `npz`: what numpy.savez writes and guided-diffusion reads."""
    with files.whole(npz) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with open(npy, "rb") as source, archive.open("arr_0.npy", "w", force_zip64=True) as entry:
            shutil.copyfileobj(source, entry, 1 << 20)


def _parser():
    parser = Parser(
        "sample",
        description="Draws images from a checkpoint of ./ladder train.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", nargs="?", metavar="RUN", help="a run's folder, or one of its checkpoints")
    parser.add_device()
    parser.add_gpus("a part of the images")
    own = flags.Flags(parser, f"train/{PROGRAM}.json", notes={"--out": "default: samples.png in the run's folder"})
    parser.add_argument(
        "--npz",
        type=filled("npz"),
        metavar="FILE.npz",
        help="besides: the same as arr_0, the file "
        "that guided-diffusion's sampling scripts write and its evaluation reads",
    )
    return parser, own


def _run_folder(checkpoint):
    """The folder of the run that a checkpoint belongs to; of another folder that one."""
    folder = checkpoint.resolve()
    return folder.parents[1] if folder.parent.name == "checkpoints" else folder


def _check(chosen, numbers):
    if not chosen.checkpoint:
        raise UsageError("sample needs a run's folder or one of its checkpoints, as in ./ladder sample runs/unet64-1")
    if numbers.leads and not Path(chosen.checkpoint).is_dir():
        raise UsageError(f"there is no folder '{chosen.checkpoint}'; ./ladder train makes one, such as runs/unet64-1")
    check_names(chosen, out=".png", npy=".npy", npz=".npz", json=".json")


def _with_npz(command, chosen, numbers):
    npz = Path(chosen.npz)
    with _npy_beside(npz, numbers) as scratch:
        npy = Path(chosen.npy or scratch)
        command = command if chosen.npy else [*command, f"--npy={npy}"]
        if not numbers.leads:
            return ranks.start(command, None, numbers)
        hidden = None if chosen.npy else f"wrote {npy}"
        status = ranks.start(command, chosen.gpus, numbers, beside=True, hidden=hidden)
        if status:
            return status
        try:
            write_npz(npy, npz)
        except OSError as error:
            raise Failure(f"--npz '{npz}' was not written: {error.strerror}") from None
    print(f"wrote {npz}")
    return 0


@contextlib.contextmanager
def _npy_beside(npz, numbers):
    """The name of a file for the array of `npz`, in the same folder, gone at the end. Ranks compare their flags: where a
    launcher starts several, the name follows from that of `npz`."""
    if numbers.is_one_of_several:
        npy = npz.with_name(f".{npz.name}.npy")
        try:
            yield npy
        finally:
            if numbers.leads:
                npy.unlink(missing_ok=True)
        return
    with tempfile.TemporaryDirectory(dir=npz.resolve().parent, prefix=".sample.") as scratch:
        yield Path(scratch) / "samples.npy"
