"""Compares two outputs of unet_parity.py or of the trainer, tensor by tensor.

The distance is the normalised L2 norm ||a - b|| / ||b||. Q, K and V of a qkv layer count as three tensors. K's bias is
left out: its gradient is mathematically zero.

    unet_compare.py A B                    the worst tensor must be within --limit
    unet_compare.py A B --reference R      A's distance to R: at most twice B's in the median tensor, three times in the
                                           worst. In a tensor of fewer than 16 elements (the loss, out.2.bias) B's
                                           distance counts as at least the median over all tensors: it may be small by
                                           chance

Exits with 1 if the limit is exceeded, a tensor is missing or anything is not finite.
"""

import statistics
import sys

import numpy_and_torch  # noqa: F401

import unet_common as common

MEDIAN_RATIO = 2
WORST_RATIO = 3
FEW_ELEMENTS = 16


def pieces(tensors, head_size):
    """Returns {name: float64 tensor}, with a qkv tensor split in three and without K's bias."""
    out = {}
    for name, tensor in tensors.items():
        parts = common.qkv_parts(name, tensor.shape, head_size)
        for part, rows in parts.items():
            if not (part == "k" and name.endswith(".bias")):
                out[f"{name}[{part}]"] = tensor.double()[rows]
        if not parts:
            out[name] = tensor.double()
    return out


def distance(a, b):
    """Returns ||a - b|| / ||b||; 0 if both are zero, NaN if an element is not finite."""
    if not (a.isfinite().all() and b.isfinite().all()):
        return float("nan")
    apart, size = (a - b).norm().item(), b.norm().item()
    return apart / size if size else (0.0 if apart == 0 else float("inf"))


def distances(a, b):
    """Returns {piece: distance} of two results of pieces()."""
    if a.keys() != b.keys():
        only = sorted(a.keys() ^ b.keys())
        raise common.Refusal(
            f"{len(only)} tensors are in one file only: {', '.join(only[:3])}{' ..' if len(only) > 3 else ''}"
        )
    for name in a:
        if a[name].shape != b[name].shape:
            raise common.Refusal(f"{name} is {list(a[name].shape)} in one file, {list(b[name].shape)} in the other")
    return {name: distance(a[name], b[name]) for name in a}


def ratios(a, b, reference):
    """Returns ({piece: A's distance / B's distance}, A's distances, B's distances), all to the reference."""
    far_a, far_b = distances(a, reference), distances(b, reference)
    median = statistics.median(far_b.values())
    out = {}
    for name in far_a:
        least = max(far_b[name], median if a[name].numel() < FEW_ELEMENTS else 0.0)
        out[name] = far_a[name] / least if least else (0.0 if far_a[name] == 0 else float("inf"))
    return out, far_a, far_b


def worst_first(values):
    """Returns the names by falling value, NaN first."""
    return sorted(values, key=lambda name: (values[name] == values[name], -values[name]))


def main(arguments=None):
    parser = common.argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--reference", help="of higher precision than both")
    parser.add_argument("--limit", type=float, default=3e-5, help="for the worst tensor (default 3e-5)")
    parser.add_argument("--head-size", type=int, help="of the attention (default: as A's or B's metadata say, else 32)")
    return common.run(work, parser.parse_args(arguments))


def work(options):
    (a, told_a), (b, told_b) = (common.load_tensors(path) for path in (options.a, options.b))
    head_size = options.head_size or int(told_a.get("head_size") or told_b.get("head_size") or 32)
    a, b = pieces(a, head_size), pieces(b, head_size)
    if not a:
        raise common.Refusal(f"{options.a} holds no tensors")
    if not options.reference:
        far = distances(a, b)
        worst = worst_first(far)
        for name in worst[:10]:
            print(f"{far[name]:10.2e}  {name}")
        print(
            f"{len(far)} tensors: median {statistics.median(far.values()):.2e}, worst {far[worst[0]]:.2e}, "
            f"limit {options.limit:.2e}"
        )
        good = all(value <= options.limit for value in far.values())
    else:
        reference = pieces(common.load_tensors(options.reference)[0], head_size)
        ratio, far_a, far_b = ratios(a, b, reference)
        worst = worst_first(ratio)
        for name in worst[:10]:
            print(f"{ratio[name]:6.2f} x  {far_a[name]:10.2e} and {far_b[name]:10.2e}  {name}")
        median = statistics.median(ratio.values())
        print(
            f"{len(ratio)} tensors, distance to {options.reference}: A's median {statistics.median(far_a.values()):.2e}, "
            f"B's {statistics.median(far_b.values()):.2e}; A's in B's: median {median:.2f} of {MEDIAN_RATIO} allowed, "
            f"worst {ratio[worst[0]]:.2f} of {WORST_RATIO}"
        )
        good = median <= MEDIAN_RATIO and all(value <= WORST_RATIO for value in ratio.values())
    print("within the limit" if good else "NOT within the limit")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
