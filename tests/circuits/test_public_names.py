"""The package's face: every public name is the thing it says, whatever was imported before."""

import importlib
import pkgutil

import circuits


def test_every_public_name_is_there_and_is_no_module():
    for name in circuits.__all__:
        assert callable(getattr(circuits, name)), name


def test_no_module_takes_the_place_of_a_public_name():
    # Importing `circuits.x` sets the attribute `x` of the package, which would hide a function x.
    modules = {info.name for info in pkgutil.iter_modules(circuits.__path__)}
    assert not modules & set(circuits.__all__)
    for module in modules:
        importlib.import_module(f"circuits.{module}")
    assert all(callable(getattr(circuits, name)) for name in circuits.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(circuits, "edge_effect")
    assert "edge_effects" in dir(circuits)
