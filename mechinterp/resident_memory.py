"""The memory of this process, as the system counts it."""

import ctypes
import gc
import resource
import sys
from pathlib import Path


def resident() -> int:
    """Bytes of memory that this process has now; the most it ever had where only that is told."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def hand_back() -> None:
    """Gives memory that is free, but kept by the allocator, back to the system (glibc alone)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
