"""`explain`, `capabilities` and `doctor`."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tilewise
import torch


def test_explain_arrays():
    q = np.zeros((2, 100, 4, 64), np.float32)
    plan = tilewise.explain(q, q, q, causal=True)
    assert plan.kernel.startswith("cpu_tiled_forward_f32") and plan.kernel in str(plan)
    assert isinstance(plan.plan, dict) and plan.workspace_bytes >= 0
    assert tilewise.explain(q, q, q, kernel="cpu_reference_forward").kernel == "cpu_reference_forward"


@pytest.mark.parametrize("operation", ["forward", "backward", "decode"])
def test_explain_shapes(operation):
    q = tilewise.spec((2, 1, 8, 64), "bfloat16")
    cache = tilewise.spec((2, 1000, 2, 64), "bfloat16")
    meta = torch.empty(2, 1000, 2, 64, dtype=torch.bfloat16, device="meta")
    kernels = {tilewise.explain(q, x, x, operation=operation, device="cpu").kernel for x in (cache, meta)}
    assert len(kernels) == 1 and "bf16" in kernels.pop()


def test_explain_refuses():
    q = tilewise.spec((1, 8, 2, 64), "float32")
    with pytest.raises(ValueError, match="operation: 'sideways'"):
        tilewise.explain(q, q, q, operation="sideways")
    with pytest.raises(ValueError, match="recorded:nothing|nothing"):
        tilewise.explain(q, q, q, device="recorded:nothing")
    with pytest.raises(ValueError, match="device"):
        tilewise.explain(q, q, q, device="tpu")
    with pytest.raises(TypeError, match="device"):
        tilewise.explain(q, q, q, device=3)
    with pytest.raises(ValueError, match="num_heads_kv is 2"):
        tilewise.explain(q, tilewise.spec((1, 8, 3, 64), "float32"), q)


def test_recorded_device():
    q = tilewise.spec((2, 4096, 16, 128), "bfloat16")
    has_gpu_kernels = any(kernel["device"] == "cuda" for kernel in tilewise.capabilities()["kernels"])
    if has_gpu_kernels:
        assert tilewise.explain(q, q, q, device="recorded:h200").kernel.startswith("sm")
    else:
        with pytest.raises(NotImplementedError, match="no kernel of this build runs on NVIDIA H200"):
            tilewise.explain(q, q, q, device="recorded:h200")


def test_capabilities():
    known = tilewise.capabilities(include_recorded=True)
    assert known["version"] == tilewise.__version__
    assert "cpu" in known["devices"] and any(name.startswith("recorded:") for name in known["devices"])
    assert {kernel["op"] for kernel in known["kernels"]} == {"forward", "backward", "append", "combine"}


def test_doctor():
    report = tilewise.doctor()
    assert report.exit_code < 2, str(report)
    topics = {finding["topic"] for finding in report.findings}
    assert {"python", "packages", "torch", "cpu"} <= topics
    assert all(set(finding) == {"level", "topic", "text", "action", "details"} for finding in report.findings)


def test_command_line():
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "tilewise", *arguments], capture_output=True, text=True, timeout=120)

    done = run("doctor", "--json")
    assert done.returncode < 2 and json.loads(done.stdout)["status"] in ("good", "warnings")
    assert "python" in run("doctor").stdout
    assert "cpu_tiled_forward" in run("info").stdout
