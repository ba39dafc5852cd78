"""Interpretation of a kernel's profile: one line per figure, and advice with the nearest limit."""

# Percent of its peak above which a unit is at its roof, and above which it begins to matter.
AT_ROOF = 80
NEAR_ROOF = 60

_ROOFS = {
    "tensor": "the tensor pipe",
    "fma": "the FMA pipe",
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1 and shared memory",
    "issue": "the issue slots",
}

_FILLED = "the grid fills the GPU"

_STALLS = {
    "long scoreboard": "loads from global or local memory",
    "short scoreboard": "shared memory or special functions",
    "lg throttle": "the queue of global and local memory: too many loads, or too scattered",
    "mio throttle": "the queue of shared memory: too many instructions to it",
    "tex throttle": "the texture queue",
    "math pipe throttle": "a busy arithmetic pipe, which is good",
    "barrier": "other warps at a barrier",
    "membar": "a memory fence",
    "wait": "the fixed latency of the instruction before",
    "not selected": "its turn: enough warps are ready, which is good",
    "gmma": "warpgroup MMA to finish",
    "warpgroup arrive": "warpgroup MMA to finish",
    "no instruction": "instructions: a cold instruction cache, or much code",
    "no instructions": "instructions: a cold instruction cache, or much code",
    "branch resolving": "branches",
    "dispatch stall": "the dispatcher",
    "drain": "stores to leave at the end",
    "imc miss": "constants that are not cached",
    "sleeping": "its own nanosleep",
}


def stall_meaning(reason):
    return "waits for " + _STALLS[reason] if reason in _STALLS else "is in a state that Nsight Compute's manual names"


def nearest_roof(figures):
    """(figure, percent of its peak) of the busiest unit, or (None, None)."""
    known = [(figures.get(roof), roof) for roof in _ROOFS if figures.get(roof) is not None]
    percent, roof = max(known, default=(None, None))
    return roof, percent


def meanings(figures, limits, lower_bound):
    """{figure: one line}. `limits` is that of metrics.Kernel, `lower_bound` is in seconds or None."""
    said = dict.fromkeys(figures, "")

    def note(figure, words):
        if figures.get(figure) is not None:
            said[figure] = words(figures[figure])

    note("duration", lambda value: _against_lower_bound(value, lower_bound))
    note("sm", lambda value: _busy(value, "an arithmetic or issue unit", "all of its units wait or idle in between"))
    for roof, name in _ROOFS.items():
        note(roof, lambda value, name=name: _busy(value, name, "not what limits"))
    note("occupancy", lambda value: _occupancy(value, figures.get("theoretical_occupancy")))
    note("theoretical_occupancy", lambda value: _limited(value, limits))
    note("registers", lambda value: _blocks(limits.get("registers")))
    note("shared_memory", lambda value: _blocks(limits.get("shared memory")) if value > 0 else "none")
    note("spill_bytes", lambda value: "registers are spilled" if value > 0 else "nothing is spilled")
    note("bank_conflicts", lambda value: _conflicts(figures.get("conflict_share")))
    note("waves", _waves)
    note("l2_hit", lambda value: "of what L1 asked for; the rest came from DRAM")
    note("l1_hit", lambda value: "loads bypass L1 or never come back" if value < 5 else "of what the loads asked for")
    return said


def _against_lower_bound(duration, lower_bound):
    if not lower_bound:
        return "under the profiler"
    return f"under the profiler, {duration / lower_bound:.2f} x the lower bound of {1e6 * lower_bound:.2f} us"


def _busy(percent, name, else_words):
    if percent >= AT_ROOF:
        return f"{name}: at the roof"
    return f"{name}: near the roof" if percent >= NEAR_ROOF else else_words


def _occupancy(achieved, theoretical):
    if theoretical and achieved < 0.75 * theoretical:
        return "well below the theoretical: an uneven grid, or warps that leave early"
    return "warps resident while an SM is active"


