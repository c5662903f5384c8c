"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest
import tilewise

MODULES = [name for _, name, _ in pkgutil.iter_modules(tilewise.__path__) if name not in ("_native", "__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"tilewise.{name}"))
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(tilewise.__all__))
def test_public_names_are_described(name):
    item = getattr(tilewise, name)
    assert item.__doc__
    if name[0].islower():
        assert ">>>" in item.__doc__, f"{name} has no example"
