"""`tilewise compat install | remove | status` in a site directory of the test's own, and `import tilewise.compat` in fresh processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tilewise
from tilewise.__main__ import main
from tilewise.drop_ins.distributions import DISTRIBUTIONS, CompatError, install, remove, status

PACKAGE = Path(tilewise.__file__).parent.parent
INFOS = ["flash_attn-2.8.3+tilewise.dist-info", "flash_attn_3-3.0.0+tilewise.dist-info"]


def python(code, *paths):
    """What a fresh process prints, which finds tilewise and `paths`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(p) for p in (*paths, PACKAGE))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def names(site):
    return sorted(path.name for path in site.iterdir())


def states(site):
    return [state for state, _ in status(site).values()]


def foreign(site, name="flash_attn", version="2.7.4"):
    """A flash_attn of someone else."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("pip\n")
    (site / name).mkdir()
    (site / name / "__init__.py").write_text('__version__ = "2.7.4"\n')
    return sorted(path for path in site.rglob("*") if path.is_file())


def test_install_and_remove(tmp_path):
    (tmp_path / "other.py").write_text("x = 1\n")
    assert states(tmp_path) == ["absent", "absent"] and remove(tmp_path) == []
    assert install(tmp_path) == list(DISTRIBUTIONS)
    assert names(tmp_path) == sorted(
        ["flash_attn", *INFOS, "flash_attn_2_cuda.py", "flash_attn_3", "flash_attn_config.py", "flash_attn_interface.py", "other.py"]
    )
    assert states(tmp_path) == ["installed", "installed"]
    install(tmp_path)  # again
    python("import flash_attn.layers.rotary, flash_attn_2_cuda, flash_attn_3", tmp_path)  # leaves compiled files
    assert remove(tmp_path) == list(DISTRIBUTIONS)
    assert names(tmp_path) == ["other.py"] and states(tmp_path) == ["absent", "absent"]


def test_installed_modules_work_and_are_ours(tmp_path):
    install(tmp_path)
    code = """
