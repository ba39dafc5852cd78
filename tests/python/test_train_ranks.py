"""`./ladder train` and `./ladder sample` with `--gpus N` and under launchers, whose programs a script replaces."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli import build, device, launcher, sample, train
from cli.errors import Failure, UsageError
from made_runs import write_checkpoint, write_ldata
from test_train_verbs import verbs  # noqa: F401 (a fixture)

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = '#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/../../words-${RANK:-alone}"\n'
TORCHRUN, OPEN_MPI, MPICH, SLURM_STEP, SLURM = launcher.SETS


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in (*(name for names in launcher.SETS for name in names), "SLURM_STEP_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ranked(verbs, monkeypatch):  # noqa: F811
    """The verbs, whose program writes its words to a file of its rank; `launched` runs one as a rank of torchrun."""
    verbs.program(SCRIPT)

    def of(*all_ranks):
        return [(verbs.scratch / f"words-{rank}").read_text().splitlines() for rank in all_ranks]

    def launched(rank, size, module, *arguments):
        for name, value in zip(TORCHRUN, (rank, size, rank)):
            monkeypatch.setenv(name, str(value))
        verbs.verb(module, *arguments)
        return of(rank)[0] if verbs.status == 0 else None

    verbs.of, verbs.launched = of, launched
    return verbs


def config(size, batch, micro_batches=1):
    return json.dumps({"model": {"image_size": size}, "batch": batch, "micro_batches": micro_batches})


# Numbers of the machine and of the batch.


def test_gpus_start_ranks_with_the_same_words_after_one_build(ranked):
    ranked.verb(train, "--gpus", "2", "--batch", "64")
    words = ["--batch=64", f"--data={ranked.sample_set(64)}", f"--out={ranked.scratch}/runs/unet64-1"]
    assert (ranked.status, ranked.built, ranked.of(0, 1)) == (0, ["train_unet"], [words, words])
    assert [path.name for path in (ranked.scratch / "runs").iterdir()] == ["unet64-1"]
    ranked.verb(train, "--gpus", "1")
    assert ranked.of("alone") == [[words[1], f"--out={ranked.scratch}/runs/unet64-2"]]


def test_gpus_are_counted(ranked, monkeypatch):
    ranked.refuses("--gpus 17: the emulator takes 1 to 16 processes", train, "--gpus", "17", "--batch", "17")
    ranked.refuses("a whole number of at least 1", train, "--gpus", "0")
    monkeypatch.setattr(device, "choose", lambda wanted: device.Choice("cuda", "for a test"))
    for there, says in ((2, "2 GPUs; --gpus 1 to 2 is right"), (1, "1 GPU; --gpus 1 is right")):
        monkeypatch.setattr(device, "_first", lambda there=there: (device._Gpu("NVIDIA H100", 90, there), ""))
        ranked.refuses(f"--gpus 3: this machine has {says}", train, "--gpus", "3", "--batch", "33")
        ranked.refuses(f"--gpus 3: this machine has {says}", sample, str(ranked.scratch), "--gpus", "3")
    (ranked.scratch / "emulator").rename(ranked.scratch / "cuda")
    ranked.verb(train, "--gpus", "3", "--batch", "33", "--collectives", "host")  # ranks share the GPU
    assert ranked.status == 0 and "--collectives=host" in ranked.of(2)[0]
    ranked.built.clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    ranked.refuses(r"1 GPU visible \(CUDA_VISIBLE_DEVICES\)", train, "--gpus", "2")


def test_a_batch_is_a_multiple_of_ranks_times_micro_batches(ranked):
    for says, *arguments in (
        ("--batch 30 on 4 GPUs: a multiple of 4 .* as --batch 28 or 32 does", "--batch=30", "--gpus=4"),
        ("--batch 2 on 4 GPUs: .* as --batch 4 does", "--gpus=4", "--config=tiny"),
        ("--batch 32 on 3 GPUs: .* 30 or 33", "--gpus=3"),
        ("--batch 36 on 4 GPUs: a multiple of 4 times --micro-batches 2 .* 32 or 40", "--batch=36", "--gpus=4")
        + ("--micro-batches=2",),
    ):
        ranked.refuses(says, train, *arguments)
    assert not (ranked.scratch / "runs").exists()
    ranked.verb(train, "--batch", "30", "--gpus", "3")
    assert ranked.status == 0


def test_the_batches_are_the_programs_defaults():
    flags = {each["name"]: each for each in json.loads((ROOT / "train/train_unet.json").read_text())["flags"]}
    assert flags["--batch"]["default"] == str(train.BATCHES["unet64"])
    assert flags["--batch"]["help"].endswith(f"tiny: {train.BATCHES['tiny']}")
    assert train.BATCHES.keys() == train.IMAGE_SIZES.keys() == set(flags["--config"]["words"].split(","))


def test_a_resumed_training_has_the_batch_of_its_checkpoint(ranked):
    out = ranked.scratch / "runs" / "unet64-1"
    write_checkpoint(out, 64, config=config(64, 48, 2))
    for flag in ("--resume", "--resume-or-begin"):
        ranked.verb(train, flag, "--out", str(out), "--gpus", "3")
        assert ranked.status == 0, flag
        ranked.built.clear()
        says = "--batch 48 on 5 GPUs: .* 5 times --micro-batches 2 .* 40 or 50"
        ranked.refuses(says, train, flag, "--out", str(out), "--gpus=5")


def test_several_gpus_train_and_compare(ranked, monkeypatch):
    for flags in (["--explain"], ["--budget", "x.json"]):
        ranked.refuses("for one process: without --gpus", train, *flags, "--gpus", "2")
    ranked.verb(train, "--explain", "--gpus", "1")
    assert ranked.status == 0
    ranked.built.clear()
    for name, value in zip(TORCHRUN, "020"):
        monkeypatch.setenv(name, value)
    ranked.refuses("for one process", train, "--explain", "--out", "x")
    ranked.refuses("--compare starts the ranks itself", train, "--compare", "reduce=fp32,bf16", "--out", "x")


# Going on, or beginning.


def test_resume_or_begin_begins_then_goes_on(ranked):
    out = ranked.scratch / "run"
    ranked.refuses("--resume-or-begin needs --out", train, "--resume-or-begin")
    ranked.refuses("exclude each other", train, "--resume", "--resume-or-begin", "--out", str(out))
    words = [f"--out={out}", "--resume-or-begin"]
    ranked.verb(train, "--resume-or-begin", "--out", str(out))
    assert ranked.of("alone") == [[f"--data={ranked.sample_set(64)}", *words]]
    write_checkpoint(out, 16)
    ranked.verb(train, "--resume-or-begin", "--out", str(out))
    assert ranked.of("alone") == [[f"--data={ranked.sample_set(16)}", *words]]
    (out / "options.json").write_text("{}")
    ranked.verb(train, "--resume-or-begin", "--out", str(out))
    assert ranked.of("alone") == [words]
    data = write_ldata(ranked.scratch / "small.ldata", 8)
    ranked.built.clear()
    ranked.refuses("images of 8 pixels a side, the model takes 16", train, *words, "--data", data)
    (out / "checkpoints" / "step_00000003" / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(Failure, match="cannot be read"):
        ranked.verb(train, *words)


# Launchers.


def test_the_variables_are_the_programs():
    text = (ROOT / "train" / "world.cpp").read_text()
    listed = re.search(r"kSets\[\] = \{(.*?)\};", text, re.DOTALL)[1]
    in_cpp = [tuple(re.findall(r'"(\w+)"', names))[:3] for names in re.findall(r"\{([^{}]*)\}", listed)]
    assert in_cpp == list(launcher.SETS)
    assert int(re.search(r"kMaxSlurmStep = (\w+);", text)[1], 16) == launcher._MOST_SLURM_STEP


def variables(names, *values, **more):
    return {**dict(zip(names, values)), **more}


@pytest.mark.parametrize(
    ("found", "environment"),
    [
        ((0, 1, 0), {}),
        ((3, 8, 1), variables(TORCHRUN, "3", "8", "1")),
        ((2, 4, 2), variables(OPEN_MPI, "2", "4", "2")),
        ((2, 4, 0), variables(MPICH, "2", "4", "0")),
        ((5, 6, 1), variables(SLURM, "5", "6", "1", SLURM_STEP_ID="0")),
        ((5, 6, 1), {**variables(SLURM_STEP, "5", "6", "1", SLURM_STEP_ID="0"), "SLURM_NTASKS": "64"}),
        ((0, 1, 0), variables(SLURM, "5", "6", "1")),  # a batch script
        ((0, 1, 0), variables(SLURM, "5", "6", "1", SLURM_STEP_ID=str(0xFFFFFFFB))),
        ((0, 1, 0), variables(MPICH[:2], "2", "4")),
        ((0, 1, 0), {"WORLD_SIZE": "4"}),
        ((1, 2, 1), {**variables(SLURM, "5", "6", "1", SLURM_STEP_ID="0"), **variables(TORCHRUN, "1", "2", "1")}),
        ((5, 6, 1), {**variables(SLURM, "5", "6", "1", SLURM_STEP_ID="0"), "PMI_RANK": "0"}),
    ],
)
def test_the_first_complete_set_counts(found, environment):
    numbers = launcher.find_rank(environment)
    assert (numbers.rank, numbers.size, numbers.local_rank) == found


@pytest.mark.parametrize(
    ("says", "environment"),
    [
        ("RANK=1 without WORLD_SIZE: set RANK, WORLD_SIZE and LOCAL_RANK", {"RANK": "1"}),
        ("RANK=1 without LOCAL_RANK", {"RANK": "1", "WORLD_SIZE": "2"}),
        ("RANK=x: a whole number from 0 to 65536", variables(TORCHRUN, "x", "2", "0")),
        ("RANK=-1: ", variables(TORCHRUN, "-1", "2", "0")),
        ("RANK=: ", variables(TORCHRUN, "", "2", "0")),
        ("WORLD_SIZE=0: a whole number from 1 to", variables(TORCHRUN, "0", "0", "0")),
        ("RANK=2 with WORLD_SIZE=2: the first must be smaller, from 0 to 1", variables(TORCHRUN, "2", "2", "0")),
        ("PMI_RANK=4 with PMI_SIZE=4", variables(MPICH, "4", "4", "0")),
        ("LOCAL_RANK=9 with WORLD_SIZE=4", variables(TORCHRUN, "0", "4", "9")),
    ],
)
def test_odd_variables_are_wrong_usage(says, environment):
    with pytest.raises(UsageError, match=re.escape(says)):
        launcher.find_rank(environment)


def test_gpus_under_a_launcher(ranked, monkeypatch):
    for names, size in ((TORCHRUN, "2"), (TORCHRUN, "1"), (OPEN_MPI, "2"), (SLURM, "2")):
        with monkeypatch.context() as context:
            context.setenv("SLURM_STEP_ID", "0")
            for name, value in zip(names, ("0", size, "0")):
                context.setenv(name, value)
            for module, *arguments in ((train, "--out", "x"), (sample, str(ranked.scratch))):
                says = f"--gpus 2 under a launcher ({names[0]}=0 {names[1]}={size} "
                ranked.refuses(re.escape(says), module, *arguments, "--gpus", "2")
    for name, value in zip(SLURM, ("0", "1", "0")):  # srun --pty bash: a shell, where --gpus starts the ranks
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    ranked.verb(train, "--gpus", "2")
    assert ranked.status == 0 and ranked.of(0) == ranked.of(1)


def test_launched_ranks_hand_on_the_same_words(ranked):
    out = ranked.scratch / "run"
    for rank in range(2):
        words = ranked.launched(rank, 2, train, "--out", str(out), "--batch", "64")
        assert words == ["--batch=64", f"--data={ranked.sample_set(64)}", f"--out={out}"]
        assert (ranked.said.getvalue() == "") == (rank > 0), "it was said twice"
    assert ranked.built == ["train_unet"] * 2
    assert not out.exists() and not (ranked.scratch / "runs").exists()
    for flag, first in (("--resume-or-begin", [f"--data={ranked.sample_set(64)}"]), ("--resume", [])):
        here = ranked.launched(1, 2, train, "--out", str(out), flag)  # a host without the run's folder
        assert here == [*first, f"--out={out}", flag]
        write_checkpoint(out, 16, config=config(16, 32))
        assert ranked.launched(0, 2, train, "--out", str(out), flag) == here
        data = write_ldata(ranked.scratch / "of 16 pixels.ldata", 16)
        assert f"--data={data}" in ranked.launched(1, 2, train, "--out", "elsewhere", flag, "--data", data)
        (out / "checkpoints").rename(ranked.scratch / f"checkpoints{flag}")


def test_a_launchers_world_of_one_is_no_world(ranked):
    assert f"--out={ranked.scratch}/runs/unet64-1" in ranked.launched(0, 1, train)


def test_what_launched_ranks_refuse(ranked, monkeypatch):
    for name, value in zip(TORCHRUN, "121"):
        monkeypatch.setenv(name, value)
    write_checkpoint(ranked.scratch / "taken", 8)
    out = ("--out", "x")
    for says, *arguments in (
        (r"2 ranks \(RANK=1 WORLD_SIZE=2 LOCAL_RANK=1\) need --out DIR: each must know",),
        ("need --out", "--resume"),
        ("--batch 31 on 2 GPUs", "--batch", "31", *out),
        ("holds a training already", "--out", str(ranked.scratch / "taken")),
        ("no file 'nowhere'", "--data", "nowhere", *out),
    ):
        ranked.refuses(says, train, *arguments)
    assert ranked.launched(1, 2, train, *out, "--init-weights", "of rank 0 alone")
    monkeypatch.setenv("RANK", "0")
    ranked.built.clear()
    ranked.refuses("no file 'nowhere'", train, "--init-weights", "nowhere", *out)


def test_events_of_ranks_have_one_follower(ranked, monkeypatch):
    """The script in the place of Python stands for the follower: it notes that it began, and ends with its input."""
    follower = ranked.scratch / "follower"
    follower.write_text(f'#!/bin/sh\necho begun >> "{ranked.scratch}/follows"\nexec cat\n')
    follower.chmod(0o755)
    monkeypatch.setattr(train.wheels, "python_with", lambda *_: follower)
    out = ranked.scratch / "run"
    ranked.program(f'{SCRIPT}echo "${{LADDER_PARENT_PIPE:+held}}" > "{ranked.scratch}/pipe"\n')
    ranked.verb(train, "--gpus", "2", "--tensorboard", "--out", str(out))
    assert ranked.of(0) == ranked.of(1) and ranked.status == 0
    assert (ranked.scratch / "follows").read_text() == "begun\n"
    for rank in range(2):
        for name, value in zip(TORCHRUN, (rank, 2, rank)):
            monkeypatch.setenv(name, str(value))
        ranked.verb(train, "--tensorboard", "--out", str(out))
        assert (ranked.status, ranked.of(rank)) == (0, ranked.of(0))
        assert (ranked.scratch / "follows").read_text() == "begun\n" * 2
        # A rank beside ./ladder ends with it; one in its place is the launcher's.
        assert (ranked.scratch / "pipe").read_text() == ("\n" if rank else "held\n")


# Sampling.


def test_sample_with_gpus(ranked):
    ranked.verb(sample, str(ranked.scratch), "--gpus", "2", "--count", "8")
    words = [str(ranked.scratch), "--count=8", f"--out={ranked.scratch}/samples.png"]
    assert (ranked.status, ranked.built, ranked.of(0, 1)) == (0, ["sample_unet"], [words, words])


NPY = """
for word; do case $word in --npy=*)
  [ "${RANK:-0}" = 0 ] || exit 0
  echo made > "${word#--npy=}"; echo "wrote ${word#--npy=}";;
