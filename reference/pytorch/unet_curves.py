"""Compares loss curves on the same batches: those that unet_train.py or the trainer wrote, {"losses": [..]}.

    unet_curves.py OURS BASE [--steps 10] [--limit 1e-4]     every loss within the limit of the base's, relatively
    unet_curves.py OURS BASE --spread P1 P2 P3 P4 P5         within the spread of perturbed runs

The spread: a curve's distance from the others is the root mean square, over the steps, of its difference from their mean,
relative to that mean. Of the perturbed runs each is compared with the rest and BASE, ours with all of them and BASE; ours may be
at most --factor (default 1) times the largest of theirs. Exits with 1 if it is more, or if a loss is not finite.
"""

import json
import math
import sys
from pathlib import Path

import numpy_and_torch  # noqa: F401

import numpy

import unet_common as common


def curve(path, steps):
    losses = json.loads(Path(path).read_text(encoding="utf-8")).get("losses", [])
    if len(losses) < (steps or 1):
        raise common.Refusal(f"{path} has {len(losses)} losses, {steps or 1} are wanted")
    return numpy.array(losses[:steps], dtype=numpy.float64)


def distance(one, others):
    middle = numpy.mean(others, axis=0)
    return float(numpy.sqrt(numpy.mean(((one - middle) / middle) ** 2)))


def work(options):
    ours, base, *spread = [curve(path, options.steps) for path in (options.ours, options.base, *options.spread)]
    if len({len(losses) for losses in (ours, base, *spread)}) > 1:
        raise common.Refusal("the curves are of different lengths: give --steps")
    far = numpy.abs(ours - base) / numpy.abs(base)
    worst = float(numpy.max(far))
    print(f"{len(ours)} steps: at most {worst:.2e} from {options.base}, at step {int(numpy.argmax(far))}")
    if spread:
        everything = [base, *spread]
        own = [distance(run, [other for other in everything if other is not run]) for run in spread]
        mine = distance(ours, everything)
        allowed = options.factor * max(own)
        print(
            f"from the mean: {mine:.3e}; perturbed runs {', '.join(f'{value:.3e}' for value in own)}; {allowed:.3e} allowed"
        )
        good = mine <= allowed
    else:
        good = worst <= options.limit
    good = good and math.isfinite(worst)
    print("within the limit" if good else "NOT within the limit")
    return 0 if good else 1


def main(arguments=None):
    parser = common.argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ours")
    parser.add_argument("base")
    parser.add_argument("--spread", nargs="+", default=[], metavar="RUN", help="perturbed runs, 2 or more")
    parser.add_argument("--steps", type=int, help="only the first ones")
    parser.add_argument("--limit", type=float, default=1e-4)
    parser.add_argument("--factor", type=float, default=1.0)
    options = parser.parse_args(arguments)
    if len(options.spread) == 1:
        parser.error("--spread needs 2 runs or more")
    return common.run(work, options)


if __name__ == "__main__":
    sys.exit(main())
