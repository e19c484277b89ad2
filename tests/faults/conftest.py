import pytest

from tests.faults import children


@pytest.fixture(scope="session")
def grown(tmp_path_factory):
    """A folder with the runs `lookup` and `chains`, trained without any trouble."""
    folder = tmp_path_factory.mktemp("grown")
    for which in children.SMALL:
        assert children.finish(children.grow, which, folder / which) == 0
    return folder


@pytest.fixture
def count(record_property):
    """`count("kills", sent=3, lost=0)`: adds to the line that is printed of a family at the end."""

    def add(family: str, **numbers: int) -> None:
        record_property("faults", {family: {k.replace("_", " "): n for k, n in numbers.items()}})

    return add