def _limited(percent, limits):
    if percent >= 99:
        return "as many warps as the SM can hold"
    least = min(limits.values(), default=None)
    names = ", ".join(name for name, blocks in limits.items() if blocks == least)
    return f"limited by {names}" if names else "the limiter is unknown"


def _blocks(count):
    """Text with the number of blocks that fit an SM by one resource; "" for None."""
    return "" if count is None else f"{count} block{'s' if count > 1 else ''} of an SM by this"


def _conflicts(share):
    if share is None:
        return ""
    return f"{share:.1f} % of shared memory's wavefronts" + (": another layout would pay" if share > 10 else "")


def _waves(waves):
    if waves < 0.99:
        return f"the grid is too small: {100 * waves:.0f} % of the blocks that fit at once"
    tail = waves % 1
    if 0.01 < tail < 0.5 and waves < 8:
        return f"the last wave is {100 * tail:.0f} % full: a tail"
    return _FILLED


def advice(kernels, lower_bound):
    """Lines of advice on a launch, the most important first: the nearest limit, then spills, bank conflicts, a bad grid
    size, and the distance to the lower bound.

    Judges the kernel whose runs together take the most time.
    """
    kernel, part = _heaviest(kernels)
    figures = kernel.figures
    lines = _limit(kernel)
    if len(kernels) > 1:
        lines.insert(0, f"of {kernel.name.split('<')[0]}" + (f", {100 * part:.0f} % of the time" if part else "") + ":")
    if figures.get("spill_bytes"):
        lines.append(f"registers are spilled: {figures['spill_bytes']:,.0f} bytes through local memory")
    if (figures.get("conflict_share") or 0) > 10:
        lines.append(f"shared-memory bank conflicts: {figures['conflict_share']:.0f} % of its wavefronts")
    waves = figures.get("waves")
    if waves is not None and _waves(waves) != _FILLED:
        lines.append(_waves(waves))
    durations = [each.figures.get("duration") for each in kernels]
    if lower_bound and all(durations):
        duration = sum(durations)
        lines.append(
            f"{duration / lower_bound:.2f} x the lower bound: "
            + ("close to it" if duration < 1.25 * lower_bound else f"at most {duration / lower_bound:.1f} times faster")
        )
    return lines


def _heaviest(kernels):
    """(longest run of the kernel that takes the most time in total, that kernel's share of all time or None)."""
    spent = {}
    for kernel in kernels:
        spent[kernel.name] = spent.get(kernel.name, 0) + (kernel.figures.get("duration") or 0)
    name = max(spent, key=spent.get)
    longest = max(
        (kernel for kernel in kernels if kernel.name == name), key=lambda kernel: kernel.figures.get("duration") or 0
    )
    whole = sum(spent.values())
    return longest, spent[name] / whole if whole else None


def _limit(kernel):
    roof, percent = nearest_roof(kernel.figures)
    if roof is None:
        return ["no unit's load was measured"] + _waiting(kernel)
    if percent >= AT_ROOF:
        return [f"limited by {_ROOFS[roof]}: {percent:.0f} % of its peak"]
    if percent >= NEAR_ROOF:
        return [f"nearest limit: {_ROOFS[roof]}, {percent:.0f} % of its peak"] + _waiting(kernel)
    lines = [f"latency: the busiest unit, {_ROOFS[roof]}, reaches {percent:.0f} % of its peak"] + _waiting(kernel)
    occupancy = kernel.figures.get("occupancy")
    if occupancy is not None and occupancy < 50:
        limiter = f", limited by {kernel.limiter}" if kernel.limiter else ""
        lines.append(f"few warps to hide it: {occupancy:.0f} % occupancy{limiter}")
    return lines


def _waiting(kernel):
    """[text] on the most frequent stall, except "not selected", which is no problem; [] without stalls."""
    worse = [stall for stall in kernel.stalls if stall[0] != "not selected"]
    if not worse:
        return []
    reason, part = worse[0]
    return [f"{100 * part:.0f} % of a warp's time is {reason}: it {stall_meaning(reason)}"]