import importlib.metadata, sys, torch, flash_attn, flash_attn.bert_padding, flash_attn_interface
from flash_attn.flash_attn_interface import _flash_attn_forward, flash_attn_gpu
q = torch.ones(1, 3, 2, 8)
print(flash_attn.flash_attn_func(q, q, q, causal=True).sum().item(), flash_attn_interface.flash_attn_func(q, q, q).sum().item())
print(importlib.metadata.version("flash-attn"), importlib.metadata.version("flash_attn_3"), "tilewise.compat" in sys.modules)
print(importlib.metadata.packages_distributions()["flash_attn"])
print({f.name for f in importlib.metadata.files("flash-attn") if not f.locate().exists()})
"""
    lines = python(code, tmp_path).splitlines()
    assert lines == ["48.0 48.0", "2.8.3+tilewise 3.0.0+tilewise False", "['flash-attn']", "set()"]


def test_pip_sees_and_removes_them(tmp_path):
    pytest.importorskip("pip")
    install(tmp_path)
    listed = python("import pip._internal.cli.main as m; m.main(['list', '--format=freeze', '--disable-pip-version-check'])", tmp_path)
    assert "flash-attn==2.8.3+tilewise" in listed and "flash_attn_3==3.0.0+tilewise" in listed.replace("flash-attn-3", "flash_attn_3")


@pytest.mark.parametrize("name", ["flash_attn", "flash_attn_3"])
def test_foreign_distribution_stays(tmp_path, name):
    files = foreign(tmp_path, name)
    before = [path.read_text() for path in files]
    with pytest.raises(CompatError, match=f"{name}-2.7.4.dist-info"):
        install(tmp_path)
    assert "foreign" in states(tmp_path) and remove(tmp_path) == []
    assert files == sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert before == [path.read_text() for path in files]


@pytest.mark.parametrize("path", ["flash_attn/__init__.py", "flash_attn_interface.py", "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"])
def test_foreign_file_stays(tmp_path, path):
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("someone's")
    with pytest.raises(CompatError, match="is not Tilewise's"):
        install(tmp_path)
    assert [p.read_text() for p in tmp_path.rglob("*") if p.is_file()] == ["someone's"]


def test_foreign_distribution_in_another_directory(tmp_path, monkeypatch):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    foreign(theirs)
    monkeypatch.setattr(sys, "path", [*sys.path, str(ours), str(theirs)])
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if type(finder).__module__ != "tilewise.compat"])
    with pytest.raises(CompatError, match="theirs"):
        install(ours)
    assert names(ours) == []


def test_neighbours_in_the_package_stay(tmp_path):
    """flash-attn-4 puts flash_attn/cute beside our files."""
    (tmp_path / "flash_attn" / "cute").mkdir(parents=True)
    (tmp_path / "flash_attn" / "cute" / "__init__.py").write_text("x = 4\n")
    install(tmp_path)
    assert python("import flash_attn.cute; print(flash_attn.cute.x, flash_attn.__version__)", tmp_path) == "4 2.8.3"
    remove(tmp_path)
    assert names(tmp_path) == ["flash_attn"] and names(tmp_path / "flash_attn") == ["cute"]


def test_interrupted_and_outdated_installations(tmp_path):
    install(tmp_path)
    (tmp_path / "flash_attn_interface.py").write_text("# older\n")
    (tmp_path / "flash_attn_2_cuda.py").unlink()
    assert states(tmp_path) == ["outdated", "outdated"]
    install(tmp_path)
    assert states(tmp_path) == ["installed", "installed"]
    older = tmp_path / "flash_attn-2.8.2+tilewise.dist-info"
    (tmp_path / INFOS[0]).rename(older)
    record = older / "RECORD"
    record.write_text(record.read_text().replace("2.8.3", "2.8.2") + "../outside.py,,\n")
    outside = tmp_path.parent / "outside.py"
    outside.write_text("x = 1\n")
    install(tmp_path)
    assert not older.exists() and outside.exists() and states(tmp_path) == ["installed", "installed"]


def test_command(tmp_path, capsys):
    target = ["--target", str(tmp_path)]
    assert main(["compat", "install", *target]) == 0
    assert "installed flash-attn 2.8.3+tilewise" in capsys.readouterr().out
    assert main(["compat", "status", *target]) == 0
    assert "2.8.3+tilewise in" in capsys.readouterr().out
    assert main(["compat", "remove", *target]) == 0 and names(tmp_path) == []
    assert main(["compat", "remove", *target]) == 0
    foreign(tmp_path)
    capsys.readouterr()
    assert main(["compat", "install", *target]) == 1
    assert "stays" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["compat", "install", "--target", str(tmp_path / "file")]) == 1
    with pytest.raises(SystemExit):
        main(["compat", "unknown"])


def test_without_files(tmp_path):
    foreign(tmp_path)
    show = "import flash_attn, flash_attn_interface, importlib.metadata as m; print(flash_attn.__version__, m.version('flash-attn'))"
    assert python(f"import tilewise.compat; {show}", tmp_path) == "2.8.3 2.8.3+tilewise"
    yielding = "import tilewise.compat; tilewise.compat.enable(yield_to_installed=True)"
    assert python(f"{yielding}; {show}", tmp_path) == "2.7.4 2.7.4"
    assert python(f"{yielding}; {show}") == "2.8.3 2.8.3+tilewise"
    off = "import tilewise.compat; tilewise.compat.disable(); import importlib.util as u; print(u.find_spec('flash_attn_interface'))"
    assert python(off) == "None"


def test_too_late(tmp_path):
    foreign(tmp_path)
    late = """
import flash_attn
try:
    import tilewise.compat
except RuntimeError as error:
    print(error)
"""
    assert "flash_attn: another one" in python(late, tmp_path)
    (tmp_path / "transformers.py").write_text("")
    warned = """
import warnings, transformers
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tilewise.compat
print(caught[0].message)
"""
    assert "transformers has already looked" in python(warned, tmp_path)
    ours_before = "import tilewise.compat, flash_attn, flash_attn_config; tilewise.compat.enable(); print('again')"
    assert python(ours_before) == "again"


def test_no_torch_is_needed_to_install():
    assert python("import sys, tilewise.compat; print('torch' in sys.modules)") == "False"
