"""`./ladder denoise POLICY`: builds policy/denoise_policy.cpp if needed and computes a trained policy's actions."""

import argparse
from pathlib import Path

from . import build, device, flags, run, say
from .errors import UsageError
from .options import Parser, check_names

PROGRAM = "denoise_policy"

_EXAMPLES = """\
examples:
  ./ladder denoise policy.safetensors --observation obs.npy      actions.npy, [n, horizon, action_dim]
  ./ladder denoise pretrained_model --observation obs.npy        a folder that LeRobot's save_pretrained wrote
  ./ladder denoise policy.safetensors --random --scheduler ddim --steps 16 --dtype bf16 --time
  ./ladder denoise --config tiny                                 a small network with made-up weights, without a GPU

policy/README.md says which files there are, and what makes one of a .ckpt."""


def main(arguments):
    parser, own = _parser()
    chosen = parser.parse_args(arguments)
    own.check(chosen)
    _check(chosen)
    choice = device.choose(chosen.device)
    if chosen.time and choice.preset == "emulator":
        raise UsageError("--time is for a GPU: an emulated kernel has no speed")
    say.line(choice)
    build.build(choice.preset, targets=[PROGRAM])
    policy = [chosen.policy] if chosen.policy else []
    return run.handed_over([build.folder(choice.preset) / "policy" / PROGRAM, *policy, *own.words(chosen)])


def _parser():
    parser = Parser(
        "denoise",
        description="Answers an observation with actions: the denoising steps of a Diffusion Policy.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("policy", nargs="?", metavar="POLICY", help="a policy's safetensors file, or LeRobot's folder")
    parser.add_device()
    return parser, flags.Flags(parser, f"policy/{PROGRAM}.json")


def _check(chosen):
    """Throws the UsageErrors that the program itself would report, without waiting for its build."""
    if bool(chosen.policy) == bool(chosen.config):
        raise UsageError("denoise needs a policy's file or folder, or --config tiny, one of them")
    if chosen.policy and not (chosen.observation or chosen.random):
        raise UsageError("an observation is missing: --observation FILE.npy, or --random")
    if chosen.policy and not Path(chosen.policy).exists():
        raise UsageError(f"there is no file or folder '{chosen.policy}'")
    for what, path in (
        ("--observation: there is no file", chosen.observation),
        ("--noise: there is no file", chosen.noise),
        ("--scheduler-config: there is no file", chosen.scheduler_config),
    ):
        if path and not Path(path).is_file():
            raise UsageError(f"{what} '{path}'")
    check_names(chosen, out=".npy", json=".json")
