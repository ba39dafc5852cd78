"""`./ladder train`: builds train/train_unet.cpp if needed and runs it.

Its flags are the program's own, read from train/train_unet.json, so that help and errors come before anything is
fetched or built. tests/python/test_train_programs.py fails if that file is out of date.
"""

import argparse
import re
import struct
import subprocess
from pathlib import Path

from images import ldata

from . import build, device, files, flags, json_file, launcher, paths, prepare, ranks, say, tools, train_compare, wheels
from .errors import Failure, UsageError
from .options import Parser

PROGRAM = "train_unet"
IMAGE_SIZES = {"unet64": 64, "tiny": 8}  # of the named configurations, nn/models/unet2d_config.cpp
BATCHES = {"unet64": 32, "tiny": 2}  # images of a step, train_unet's defaults
RUNS = paths.ROOT / "runs"
_UNKNOWN = {}  # the configuration of a run in a folder that this host may not have

_DESCRIPTION = """\
Trains guided-diffusion's U-Net to predict noise, with the promoted version of every kernel. Ctrl-C ends a
training after the current step, with a checkpoint; --resume goes on from it. A run's folder has log.jsonl,
checkpoints/ and samples/. --gpus N trains on several GPUs of this machine; torchrun, srun and mpirun start ./ladder
train on each GPU of one or several machines, with --out."""

_EXAMPLES = """\
examples:
  ./ladder train                                  unet64 on the sample set, 64x64 emoji, into runs/unet64-1
  ./ladder train --config tiny                    a small model learns two images by heart: minutes without a GPU
  ./ladder train --data build/data/photos-64.ldata --out runs/photos --sample-every 1000
  ./ladder train --resume                         goes on with the newest training in runs/
  ./ladder train --gpus 2 --batch 64              two GPUs, 32 images each
  torchrun --no-python --nproc-per-node 8 ./ladder train --out runs/big --batch 256 --resume-or-begin
  ./ladder train --explain                        which version every operation runs, and why
  ./ladder train --compare conv3x3/fprop=v09,v14  which of two versions makes the faster step
  ./ladder train --compare overlap=on,off         what overlapping launches bring
  ./ladder train --gpus 2 --batch 64 --compare ranks=alone,all     what a step of two GPUs costs more"""

# {flag of the program: note in its help text}, for defaults that this verb chooses.
_NOTES = {
    "--data": "default: the sample set, made where it is missing; with --resume, that of the run; random images where "
    "nothing is learned (--explain, --budget, --compare)",
    "--out": "default: runs/<config>-<n>, the next that is free; with --resume, the newest run in runs/",
}


def main(arguments):
    parser, own = _parser()
    chosen = parser.parse_args(arguments)
    own.check(chosen)
    numbers = launcher.find_rank()
    _check(chosen, numbers)
    resumed = _resumed(chosen, numbers)
    _check_batch(chosen, resumed, chosen.gpus or numbers.size)
    size = _image_size(chosen, resumed)
    takes_default_data = not chosen.data and _takes_default_data(chosen, resumed, numbers)
    if chosen.data and resumed is not _UNKNOWN:
        _check_data(chosen.data, size)
    elif takes_default_data and size not in prepare.SIZES:
        raise UsageError(
            f"no sample set of {size} pixels a side, only from {prepare.SIZES[0]} to {prepare.SIZES[-1]}: give --data"
        )
    choice = device.choose(chosen.device)
    launcher.check_gpus(chosen.gpus, numbers, choice, can_share=chosen.collectives == "host")
    if chosen.budget and choice.preset == "emulator":
        raise UsageError("--budget times kernels: it needs a GPU")
    if numbers.leads:
        say.line(choice)
    build.build(choice.preset, targets=[PROGRAM])
    if takes_default_data:
        chosen.data = _default_data(size, chosen)
        if numbers.leads:
            say.line(f"{'the sample set' if _trains(chosen) else 'random images'}: {chosen.data}")
    follows = chosen.tensorboard and numbers.leads
    python = wheels.python_with(wheels.TENSORBOARD, paths.SETUP_LOG) if follows else None
    chosen.out = chosen.out or _new_run(chosen.config or "unet64", made=_trains(chosen))
    file, chosen.json = chosen.json, None
    command = [build.folder(choice.preset) / "train" / PROGRAM, *own.words(chosen)]
    if chosen.compare:
        return train_compare.main(command, arguments, file, chosen.gpus)
    if python:
        return _with_tensorboard(command, chosen.gpus, numbers, Path(chosen.out), python)
    return ranks.start(command, chosen.gpus, numbers)


