"""The trainer's stream of noise, made on the CPU, so that a held-out loss here is of the same noise as there: Philox4x32-10
(Salmon et al. 2011) and Box and Muller's transform, as dev/diffusion/diffusion.h defines them."""

import numpy

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = numpy.uint64(0xFFFFFFFF)
_HALF = numpy.uint64(32)


def words(seed, offset, blocks):
    """[blocks, 4] uint64 below 2^32: of the counters (block, offset), keyed by the seed."""
    block = numpy.arange(blocks, dtype=numpy.uint64)
    c0, c1 = block & _WORD, block >> _HALF
    c2, c3 = (numpy.full(blocks, part, dtype=numpy.uint64) for part in (offset & 0xFFFFFFFF, offset >> 32))
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(_ROUNDS):
        p0, p1 = numpy.uint64(_MULTIPLIERS[0]) * c0, numpy.uint64(_MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (
            (p1 >> _HALF) ^ c1 ^ numpy.uint64(k0),
            p1 & _WORD,
            (p0 >> _HALF) ^ c3 ^ numpy.uint64(k1),
            p0 & _WORD,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return numpy.stack([c0, c1, c2, c3], axis=1)


def normals(seed, offset, count):
    """[count] fp32: normal numbers of a batch, whose images have a multiple of four elements each."""
    r = words(seed, offset, -(-count // 4)).astype(numpy.float32).astype(numpy.float64).reshape(-1, 2, 2)
    u1 = (r[:, :, 0] * 2.0**-32 + 2.0**-33).astype(numpy.float32).astype(numpy.float64)
    angle = 2 * numpy.pi * (r[:, :, 1] * 2.0**-32)
    radius = numpy.sqrt(-2 * numpy.log(u1))
    return (
        numpy.stack([radius * numpy.cos(angle), radius * numpy.sin(angle)], axis=2)
        .ravel()[:count]
        .astype(numpy.float32)
    )
