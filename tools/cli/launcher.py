"""Variables that tell a process its rank: read where torchrun, mpirun or srun set them, made for `--gpus`."""

import os
import re
import secrets
import socket
from dataclasses import dataclass

from . import device, say, tools
from .errors import UsageError

# (rank, size, local rank), in order of preference. train/world.cpp has the same sets.
SETS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
MOST_PROCESSES = 16  # of the emulator, and of ranks that share a GPU
_ANOTHERS = ("LADDER_RENDEZVOUS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")  # variables of another world
_MOST_RANKS = 65536
_MOST_SLURM_STEP = 0xFFFFFFF0  # larger: a batch script, an interactive step, other steps without srun


@dataclass(frozen=True)
class RankNumbers:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    variables: tuple = ()  # of SETS; none: no launcher

    @property
    def leads(self):
        return self.rank == 0

    @property
    def is_one_of_several(self):
        return self.size > 1

    def __str__(self):
        return " ".join(f"{name}={os.environ.get(name, '')}" for name in self.variables)


def find_rank(environment=os.environ):
    """Returns the RankNumbers of the first complete set of variables; without one, a world of one. Throws UsageError."""
    for names in SETS:
        rank, size, local_rank = names
        if rank not in environment or (rank == "SLURM_PROCID" and not _is_slurm_step(environment)):
            continue
        missing = [name for name in (size, local_rank) if name not in environment]
        if missing and names is not SETS[0]:
            continue
        if missing:
            raise UsageError(
                f"RANK={say.harmless(environment['RANK'])} without {missing[0]}: set RANK, WORLD_SIZE and LOCAL_RANK, as "
                "torchrun does, or none of them"
            )
        number = _number(environment, size, 1)
        return RankNumbers(
            _below(environment, rank, size, number), number, _below(environment, local_rank, size, number), names
        )
    return RankNumbers()


def check_gpus(gpus, numbers, choice=None, can_share=False):
    """Throws UsageError if --gpus is given under a launcher, whose RankNumbers these are, or exceeds what `choice`, a
    device.Choice, has. `can_share`: ranks may share the only GPU."""
    if gpus is None:
        return
    if numbers.is_one_of_several or "RANK" in numbers.variables:
        raise UsageError(f"--gpus {gpus} under a launcher ({numbers}), which starts the ranks itself: leave out --gpus")
    if choice is None:
        return
    there = MOST_PROCESSES if choice.preset == "emulator" else device.num_gpus()
    if gpus > there and choice.preset == "emulator":
        raise UsageError(f"--gpus {gpus}: the emulator takes 1 to {there} processes")
    if gpus > there and not (can_share and there == 1 and gpus <= MOST_PROCESSES):
        visible = " visible (CUDA_VISIBLE_DEVICES)" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
        what = f"1 to {there}" if there > 1 else "1"
        raise UsageError(
            f"--gpus {gpus}: this machine has {there} GPU{'s' if there > 1 else ''}{visible}; --gpus {what} is right"
        )


def environments(size):
    """The environments of a new world's ranks on this host."""
    base = {name: value for name, value in tools.environment().items() if name not in _ANOTHERS}
    world = {
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": _master_port(),
        "LADDER_RUN": secrets.token_hex(16),
    }
    texts = {name: str(value) for name, value in world.items()}
    return [{**base, **texts, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def _is_slurm_step(environment):
    """Returns True if srun started this process: a batch script has Slurm's variables too."""
    step = environment.get("SLURM_STEP_ID", "")
    return re.fullmatch(r"[0-9]{1,18}", step) is not None and int(step) <= _MOST_SLURM_STEP


def _number(environment, name, least):
    text = environment[name]
    if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= _MOST_RANKS:
        raise UsageError(f"{name}={say.harmless(text)[:40]}: a whole number from {least} to {_MOST_RANKS} is right")
    return int(text)


def _below(environment, name, size_name, size):
    number = _number(environment, name, 0)
    if number >= size:
        raise UsageError(f"{name}={number} with {size_name}={size}: the first must be smaller, from 0 to {size - 1}")
    return number


def _master_port():
    """A port below a free one: rank 0 listens on the first free of the 16 ports after it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1] - 1
        if 1 <= port <= 65535 - 16:
            return port
