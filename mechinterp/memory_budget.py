"""A memory budget: read, refused when a trace does not fit, shared out among its parts.

The budget is for the whole process as the system counts it, interpreter and libraries included.
"""

import re
from dataclasses import replace

from circuits.errors import InputError
from mechinterp.memory_needs import DRAWING, SLACK, Shape, circuits, edges, needs
from mechinterp.resident_memory import hand_back, resident
from mechinterp.trace_parts import HELD_OUT, PRUNED_ON, Options, Rooms

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([KMGT]?)(i?)(B?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

MARGIN = 32 * 2**20
"""Bytes by which the program may be larger when it is started again."""


def parse_size(text: str) -> int:
    """Gives the bytes that a text like "2GiB", "500 MB" or "1.5G" stands for.

    KB, MB, GB and TB are powers of 1000; with an i, or without the B, of 1024.

    Raises:
        InputError: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"memory-budget is {text[:40]!r}; give a size like 2GiB, 500MB or 1.5G")
    number, unit, binary, suffix = match.groups()
    base = 1000 if suffix and not binary else 1024
    return int(float(number) * base ** _POWERS[unit.lower()])


def written(size: int) -> str:
    """Gives a size as people write it, rounded up; `parse_size` reads it back."""
    unit, power = ("GiB", 3) if size >= 1024**3 else ("MiB", 2)
    scale = 10 if power == 3 else 1
    rounded = -(-size * scale // 1024**power) / scale
    return f"{rounded:g}{unit}"


def refuse_what_does_not_fit(shape: Shape, options: Options) -> None:
    """Finds out before anything is loaded whether a trace fits into its memory budget.

    Raises:
        InputError: it does not; with the estimate, and with how many examples would fit.
    """
    budget, taken = options.memory_budget, resident()
    if budget is None:
        return
    if options.device != "cpu":
        raise InputError(
            f"memory-budget counts the computer's memory, not that of {options.device}: leave one "
            "of the two options out"
        )
    part, need = _largest(shape, options)
    if taken + need <= budget:
        return
    fewer = range(options.examples - 1, 1, -1)
    fits = (n for n in fewer if taken + _largest(shape, replace(options, examples=n))[1] <= budget)
    most = next(fits, None)
    enough = written(taken + need + MARGIN)
    raise InputError(
        f"memory-budget is {written(budget)} but this trace needs about {enough} "
        f"({written(taken)} for the program, {written(need)} for {part}); nothing was started: "
        f"give that much{'' if most is None else f', or --examples {most}'}"
    )


def share_out(shape: Shape, options: Options) -> Rooms:
    """Shares the memory budget out among the parts of a trace, once the model is loaded.

    Chunks of edges grow into what is left, and the pruned circuit is tried on as many of the
    held-out examples as fit.
    """
    if options.memory_budget is None:
        return Rooms()
    hand_back()
    left = int((options.memory_budget - resident() - DRAWING) / SLACK)
    swapped = options.ablation in ("patch", "resample")
    few = min(options.examples, PRUNED_ON)
    fitting = [
        n for n in range(2, HELD_OUT + 1) if shape.plain + circuits(shape, n, swapped, 1) <= left
    ]
    # No less than what was found to fit, whatever the allocator has kept in the meantime.
    least = shape.weights + shape.chunk
    return Rooms(
        edges=max(left, least + edges(shape, options.examples, swapped)),
        pruning=max(
            left - 4 * few * shape.written,
            least + edges(shape, few, swapped) + few * shape.streams,
        ),
        held_out=max(fitting, default=0),
    )


def _largest(shape: Shape, options: Options) -> tuple[str, int]:
    return max(needs(shape, options).items(), key=lambda item: item[1])
