"""`merge` of parts against attention over all keys."""

import numpy as np
import pytest
import reference
import tilewise
import torch


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("stacked", [False, True])
def test_parts(rng, kind, stacked):
    q, k, v = reference.tensors(rng)
    cuts = [slice(0, 10), slice(10, 10), slice(10, 65)]
    parts = [tilewise.attention(kind(q), kind(k[:, cut]), kind(v[:, cut]), return_lse=True) for cut in cuts]
    partial_o, partial_lse = ([part[i] for part in parts] for i in range(2))
    if stacked:
        partial_o, partial_lse = (kind(np.stack([np.asarray(x) for x in part])) for part in (partial_o, partial_lse))
    o, lse = tilewise.merge(partial_o, partial_lse)
    expected_o, expected_lse = reference.attention(q, k, v)
    assert type(o) is type(kind(q))
    np.testing.assert_allclose(np.asarray(o), expected_o, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(lse), expected_lse, rtol=1e-5, atol=1e-5)


def test_empty_parts():
    o, lse = tilewise.merge(np.full((2, 1, 3, 1, 4), np.nan, np.float32), np.full((2, 1, 1, 3), -np.inf, np.float32))
    assert not o.any() and np.isneginf(lse).all()


def test_refusals():
    with pytest.raises(ValueError, match="partial_o"):
        tilewise.merge(np.zeros((3, 4), np.float32), np.zeros((3,), np.float32))
    with pytest.raises(ValueError, match="partial_lse"):
        tilewise.merge(np.zeros((2, 3, 1, 4), np.float32), np.zeros((2, 3, 1, 1), np.float32))
    with pytest.raises(TypeError, match="partial_o"):
        tilewise.merge([], [])