def checkpoint_config(run_folder):
    """The configuration that train_unet wrote into a run's newest checkpoint. Throws Failure."""
    try:
        config = json_file.parse(checkpoint_metadata(run_folder)["config"])
        if not isinstance(config, dict):
            raise ValueError("it is no object of JSON")
        return config
    except (ValueError, KeyError, TypeError) as error:
        why = json_file.reason(error)
        raise Failure(f"the newest checkpoint in '{run_folder}' has no configuration: {why}") from None


def checkpoint_metadata(run_folder):
    """{name: text} of a run's newest readable checkpoint. Throws Failure."""
    problems = []
    for folder in complete_checkpoints(run_folder):
        try:
            with open(folder / "model.safetensors", "rb") as file:
                (header_bytes,) = struct.unpack("<Q", file.read(8))
                return json_file.parse(file.read(min(header_bytes, 1 << 26)))["__metadata__"]
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            problems.append(json_file.reason(error))
    raise Failure(f"the newest checkpoint in '{run_folder}' cannot be read: {(problems or ['there is none'])[0]}")


def complete_checkpoints(run_folder):
    """Folders of a run's complete checkpoints in order of preference for resuming: the one that `latest` names, then by
    falling step. train/checkpoint.cpp has the same order."""
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
    parser.add_device()
    parser.add_gpus("a part of every batch")
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        help="write TensorBoard's events too, into tensorboard/ of the run, while it trains",
    )
    return parser, flags.Flags(parser, f"train/{PROGRAM}.json", _NOTES)


def _trains(chosen):
    return not (chosen.explain or chosen.budget or chosen.compare)


def _check(chosen, numbers):
    launcher.check_gpus(chosen.gpus, numbers)
    if (chosen.explain or chosen.budget) and (numbers.is_one_of_several or (chosen.gpus or 1) > 1):
        raise UsageError("--explain and --budget are for one process: without --gpus, torchrun, srun or mpirun")
    if chosen.compare and numbers.is_one_of_several:
        raise UsageError(
            "--compare starts the ranks itself, on this machine: --gpus N, without torchrun, srun or mpirun"
        )
    if numbers.is_one_of_several and not chosen.out:
        raise UsageError(f"{numbers.size} ranks ({numbers}) need --out DIR: each must know the run's folder")
    if chosen.resume_or_begin and not chosen.out:
        raise UsageError("--resume-or-begin needs --out DIR: each start must find the same folder")
    if chosen.tensorboard and not _trains(chosen):
        raise UsageError("--tensorboard is for a training: --explain, --budget and --compare leave no log")
    if chosen.resume and chosen.init_weights:
        raise UsageError("--resume has its weights from the checkpoint: leave out --init-weights")
    if chosen.init_weights and numbers.leads and not Path(chosen.init_weights).is_file():
        raise UsageError(f"--init-weights: there is no file '{chosen.init_weights}'")
    if chosen.batch and int(chosen.batch) % int(chosen.micro_batches or 1):
        raise UsageError(f"--batch {chosen.batch} is no multiple of --micro-batches {chosen.micro_batches}")
    for flag in ("budget", "json"):
        file = getattr(chosen, flag)
        if file and not Path(file).resolve().parent.is_dir():
            raise UsageError(f"--{flag} '{file}': there is no folder '{Path(file).parent}'")
    if chosen.data and not Path(chosen.data).is_file():
        raise UsageError(f"--data: there is no file '{chosen.data}'; ./ladder prepare DIR makes one of pictures")


def _check_batch(chosen, resumed, num_ranks):
    """Throws UsageError unless ranks and micro-batches take the same number of images each, as far as it is known."""
    batch, parts = int(chosen.batch or 0), int(chosen.micro_batches or 1)
    if resumed is None:
        batch = batch or BATCHES[chosen.config or "unet64"]
    elif resumed is not _UNKNOWN:
        batch, parts = (_count(resumed, key) for key in ("batch", "micro_batches"))
    multiple = num_ranks * parts
    if num_ranks == 1 or multiple == 0 or batch % multiple == 0:
        return
    below = batch // multiple * multiple
    nearest = [str(number) for number in (below, below + multiple) if number]
    of = f"{num_ranks} times --micro-batches {parts}" if parts > 1 else str(num_ranks)
    raise UsageError(
        f"--batch {batch} on {num_ranks} GPUs: a multiple of {of} gives each as many images, as --batch "
        f"{' or '.join(nearest)} does"
    )


