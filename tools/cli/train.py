"""`./ladder train`: builds train/train_unet.cpp if need be and runs it.

Its flags are the program's own, which are known here too, so that help and every error about them come before anything
is fetched or built; tests/test_train_programs.py holds the two together.
"""

import argparse
import json
import re
import struct
import subprocess
from pathlib import Path

from images import ldata

from . import bench, build, device, files, flags, paths, prepare, run, say, setup, tools, wheels
from .errors import Failure, UsageError
from .options import Parser, filled

PROGRAM = "train_unet"
IMAGE_SIZES = {"unet64": 64, "tiny": 8}  # of the named configurations, nn/models/unet2d_config.cpp
RUNS = paths.ROOT / "runs"

_DESCRIPTION = """\
Trains guided-diffusion's U-Net to predict noise, with the fastest recorded version of every kernel. Ctrl-C ends a
training after the current step, with a checkpoint; --resume goes on from it. A run's folder has log.jsonl,
checkpoints/ and samples/."""

_EXAMPLES = """\
examples:
  ./ladder train                                  unet64 on the sample set, 64x64 emoji, into runs/unet64-1
  ./ladder train --config tiny                    a small model learns two images by heart: minutes without a GPU
  ./ladder train --data build/data/photos-64.ldata --out runs/photos --sample-every 1000
  ./ladder train --resume                         goes on with the newest training in runs/
  ./ladder train --explain                        which version every operation runs, and why"""


def main(arguments):
    parser, own = _parser()
    chosen = parser.parse_args(arguments)
    _check(chosen)
    resumed = _resumed(chosen)
    size = _image_size(chosen, resumed)
    if chosen.data:
        _check_data(chosen.data, size)
    elif not resumed and size not in prepare.SIZES:
        raise UsageError(
            f"no sample set of {size} pixels a side, only from {prepare.SIZES[0]} to {prepare.SIZES[-1]}: give --data"
        )
    choice = device.choose(chosen.device)
    if chosen.budget and choice.preset == "emulator":
        raise UsageError("--budget times kernels: it needs a GPU")
    say.line(choice)
    bench.ready(choice.preset, [PROGRAM])
    if not chosen.data and not (chosen.resume and (Path(chosen.out) / "options.json").is_file()):
        chosen.data = _sample_set(size)
    python = _tensorboard_python() if chosen.tensorboard else None
    chosen.out = chosen.out or _new_run(chosen.config or "unet64", made=not (chosen.explain or chosen.budget))
    command = [build.folder(choice.preset) / "train" / PROGRAM, *own.words(chosen)]
    return _with_tensorboard(command, Path(chosen.out), python) if python else run.handed_over(command)


def program_flags():
    """Those that the program has too."""
    return _parser()[1].names()


