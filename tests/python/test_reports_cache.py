"""Public reports (docs/user-reports.md) of key-value caches and splits, through Python."""

import compat_formula as formula
import pytest
import tilewise
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from report_inputs import agree, full, lengths, randn, seeded, sparse  # noqa: F401

import flash_attn_interface
from flash_attn import flash_attn_func, flash_attn_with_kvcache

pytestmark = pytest.mark.usefixtures("seeded")


def test_R073_every_number_of_splits_gives_the_same_result():
    q = randn(1, 1, 16, 128, dtype=torch.bfloat16)
    k, v = (randn(1, 4096, 8, 128, dtype=torch.bfloat16) for _ in range(2))
    expected = flash_attn_func(q, k, v)
    agree(expected, formula.attention(q, k, v)[0], 4e-3)
    for function in (flash_attn_with_kvcache, flash_attn_interface.flash_attn_with_kvcache):
        for splits in (0, 1, 2, 3, 16, 32, 128):
            agree(function(q, k, v, cache_seqlens=lengths(4096), num_splits=splits), expected, 2e-3)


@pytest.mark.parametrize("heads", [(4, 4), (8, 2), (16, 2)], ids=str)
@pytest.mark.parametrize("head_dim", [128, 256])
@pytest.mark.parametrize("page_size", [16, 32])
def test_R075_a_sweep_of_paged_decodes(heads, head_dim, page_size):
    for dtype, pages in ((torch.float16, 32768), (torch.bfloat16, 2048)):
        k, v = (sparse(pages, page_size, heads[1], head_dim, dtype=dtype) for _ in range(2))
        used = lengths(1328, 18, 463)
        table = torch.randperm(pages, dtype=torch.int64)[: 3 * (1328 // page_size + 1)].view(3, -1).int()
        for x in (k, v):
            x[table.long()] = randn(*table.shape, page_size, heads[1], head_dim, dtype=dtype)
        q = randn(3, 1, heads[0], head_dim, dtype=dtype)
        o = flash_attn_with_kvcache(q, k, v, cache_seqlens=used, block_table=table, causal=True)
        for n, length in enumerate(used.tolist()):
            own = [x[table[n].long()].flatten(0, 1)[None, :length] for x in (k, v)]
            agree(o[n : n + 1], formula.attention(q[n : n + 1], *own)[0])


@pytest.mark.parametrize("function", [flash_attn_with_kvcache, flash_attn_interface.flash_attn_with_kvcache], ids=["2", "3"])
def test_R078_new_keys_for_a_full_cache(function):
    """On a CPU refused; on a GPU, where lengths are not waited for, nothing outside the cache is written."""
    store = torch.full((3, 64, 32, 128), 7.0, dtype=torch.float16)
    k_cache, v_cache = store[1:2], randn(1, 64, 32, 128, dtype=torch.float16)
    before = store.clone()
    q, k, v = (randn(1, 2, 32, 128, dtype=torch.float16) for _ in range(3))
    if store.is_cuda:
        function(q, k_cache, v_cache, k, v, cache_seqlens=64, causal=True)
    else:
        with pytest.raises(ValueError, match="cache_seqlens"):
            function(q, k_cache, v_cache, k, v, cache_seqlens=64, causal=True)
    assert torch.equal(store, before)


def test_R079_the_capacity_of_a_cache_does_not_change_the_bits():
    used, heads = full(40960, 4096), full(32, 2)
    k, v = (sparse(1, 262144, heads, 128) for _ in range(2))
    for x in (k, v):
        x[:, :used] = randn(1, used, heads, 128, dtype=torch.bfloat16)
    q = randn(1, 1, heads, 128, dtype=torch.bfloat16)
    results = [
        tilewise.decode(q, k[:, :size], v[:, :size], cache_seqlens=lengths(used), batch_invariant=True)
        for size in (used, 2 * used, 131072, 262144)
    ]
    assert all(torch.equal(o, results[0]) for o in results[1:])
    agree(flash_attn_with_kvcache(q, k, v, cache_seqlens=used), results[0], 2e-3)


@pytest.mark.parametrize("page_size", [1, 3, 16, 128, 256])
def test_R081_pages_of_any_size(page_size):
    count = 300 // page_size + 1
    k, v = (randn(2 * count, page_size, 2, 64) for _ in range(2))
    table = torch.randperm(2 * count).view(2, count).int()
    q, used = randn(2, 1, 4, 64), lengths(300, 77)
    o = flash_attn_with_kvcache(q, k, v, cache_seqlens=used, block_table=table)
    for n, length in enumerate(used.tolist()):
        own = [x[table[n].long()].flatten(0, 1)[None, :length] for x in (k, v)]
        agree(o[n : n + 1], formula.attention(q[n : n + 1], *own)[0])


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 6, 7, 8, 16, 32])
def test_R082_groups_of_any_size(group):
    q, k, v = (randn(2, n, heads, 64, dtype=torch.bfloat16) for n, heads in ((1, 2 * group), (70, 2), (70, 2)))
    agree(flash_attn_with_kvcache(q, k, v, cache_seqlens=70), formula.attention(q, k, v)[0])


def test_R084_the_page_stride_is_that_of_the_tensor():
    """Pages of 16 rows that lie 48 rows apart, each the middle of a block of another size."""
    k_store, v_store = (torch.full((7, 48, 2, 64), float("nan")) for _ in range(2))
    k, v = k_store[:, 16:32], v_store[:, 16:32]
    for x in (k, v):
        x.copy_(randn(7, 16, 2, 64))
    table = lengths(5, 0, 3)[None]
    q = randn(1, 1, 4, 64)
    own = [x[table[0].long()].flatten(0, 1)[None, :40] for x in (k, v)]
    agree(flash_attn_with_kvcache(q, k, v, cache_seqlens=40, block_table=table), formula.attention(q, *own)[0])


def test_R085_arguments_are_honoured_or_refused():
    """A window on the left and a softcap count in every function that takes them; an unknown name is an error with a hint."""
    q, k, v = randn(1, 3, 2, 32), randn(1, 40, 2, 32), randn(1, 40, 2, 32)
    q.mul_(6)
    expected = formula.attention(q, k, v, softcap=3.0, window=(9, 0), causal=True)[0]
    options = {"causal": True, "window_size": (9, -1), "softcap": 3.0}
    for module in (flash_attn_interface, __import__("flash_attn")):
        agree(module.flash_attn_func(q, k, v, **options), expected)
        agree(module.flash_attn_with_kvcache(q, k, v, cache_seqlens=40, **options), expected)
    assert (formula.attention(q, k, v, causal=True)[0] - expected).abs().max() > 0.1
    for name, hint in (("logits_soft_cap", "softcap"), ("window_left", "window"), ("sofcap", "softcap")):
        with pytest.raises(TypeError, match=f"{name}.*did you mean '{hint}"):
            tilewise.decode(q, k, v, **{name: 3.0})


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_R154_cache_types_that_are_not_served(dtype):
    q, k = randn(1, 1, 2, 32, dtype=torch.bfloat16), torch.zeros(1, 8, 2, 32, dtype=dtype)
    for caches in ((k, k), (q, k), (k, q)):
        with pytest.raises((TypeError, ValueError, NotImplementedError), match="float8|int8|i8|dtype|type"):
            flash_attn_with_kvcache(q, *caches, cache_seqlens=1)
