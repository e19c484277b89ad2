"""Damaged and hostile files, drawn from a seed, and what it is to withstand them."""

import contextlib
import json
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from circuits.errors import InputError

ODD = [
    *(None, True, -1, 0, 7, 2**31, 2**63, 2**80, 10**30, 0.5, 1e308, float("nan"), float("inf")),
    *("", "\ud800", "../../x", "/etc/passwd", "a" * 300, "\x1b[31m", "1", "__class__"),
    *([], [[]], {}, {"a": 1}, [None], ["x"], {"name": {}}),
]
SECONDS = 5
"""No file of these sizes takes a hundredth of it."""
ROOM = 512 * 2**20
"""Address space beyond what the process has, for all that a batch of files does."""


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    """Cuts, inserts, drops, repeats or flips a few bytes."""
    kind = chance.randrange(5)
    at = chance.randrange(len(data) + 1)
    some = chance.choice([1, 8, 100])
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + chance.randbytes(some) + data[at:]
    if kind == 2:
        return data[:at] + data[at + some :]
    if kind == 3:
        return data[:at] + data[at : at + some] * chance.choice([1, 50]) + data[at:]
    flipped = bytearray(data)
    for _ in range(chance.choice([1, 5])):
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def mutate_json(body: object, chance: random.Random) -> object:
    """Puts something odd in the place of a random part, drops the part, or adds one."""
    if isinstance(body, dict) and body and chance.random() < 0.9:
        name = chance.choice(list(body))
        if chance.random() < 0.1:
            return {key: value for key, value in body.items() if key != name}
        if chance.random() < 0.1:
            return {**body, str(chance.choice(ODD)): body[name]}
        return {**body, name: mutate_json(body[name], chance)}
    if isinstance(body, list) and body and chance.random() < 0.7:
        at = chance.randrange(len(body))
        if chance.random() < 0.1:
            return [*body, *body[at:]]
        return [*body[:at], mutate_json(body[at], chance), *body[at + 1 :]]
    return chance.choice(ODD)


def json_bytes(body: object) -> bytes:
    """JSON as Python writes it, with NaN and lone surrogates escaped."""
    return json.dumps(body).encode()


class Withstood:
    """Tries files and counts how they were met; anything but an answer or one line is an error."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()

    def offer(self, *uses: Callable[[], object]) -> bool:
        """Uses one file in several ways; says whether any of them refused it."""
        refusals = [self._use(use) for use in uses]
        self.met["tried"] += 1
        self.met["refused in one line" if any(refusals) else "harmless"] += 1
        return any(refusals)

    def _use(self, use: Callable[[], object]) -> bool:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            use()
        except InputError as error:
            said = str(error)
        else:
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert "\n" not in said
        assert len(said) < 2000
        return True


def _too_long(*_: object) -> None:
    raise TimeoutError(f"a file kept the reader for {SECONDS} s")


@contextlib.contextmanager
def withstanding(record: Callable[..., None]) -> Iterator[Withstood]:
    """Bounds time and memory while files are tried, and reports the numbers at the end."""
    before = signal.signal(signal.SIGALRM, _too_long)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, limits[1]))
    withstood = Withstood()
    try:
        yield withstood
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)
        record("mutated files", **{k.replace(" ", "_"): n for k, n in withstood.met.items()})