def checkpoint_config(run_folder):
    """The configuration of a run's newest checkpoint, as train_unet wrote it. Throws Failure."""
    try:
        return json.loads(checkpoint_metadata(run_folder)["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"the newest checkpoint in '{run_folder}' has no configuration: {error}") from None


def checkpoint_metadata(run_folder):
    """{name: text} of a run's newest checkpoint that can be read. Throws Failure."""
    problems = []
    for folder in complete_checkpoints(run_folder):
        try:
            with open(folder / "model.safetensors", "rb") as file:
                (header_bytes,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(header_bytes, 1 << 26)))
            return header["__metadata__"]
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            problems.append(error)
    raise Failure(f"the newest checkpoint in '{run_folder}' cannot be read: {(problems or ['there is none'])[0]}")


def complete_checkpoints(run_folder):
    """Folders of a run's complete checkpoints, that to go on from first: what `latest` names, then by falling step. The
    same as train/checkpoint.cpp takes."""
    checkpoints = Path(run_folder) / "checkpoints"
    complete = [
        folder
        for folder in checkpoints.glob("step_*")
        if re.fullmatch(r"step_\d{8,}", folder.name)
        and all((folder / f"{part}.safetensors").is_file() for part in ("model", "ema", "optimizer"))
    ]
    try:
        latest = (checkpoints / "latest").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        latest = ""
    return sorted(complete, key=lambda folder: (folder.name == latest, int(folder.name[5:])), reverse=True)


def _parser():
    parser = Parser(
        "train", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("gpu", "emulator"), help="default: the GPU where there is one")
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        help="write TensorBoard's events too, into tensorboard/ of the run, while it trains",
    )
    own = flags.Flags(parser)
    steps = flags.whole(0)

    add = own.group("the model")
    add(
        "--config",
        "what to begin with: unet64 (20,494,211 parameters, the default); tiny, for machines without a GPU",
        choices=tuple(IMAGE_SIZES),
    )
    add("--image-size", "pixels of a side", type=flags.whole(1), metavar="N")
    add("--channels", "of the first level", type=flags.whole(1), metavar="N")
    add("--channel-mult", "a level's channels as a multiple of those: 1,2,3,4", type=flags.whole_list, metavar="LIST")
    add("--res-blocks", "of a level on the way down", type=flags.whole(1), metavar="N")
    add("--attention-resolutions", "sides at which blocks attend: 16,8", type=flags.whole_list, metavar="LIST")
    add("--head-size", "channels of an attention head", choices=("32", "64"))

    add = own.group("the training")
    add(
        "--dtype",
        "bf16 (fp32 master weights and weight gradients; the default), tf32 or fp32",
        choices=("bf16", "tf32", "fp32"),
    )
    add("--steps", "of the whole training (default: 20000; tiny: 30)", type=flags.whole(1), metavar="N")
    add("--batch", "images of a step (default: 32; tiny: 2)", type=flags.whole(1), metavar="N")
    add(
        "--micro-batches",
        "parts that a batch is cut into, to save memory (default: 1)",
        type=flags.whole(1),
        metavar="N",
    )
    add("--lr", "learning rate (default: 1e-4; tiny: 1e-3)", type=flags.real(above=0), metavar="RATE")
    add("--warm-up", "steps over which the learning rate grows (default: 0)", type=steps, metavar="N")
    add("--decay", "of the learning rate (default: constant)", choices=("constant", "linear", "cosine"))
    add("--beta1", "AdamW's (default: 0.9)", type=flags.real(0, below=1), metavar="B")
    add("--beta2", "AdamW's (default: 0.999)", type=flags.real(0, below=1), metavar="B")
    add("--eps", "AdamW's (default: 1e-8)", type=flags.real(above=0), metavar="E")
    add("--weight-decay", "decoupled, AdamW's (default: 0)", type=flags.real(0), metavar="W")
    add("--clip", "the gradient's largest norm (default: 1); 0: not clipped", type=flags.real(0), metavar="NORM")
    add("--ema-rate", "of the weights' moving average (default: 0.9999)", type=flags.real(0, below=1), metavar="RATE")
    add(
        "--ema",
        "ramp: a half-life of at most 5 % of the images seen (the default); constant",
        choices=("ramp", "constant"),
    )
    add("--schedule", "of the noise (default: linear)", choices=("linear", "cosine"))
    add("--flip", "mirror every other image, at random")
    add("--overfit-batch", "the first batch, its time steps and its noise again and again (the default of tiny)")
    add("--no-overfit-batch", "a new batch each step, with tiny too")
    add("--seed", "of weights, order, time steps and noise (default: 0)", type=flags.whole(0, 2**63 - 1), metavar="N")

    add = own.group("how it runs")
    add(
        "--data",
        "a file that ./ladder prepare made (default: the sample set, made where it is missing; with --resume, "
        "that of the run)",
        type=filled("data"),
        metavar="FILE.ldata",
    )
    add(
        "--out",
        "folder of the run (default: runs/<config>-<n>, the next that is free)",
        type=filled("out"),
        metavar="DIR",
    )
    add(
        "--resume",
        "go on from the newest checkpoint of --out (default: of the newest run in runs/), with the options "
        "that the run was started with, where they are not given anew",
    )
    add(
        "--init-weights",
        "safetensors to begin with, named as in guided-diffusion",
        type=filled("init-weights"),
        metavar="FILE",
    )
    add(
        "--graph",
        "on: the step is one CUDA graph (the default); off: the same bits, launch by launch",
        choices=("on", "off"),
    )
    add(
        "--use",
        "versions in place of promoted ones: conv3x3/fprop=v07,gemm/dgrad=v03",
        type=filled("use"),
        metavar="LIST",
    )
    add("--log-every", "steps; likewise the others, 0: never (default: 50; tiny: 1)", type=steps, metavar="N")
    add("--held-out-every", "the loss on images held out (default: 1000; tiny: 0)", type=steps, metavar="N")
    add("--sample-every", "a grid of images from the average (default: 0)", type=steps, metavar="N")
    add("--checkpoint-every", "and at the end (default: 5000; tiny: 0, at the end only)", type=steps, metavar="N")
    add("--keep", "checkpoints (default: 3)", type=flags.whole(1), metavar="N")
    add("--stop-at", "stop behind this step with a checkpoint, as if interrupted", type=steps, metavar="N")
    add("--device-data-bytes", "larger data sets are streamed from the host (default: 8 GiB)", type=steps, metavar="N")
    add("--explain", "print which version every operation runs, and why, and leave")
    add(
        "--budget",
        "time every operation of a step, write this JSON file, and leave",
        type=filled("budget"),
        metavar="FILE",
    )
    return parser, own