def _count(config, key):
    """A whole number of a checkpoint's configuration; 0 if it has none."""
    value = config.get(key)
    return value if type(value) is int and value > 0 else 0


def _resumed(chosen, numbers):
    """Returns the configuration of the training to go on with and sets --out to its folder; None for a new training,
    _UNKNOWN where rank 0 alone can tell."""
    if chosen.resume_or_begin:
        if numbers.is_one_of_several:
            return _UNKNOWN
        return checkpoint_config(chosen.out) if complete_checkpoints(chosen.out) else None
    if not chosen.resume:
        if chosen.out and complete_checkpoints(chosen.out) and _trains(chosen):
            raise UsageError(f"'{chosen.out}' holds a training already: go on with --resume, or give another --out")
        return None
    if not chosen.out:
        chosen.out = files.shown(_newest_run(chosen.config))
        say.line(f"going on with {chosen.out}")
    elif not numbers.leads:
        return _UNKNOWN
    elif not complete_checkpoints(chosen.out):
        raise UsageError(f"'{chosen.out}' holds no checkpoint to go on from: leave out --resume")
    return checkpoint_config(chosen.out)


def _newest_run(config):
    """The run in runs/ with the newest checkpoint; `config` None for any configuration."""
    runs = [run for run in RUNS.glob("*") if config is None or re.fullmatch(rf"{config}-\d+", run.name)]
    newest = {run: found[0].stat().st_mtime_ns for run in runs if (found := complete_checkpoints(run))}
    if not newest:
        of = f" of {config}" if config else ""
        raise UsageError(f"--resume: {files.shown(RUNS)} has no run{of} with a checkpoint; --out DIR names another")
    return max(newest, key=newest.get)


def _new_run(config, made):
    """Path runs/<config>-<n> with the next free n; `made` creates the folder."""
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
        model = resumed.get("model")
        size = model.get("image_size") if isinstance(model, dict) else None
        if type(size) is not int or size < 1:
            raise Failure(
                f"the newest checkpoint in '{chosen.out}' has no model.image_size, a whole number of at least 1"
            )
        return size
    return int(chosen.image_size or IMAGE_SIZES[chosen.config or "unet64"])


def _takes_default_data(chosen, resumed, numbers):
    """Returns True unless the folder of the training to go on with names its data. Ranks compare their flags: where a
    launcher starts several, the answer follows from the flags alone."""
    if numbers.is_one_of_several:
        return not chosen.resume
    return resumed is None or not (Path(chosen.out) / "options.json").is_file()


def _default_data(size, chosen):
    """File of the sample set; of random images for --explain, --budget and --compare, whose times ignore the pixels."""
    if not _trains(chosen):
        return files.shown(prepare.random_set(size))
    try:
        return files.shown(prepare.sample_set(size))
    except Failure as failure:
        why = str(failure).splitlines()[0].removesuffix(":")
        file = files.shown(prepare.DATA / f"emoji-{size}.ldata")
        raise Failure(
            f"no sample set ({why}): bring {file} from a machine with a network, where ./ladder prepare --emoji --size "
            f"{size} makes it, and give --data {file}"
        ) from None


def _check_data(path, size):
    header = ldata.read_header(Path(path))
    if header.size != size:
        raise UsageError(
            f"--data '{path}' has images of {header.size} pixels a side, the model takes {size}: "
            f"./ladder prepare --size {size} makes them, or give --image-size {header.size}"
        )


def _with_tensorboard(command, gpus, numbers, out, python):
    """Runs the training together with cli/tensorboard.py, which follows the log until its standard input is closed."""
    out.mkdir(parents=True, exist_ok=True)
    env = {**tools.environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    follower = subprocess.Popen(
        [*tools.module(python, "cli.tensorboard"), out / "log.jsonl", out / "tensorboard"],
        env=env,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )  # the new session keeps Ctrl-C from the follower; the training alone gets it
    try:
        status = ranks.start(command, gpus, numbers, beside=True)
    finally:
        follower.stdin.close()
        failed = follower.wait()
    if failed:
        say.line("TensorBoard's events are not complete: the lines above say why")
    else:
        say.line(f"tensorboard --logdir {out / 'tensorboard'} shows the curves")
    return status
