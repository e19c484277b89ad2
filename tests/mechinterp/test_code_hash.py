"""Which changes of code make a kept number stale, and which do not."""

import functools
import importlib
import sys
import types
from pathlib import Path

import pytest

import mechinterp.code_hash
from mechinterp.code_hash import code_hash

FILES = {
    "__init__.py": "",
    "ask.py": "from circuits import (\n  instrument,\n)\ndef f():\n  from circuits.late import x\n",
    "instrument.py": "import circuits.deep.part\n",
    "late.py": "x = 1\n",
    "deep/__init__.py": "",
    "deep/part.py": "import math\n",
    "elsewhere.py": "y = 1\n",
}


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A package of this name with a few modules, in place of the real one."""
    for name, text in FILES.items():
        file = tmp_path / "circuits" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(mechinterp.code_hash, "_folder", lambda top: tmp_path / top)
    yield tmp_path / "circuits"
    del sys.modules["asked"]
    mechinterp.code_hash._hash_from.cache_clear()
    mechinterp.code_hash._files.cache_clear()


def hashed(house):
    """The hash of work in `ask.py`, as a new process would find it."""

    def work():
        pass

    work.__module__ = "asked"
    sys.modules["asked"] = types.SimpleNamespace(__file__=str(house / "ask.py"))
    mechinterp.code_hash._hash_from.cache_clear()
    mechinterp.code_hash._files.cache_clear()
    return code_hash(work)


@pytest.mark.parametrize(
    "name",
    ["ask.py", "__init__.py", "instrument.py", "late.py", "deep/__init__.py", "deep/part.py"],
)
def test_what_is_imported_counts(house, name):
    before = hashed(house)
    assert hashed(house) == before
    (house / name).write_text(FILES[name] + "# another line\n")
    assert hashed(house) != before


def test_what_is_not_imported_does_not(house):
    before = hashed(house)
    (house / "elsewhere.py").write_text("y = 2\n")
    (house / "new.py").write_text("")
    assert hashed(house) == before


def test_real_code_leads_where_it_imports():
    from analyses.formation.measuring import FormationMeasure

    found = {path.name for path in reached(FormationMeasure)}
    assert {"edge_engine.py", "marginals_diagnostics.py", "scores.py"} <= found
    assert "claims.py" not in found


def reached(work):
    """Files that the hash of some work covers."""
    seen, waiting = set(), [importlib.import_module(work.__module__).__file__]
    while waiting:
        for file in mechinterp.code_hash._imported(Path(waiting.pop())):
            if file not in seen:
                seen.add(file)
                waiting.append(file)
    return seen


def test_partial_work_is_the_work_of_its_function():
    assert code_hash(functools.partial(hashed, None)) == code_hash(hashed)
    assert code_hash(hashed) != code_hash(functools.wraps)


def test_code_without_a_file_is_found_in_this_process_alone():
    made = {}
    exec("def work(): pass", {"__name__": "nowhere"}, made)
    assert code_hash(made["work"]) == code_hash(made["work"])
    assert code_hash(made["work"]) != code_hash(hashed)