def _check(chosen):
    if chosen.overfit_batch and chosen.no_overfit_batch:
        raise UsageError("--overfit-batch and --no-overfit-batch exclude each other")
    if chosen.tensorboard and (chosen.explain or chosen.budget):
        raise UsageError("--tensorboard is for a training: --explain and --budget leave no log")
    if chosen.resume and chosen.init_weights:
        raise UsageError("--resume has its weights from the checkpoint: leave out --init-weights")
    if chosen.init_weights and not Path(chosen.init_weights).is_file():
        raise UsageError(f"--init-weights: there is no file '{chosen.init_weights}'")
    if chosen.batch and int(chosen.batch) % int(chosen.micro_batches or 1):
        raise UsageError(f"--batch {chosen.batch} is no multiple of --micro-batches {chosen.micro_batches}")
    if chosen.budget and not Path(chosen.budget).resolve().parent.is_dir():
        raise UsageError(f"--budget '{chosen.budget}': there is no folder '{Path(chosen.budget).parent}'")
    if chosen.data and not Path(chosen.data).is_file():
        raise UsageError(f"--data: there is no file '{chosen.data}'; ./ladder prepare DIR makes one of pictures")


def _resumed(chosen):
    """The configuration of the training to go on with, and --out set to its folder; None for a new one."""
    if not chosen.resume:
        if chosen.out and complete_checkpoints(chosen.out) and not (chosen.explain or chosen.budget):
            raise UsageError(f"'{chosen.out}' holds a training already: go on with --resume, or give another --out")
        return None
    if not chosen.out:
        chosen.out = files.shown(_newest_run(chosen.config))
        say.line(f"going on with {chosen.out}")
    elif not complete_checkpoints(chosen.out):
        raise UsageError(f"'{chosen.out}' holds no checkpoint to go on from: leave out --resume")
    return checkpoint_config(chosen.out)


def _newest_run(config):
    """The run with the newest checkpoint, of a configuration or of any."""
    runs = [run for run in RUNS.glob("*") if config is None or re.fullmatch(rf"{config}-\d+", run.name)]
    newest = {run: found[0].stat().st_mtime_ns for run in runs if (found := complete_checkpoints(run))}
    if not newest:
        of = f" of {config}" if config else ""
        raise UsageError(f"--resume: {files.shown(RUNS)} has no run{of} with a checkpoint; --out DIR names another")
    return max(newest, key=newest.get)


def _new_run(config, made):
    """runs/<config>-<n> with the next free n; the folder itself if it is to be `made`."""
    names = [re.fullmatch(rf"{config}-(\d+)", path.name) for path in RUNS.glob("*")]
    taken = [int(match[1]) for match in names if match]
    number = max(taken, default=0) + 1
    while made:
        folder = RUNS / f"{config}-{number}"
        folder.parent.mkdir(exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:  # another ./ladder train has just taken it
            number += 1
            continue
        say.line(f"the run's folder: {files.shown(folder)}")
        break
    return files.shown(RUNS / f"{config}-{number}")


def _image_size(chosen, resumed):
    if resumed:
        return resumed["model"]["image_size"]
    return int(chosen.image_size or IMAGE_SIZES[chosen.config or "unet64"])


def _check_data(path, size):
    header = ldata.read_header(Path(path))
    if header.size != size:
        raise UsageError(
            f"--data '{path}' has images of {header.size} pixels a side, the model takes {size}: "
            f"./ladder prepare --size {size} makes them, or give --image-size {header.size}"
        )


def _sample_set(size):
    path = files.shown(prepare.sample_set(size))
    say.line(f"the sample set: {path}")
    return path


def _tensorboard_python():
    return wheels.python_with(wheels.TENSORBOARD, setup.LOG)


def _with_tensorboard(command, out, python):
    """Runs the training beside cli/tensorboard.py, which follows its log until told that it has ended."""
    out.mkdir(parents=True, exist_ok=True)
    env = {**tools.environment(), "PYTHONPATH": str(paths.ROOT / "tools"), "PYTHONDONTWRITEBYTECODE": "1"}
    follower = subprocess.Popen(
        [python, "-m", "cli.tensorboard", out / "log.jsonl", out / "tensorboard"],
        env=env,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )  # Ctrl-C is the training's alone
    try:
        status = run.passed_on(command)
    finally:
        follower.stdin.close()
        failed = follower.wait()
    if failed:
        say.line("TensorBoard's events are not complete: the lines above say why")
    else:
        say.line(f"tensorboard --logdir {out / 'tensorboard'} shows the curves")
    return status
