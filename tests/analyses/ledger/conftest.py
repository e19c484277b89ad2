import pytest

from tests.analyses.ledger.planted import write_world
from tests.analyses.ledger.worlds import reproduced


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """A folder of evidence in which every claim holds."""
    folder = tmp_path_factory.mktemp("evidence")
    write_world(reproduced(), folder)
    return folder
