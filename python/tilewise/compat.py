"""Tilewise in the place of `flash_attn` and `flash_attn_interface`, for this process and without files: `import tilewise.compat`, before
whatever imports them.

    import tilewise.compat
    from flash_attn import flash_attn_func     # Tilewise's

`importlib.metadata` sees the distributions flash-attn and flash-attn-3 too. `python -m tilewise compat install` does the same for every
process of an environment.
"""

from __future__ import annotations

import importlib.metadata
import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path

from .drop_ins.distributions import DISTRIBUTIONS, CompatError, install, remove, status

__all__ = ["CompatError", "disable", "enable", "install", "remove", "status"]


class _Metadata(importlib.metadata.Distribution):
    """A distribution that is nowhere installed."""

    def __init__(self, distribution):
        self._distribution = distribution

    def read_text(self, filename):
        return self._distribution.metadata().get(filename)

    def locate_file(self, path):
        return self._distribution.folder / path


class _Finder:
    """Finds the modules in this package's folder, and the metadata in `distributions`."""

    def __init__(self, distributions):
        self._distributions = distributions

    def find_spec(self, name, path=None, target=None):
        for distribution in self._distributions:
            if name in distribution.top_level:
                return PathFinder.find_spec(name, [str(distribution.folder)])
        return None

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
        wanted = None if context.name is None else context.name.lower().replace("_", "-")
        return [_Metadata(d) for d in self._distributions if wanted in (None, d.name)]

    def invalidate_caches(self):
        pass


_finders = []


def _is_ours(module):
    """Ours, installed or not, say in their source whose they are."""
    file = getattr(module, "__file__", None)
    return file is not None and b"Tilewise" in Path(file).read_bytes()


def _is_installed(distribution):
    try:
        importlib.metadata.version(distribution.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def enable(yield_to_installed: bool = False) -> None:
    """Makes the modules importable, in front of installed ones; with `yield_to_installed` only those that are not installed.

    Raises:
        RuntimeError: another flash_attn is imported already.

    >>> import tilewise.compat
    >>> tilewise.compat.enable()
    >>> import importlib.metadata
    >>> importlib.metadata.version("flash-attn")
    '2.8.3+tilewise'
    """
    disable()
    chosen = [d for d in DISTRIBUTIONS if not (yield_to_installed and _is_installed(d))]
    for name in (name for distribution in chosen for name in distribution.top_level):
        if name in sys.modules and not _is_ours(sys.modules[name]):
            raise RuntimeError(f"{name}: another one than Tilewise's is imported already; import tilewise.compat before it")
    if "transformers" in sys.modules:
        warnings.warn("transformers has already looked for flash_attn; import tilewise.compat before it", stacklevel=2)
    finder = _Finder(chosen)
    _finders.append(finder)
    sys.meta_path.insert(0, finder)


def disable() -> None:
    """Undoes `enable` for imports to come; modules that are imported stay."""
    while _finders:
        finder = _finders.pop()
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


enable()
