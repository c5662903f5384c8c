"""The drop-ins as distributions of a Python environment, `flash-attn` and `flash-attn-3`: what they hold, installed, removed, examined.

An installed one is a few modules of imports and the metadata that pip reads; `pip uninstall flash-attn` removes it too.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_MODULES = Path(__file__).parent / "modules"
_INSTALLER = "tilewise"


@dataclass(frozen=True)
class Distribution:
    """A distribution: its name, its version, and the names it makes importable."""

    name: str
    upstream_version: str
    top_level: tuple[str, ...]

    @property
    def version(self) -> str:
        return f"{self.upstream_version}+tilewise"

    @property
    def folder(self) -> Path:
        """Where its modules lie in this package."""
        return _MODULES / self.name.replace("-", "_")

    @property
    def info(self) -> str:
        """Name of its metadata's folder."""
        return f"{self.name.replace('-', '_')}-{self.version}.dist-info"

    def metadata(self) -> dict[str, str]:
        """File name -> text; RECORD, which lists the files of an installed one, is not among them."""
        summary = f"Tilewise under the name {self.name}"
        return {
            "METADATA": f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\nSummary: {summary}\n"
            "Requires-Python: >=3.10\nRequires-Dist: tilewise\nRequires-Dist: torch\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: tilewise\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "INSTALLER": f"{_INSTALLER}\n",
            "top_level.txt": "".join(f"{name}\n" for name in self.top_level),
        }

    def files(self) -> dict[str, str]:
        """Path in a site directory -> text, RECORD included."""
        paths = sorted(self.folder.rglob("*.py"))
        files = {path.relative_to(self.folder).as_posix(): path.read_text() for path in paths}
        files |= {f"{self.info}/{name}": text for name, text in self.metadata().items()}
        lines = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in files.items()]
        files[f"{self.info}/RECORD"] = "\n".join([*lines, f"{self.info}/RECORD,,", ""])
        return files


DISTRIBUTIONS = (
    Distribution("flash-attn", "2.8.3", ("flash_attn", "flash_attn_2_cuda")),
    Distribution("flash-attn-3", "3.0.0", ("flash_attn_3", "flash_attn_config", "flash_attn_interface")),
)


class CompatError(Exception):
    """What would overwrite or remove something that is not Tilewise's, or cannot be written."""


def _digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def default_site():
    """The site directory of this Python."""
    return Path(sysconfig.get_paths()["purelib"])


def _found(distribution, site):
    """Metadata folders of the distribution in a site directory, ours and others."""
    key = distribution.name.replace("-", "_")
    pattern = re.compile(rf"{key}-[^-]+\.(dist-info|egg-info)", re.IGNORECASE)
    return [path for path in sorted(site.glob("*-info")) if pattern.fullmatch(path.name.replace("flash-attn", "flash_attn"))]


def _is_ours(info):
    installer = info / "INSTALLER"
    return installer.is_file() and installer.read_text().strip() == _INSTALLER


def _recorded(site, info):
    """Files of an installed distribution of ours; only those inside the site directory."""
    record = info / "RECORD"
    names = [line.split(",")[0] for line in record.read_text().splitlines()] if record.is_file() else []
    paths = [site / name for name in names]
    return [path for path in paths if site.resolve() in path.resolve().parents]


def _elsewhere(distribution, site):
    """A distribution of that name that this Python sees in another directory and that is not ours."""
    for found in importlib.metadata.distributions(name=distribution.name):
        info = getattr(found, "_path", None)
        if info is not None and Path(info).parent.resolve() != site.resolve() and not _is_ours(Path(info)):
            return f"{distribution.name} {found.version} in {Path(info).parent}"
    return None


def _obstacle(distribution, site):
    """What of others is in the way, in words; None if nothing is."""
    mine = set()
    for info in _found(distribution, site):
        if not _is_ours(info):
            return f"{info.name} in {site}"
        mine |= set(_recorded(site, info))
    for name in distribution.files():
        path = site / name
        if path.exists() and path not in mine:
            return f"{path}"
    for name in distribution.top_level:
        for path in site.glob(f"{name}.*.so"):
            return f"{path}"
    return _elsewhere(distribution, site) if site.resolve() in {Path(p).resolve() for p in sys.path} else None


def install(site: str | Path | None = None) -> list[Distribution]:
    """Writes both distributions into a site directory (default: this Python's); ours that are there are replaced. Returns those written.

    Raises CompatError, before anything is written, if a distribution or a file of others is in the way.
    """
    site = default_site() if site is None else Path(site)
    for distribution in DISTRIBUTIONS:
        obstacle = _obstacle(distribution, site)
        if obstacle:
            raise CompatError(
                f"{obstacle} is not Tilewise's and stays; `pip uninstall {distribution.name}` first, or `import tilewise.compat` "
                "in your program instead, which writes nothing"
            )
    remove(site)
    for distribution in DISTRIBUTIONS:
        # RECORD comes first: what an interrupted installation leaves behind can be removed.
        for name, text in sorted(distribution.files().items(), key=lambda item: not item[0].endswith("/RECORD")):
            _write(site / name, text)
            if name.endswith("/RECORD"):
                _write(site / distribution.info / "INSTALLER", f"{_INSTALLER}\n")
    return list(DISTRIBUTIONS)


def _write(path, text):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise CompatError(f"{path}: cannot be written ({error.strerror}); --target DIR names another directory") from None


def remove(site: str | Path | None = None) -> list[Distribution]:
    """Removes those of the distributions that are Tilewise's from a site directory; others stay. Returns those removed."""
    site = default_site() if site is None else Path(site)
    removed = []
    for distribution in DISTRIBUTIONS:
        for info in filter(_is_ours, _found(distribution, site)):
            _delete(site, [*_recorded(site, info), info / "INSTALLER"])
            removed.append(distribution)
    return removed


def _delete(site, paths):
    folders = set()
    for path in paths:
        compiled = path.parent / "__pycache__"
        try:
            for file in [path, *compiled.glob(f"{path.stem}.*.pyc")]:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise CompatError(f"{path}: cannot be removed ({error.strerror})") from None
        folders |= {compiled, *(parent for parent in path.parents if site in parent.parents)}
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def status(site: str | Path | None = None) -> dict[str, tuple[str, str]]:
    """Name of each distribution -> (state, description): "absent", "installed", "outdated" (ours, of another version) or "foreign"."""
    site = default_site() if site is None else Path(site)
    return {distribution.name: _status(distribution, site) for distribution in DISTRIBUTIONS}


def _status(distribution, site):
    obstacle = _obstacle(distribution, site)
    if obstacle:
        return "foreign", f"{obstacle} is not Tilewise's"
    infos = _found(distribution, site)
    if not infos:
        return "absent", f"not in {site}"
    current = [path for path, text in distribution.files().items() if (site / path).is_file() and (site / path).read_text() == text]
    if len(infos) == 1 and len(current) == len(distribution.files()):
        return "installed", f"{distribution.version} in {site}"
    return "outdated", f"{', '.join(info.name for info in infos)} in {site} differs from this version's; install again"
