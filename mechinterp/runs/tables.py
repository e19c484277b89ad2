"""Where tables that were computed once are kept, so that `runs verify` can look there too."""

import os
from pathlib import Path

VARIABLE = "MECHINTERP_CACHE"
"""Environment variable that names the cache's folder; "off" switches the cache off."""


def cache_folder() -> Path | None:
    """Gives the folder of cached tables, or None when the cache is off."""
    given = os.environ.get(VARIABLE)
    if given == "off":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "mechinterp-toolkit"