esac; done
"""


def test_npz_of_ranks_is_rank_0s(ranked, capfd):
    ranked.program(SCRIPT + NPY)
    npz = ranked.scratch / "a.npz"
    ranked.verb(sample, str(ranked.scratch), "--gpus", "2", "--npz", str(npz))
    assert ranked.status == 0 and npz.exists() and ranked.of(0) == ranked.of(1)
    assert ".npy" not in capfd.readouterr().out
    npz.unlink()
    there = sorted(path.name for path in ranked.scratch.iterdir())
    words = ranked.launched(1, 2, sample, str(ranked.scratch / "of rank 0 alone"), "--npz", str(npz))
    assert not npz.exists() and sorted(path.name for path in ranked.scratch.iterdir()) == there
    (ranked.scratch / "of rank 0 alone").mkdir()
    assert ranked.launched(0, 2, sample, str(ranked.scratch / "of rank 0 alone"), "--npz", str(npz)) == words
    assert npz.exists() and not list(ranked.scratch.glob(".*.npy"))


# The build that local ranks share.


def test_local_ranks_build_one_after_the_other(tmp_path):
    """Set-up, configuration and Ninja: the second rank waits, then finds all that the first has made."""
    ninja = tmp_path / "ninja"
    ninja.write_text(
        f"#!/bin/sh\ncd {tmp_path}\nif [ -e built ]; then echo found >> log; exit; fi\n"
        "echo in >> log; sleep 0.3; echo built > built; echo out >> log\n"
    )
    ninja.chmod(0o755)
    script = (
        "import sys\nfrom pathlib import Path\nfrom cli import build, lock\nfolder = Path(sys.argv[1])\n"
        "build.BUILD = folder\nbuild.tools.ninja = lambda: str(folder / 'ninja')\n"
        "def ensure(preset):\n"
        "    with lock.held(folder / 'setup.lock'):\n"
        "        fetched = not (folder / 'ready').exists()\n"
        "        (folder / 'ready').touch()\n"
        "    return fetched\n"
        "def configure(preset, options):\n"
        "    there = (folder / preset / 'build.ninja').exists()\n"
        "    (folder / preset / 'build.ninja').touch()\n"
        "    (folder / 'log').open('a').write('' if there else 'configured\\n')\n"
        "build.setup.ensure, build._configure = ensure, configure\n"
        "build.build('emulator', targets=['train_unet'])\n"
    )
    (tmp_path / "emulator").mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
            stderr=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]
    assert [rank.wait(timeout=60) for rank in ranks] == [0] * 4
    log = (tmp_path / "log").read_text().split()
    assert log[0] == "configured"  # and once more if the rank that fetched was not the first to build
    assert [word for word in log if word != "configured"] == ["in", "out", "found", "found", "found"]


def test_a_build_in_progress_keeps_its_file(tmp_path, monkeypatch):
    """Set-up's result is configured under the lock: until then another rank's Ninja may read build.ninja."""
    monkeypatch.setattr(build, "BUILD", tmp_path)
    monkeypatch.setattr(build.setup, "ensure", lambda preset: True)
    monkeypatch.setattr(build, "_configure", lambda preset, options: None)
    monkeypatch.setattr(build, "_own_architecture", lambda preset: [])
    (tmp_path / "emulator").mkdir()
    file = tmp_path / "emulator" / "build.ninja"
    file.touch()

    class Lock:
        def __enter__(self):
            assert file.exists(), "it was removed before the lock was ours"

        def __exit__(self, *_):
            assert not file.exists()

    monkeypatch.setattr(build.lock, "held", lambda path: Lock())
    build.configure("emulator")
