"""At which positions is a source cut? Named groups of positions from what the caller gave."""

from collections.abc import Iterable, Mapping, Sequence

from circuits.errors import InputError, whole_numbers

PositionGroups = Mapping[str, Sequence[int]] | Sequence[int] | Sequence[Sequence[int]]


def source_positions(positions: object, n_pos: int) -> dict[str, tuple[int, ...]] | None:
    """Gives the position groups by name, or None when edges are cut at all positions at once.

    Args:
        positions: a mapping of names to positions, a list of positions (or of tuples of them), or
            None; negative positions count from the end.
        n_pos: tokens in a sequence.

    Raises:
        InputError: no group, an empty or repeated one, or a position outside of the batch.
    """
    if positions is None:
        return None
    if isinstance(positions, Mapping):
        named = [(str(name), group) for name, group in positions.items()]
    elif isinstance(positions, Sequence) and not isinstance(positions, str):
        named = [(_group_name(group), group) for group in positions]
    else:
        raise InputError(
            f"positions={positions!r}: give a mapping of names to positions, or a list of positions"
        )
    groups: dict[str, tuple[int, ...]] = {}
    for name, group in named:
        members = list(whole_numbers("positions", group if _several(group) else [group]))
        at = sorted({p + n_pos if p < 0 else p for p in members})
        if not at or at[0] < 0 or at[-1] >= n_pos:
            raise InputError(f"positions[{name!r}]={members} must hold positions in 0..{n_pos - 1}")
        if name in groups:
            raise InputError(f"positions names {name!r} twice")
        groups[name] = tuple(at)
    if not groups:
        raise InputError("positions is empty: name at least one position, or pass None for all")
    return groups


def _several(group: object) -> bool:
    return isinstance(group, Iterable) and not isinstance(group, str)


def _group_name(group: object) -> str:
    return ",".join(map(str, group)) if isinstance(group, Sequence) else str(group)
