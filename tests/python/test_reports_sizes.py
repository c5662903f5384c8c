"""Public reports (docs/user-reports.md) of sizes and offsets past 2^16, 2^31 and 2^32, through Python."""

import compat_formula as formula
import pytest
import tilewise
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from report_inputs import DEVICE, agree, as_formula, full, is_finite, lengths, randn, seeded, sparse  # noqa: F401

from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache

pytestmark = pytest.mark.usefixtures("seeded")


def test_R001_backward_of_8300_sequences_of_one_row():
    q, k, v = (randn(8300, 1, full(16, 2), 128, dtype=torch.bfloat16, grad=True) for _ in range(3))
    flash_attn_func(q, k, v).sum().backward()
    # The softmax of one key is 1 whatever q and k are; a GPU sums dP and delta in different orders, so that their difference is rounding.
    largest = max(q.grad.abs().max(), k.grad.abs().max())
    assert largest <= (0 if DEVICE == "cpu" else 1e-4) and bool((v.grad == 1).all())


def test_R002_backward_of_15000_sequences():
    inputs = [randn(15000, 2, 2, 16, dtype=torch.float16) for _ in range(3)]
    as_formula(flash_attn_func, inputs)


def test_R004_backward_of_queries_past_2_31_elements():
    batch, rows = full((400, 10496), (2, 300))
    q, k, v = (randn(batch, 4, n, 128, dtype=torch.bfloat16, grad=True).transpose(1, 2) for n in (rows, 128, 128))
    grad_o = randn(batch, 4, rows, 128, dtype=torch.bfloat16).transpose(1, 2)
    o = flash_attn_func(q, k, v)
    found = torch.autograd.grad(o, (q, k, v), grad_o)
    last = [x[-1:].detach().double().requires_grad_() for x in (q, k, v)]
    expected = formula.attention(*last)[0]
    agree(o[-1:], expected)
    for actual, wanted in zip(found, torch.autograd.grad(expected, last, grad_o[-1:].double())):
        agree(actual[-1:], wanted, 0.1)


def test_R005_a_large_batch_in_a_layout_that_looks_swapped():
    inputs = [randn(full(1600, 2), 16, 729, 72, dtype=torch.bfloat16) for _ in range(3)]
    o = flash_attn_func(*inputs)
    agree(o[-1:], formula.attention(*(x[-1:] for x in inputs))[0])


def test_R006_page_ids_whose_offset_passes_2_31():
    """Keys and values of a page side by side, so that page 65536 begins at element 2^31."""
    store = sparse(65538, 2, 16, 8, 128)
    store[65535:65538] = randn(3, 2, 16, 8, 128, dtype=torch.bfloat16)
    table = lengths(65535, 65536, 65537)[:, None]
    q = randn(3, 1, 8, 128, dtype=torch.bfloat16)
    o = flash_attn_with_kvcache(q, store[:, 0], store[:, 1], cache_seqlens=16, block_table=table)
    agree(o, formula.attention(q, store[65535:, 0], store[65535:, 1])[0])


def test_R008_an_append_to_slots_1_to_4_leaves_slot_0():
    """A cache of all layers, batch first: one row to the next is 2^30 elements."""
    cache = sparse(5, 2, 32, 4096, 32, 128, dtype=torch.float16)
    k_cache, v_cache = cache[:, 0, 3], cache[:, 1, 3]
    assert k_cache.stride(0) == 2**30
    written = {}
    for rows, count, start in (((0,), 2, 0), ((1, 2, 3, 4), 3, 0)):
        q, k, v = (randn(len(rows), count, 32, 128, dtype=torch.float16) for _ in range(3))
        o = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=start, cache_batch_idx=lengths(*rows), causal=True)
        agree(o, formula.attention(q, k, v, causal=True)[0])
        written |= {row: (k[n], v[n]) for n, row in enumerate(rows)}
    for row, (k, v) in written.items():
        assert torch.equal(k_cache[row, : len(k)], k) and torch.equal(v_cache[row, : len(v)], v)


@pytest.mark.parametrize("kind", ["mask", "bias"])
def test_R009_rows_of_a_mask_past_2_32_elements(kind):
    """Three rows of a mask, 29128 rows of 73728 elements apart."""
    dtype = torch.float16
    mask = sparse(3, 29128 * 73728, dtype=torch.bool if kind == "mask" else dtype)[:, :64]
    seen = randn(3, 64) > 0
    mask.copy_(seen if kind == "mask" else torch.where(seen, 0.0, float("-inf")))
    q, k, v = (randn(1, n, 2, 64, dtype=dtype) for n in (3, 64, 64))
    s = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / 8
    p = s.masked_fill(~seen, float("-inf")).softmax(-1)
    agree(tilewise.attention(q, k, v, **{kind: mask[None, None]}), torch.einsum("bhij,bjhd->bihd", p, v.double()))


def test_R011_backward_of_keys_stored_length_first():
    batch, kept, rows = 700, full(700, 1), full(256, 5)
    q = randn(kept, rows, 1, 128, dtype=torch.bfloat16)
    k, v = (sparse(24000, batch, 128).transpose(0, 1)[-kept:, :, None] for _ in range(2))
    for x in (k, v):
        x[-1].copy_(randn(24000, 1, 128))
    assert 23999 * k.stride(1) > 2**31
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    grad_o = randn(*q.shape, dtype=torch.bfloat16)
    o = flash_attn_func(*inputs)
    found = torch.autograd.grad(o, inputs, grad_o)
    last = [x[-1:].detach().double().requires_grad_() for x in inputs]
    expected = formula.attention(*last)[0]
    agree(o[-1:], expected)
    for actual, wanted in zip(found, torch.autograd.grad(expected, last, grad_o[-1:].double())):
        agree(actual[-1:], wanted)


def test_R013_a_row_alone_and_in_a_batch():
    batch, rows, keys, heads = full((32, 500, 350_000, 12), (4, 3, 20_000, 2))
    q = randn(batch * rows, heads, 64, dtype=torch.bfloat16)
    k, v = (randn(batch * keys, heads, 64, dtype=torch.bfloat16) for _ in range(2))
    cu_q, cu_k = (torch.arange(batch + 1, dtype=torch.int32) * n for n in (rows, keys))
    together = flash_attn_varlen_func(q, k, v, cu_q, cu_k, rows, keys)
    for n in (0, batch - 1):
        own = [x[n * size : (n + 1) * size] for x, size in ((q, rows), (k, keys), (v, keys))]
        alone = flash_attn_varlen_func(*own, cu_q[:2], cu_k[:2], rows, keys)
        agree(together[n * rows : (n + 1) * rows], alone, 2e-3)


def test_R014_the_workspace_of_a_backward_follows_the_tokens():
    """2000 sequences, one of them long: batch x heads x longest would be 2000 times what the tokens need."""

    def size(batch, tokens):
        q = tilewise.spec((tokens, 8, 128), "bfloat16")
        cu = tilewise.spec((batch + 1,), "int32")
        options = {"cu_seqlens_q": cu, "cu_seqlens_k": cu, "max_seqlen_q": tokens, "max_seqlen_k": tokens}
        return tilewise.explain(q, q, q, operation="backward", device="cpu", **options).workspace_bytes

    assert size(2000, 100_000) <= 2 * size(1, 100_000) + 2**20


def test_R015_80000_packed_sequences():
    qkv = randn(1_280_000, 3, 1, 64, dtype=torch.float16)
    cu = torch.arange(80_001, dtype=torch.int32) * 16
    o = flash_attn_varlen_qkvpacked_func(qkv, cu, 16)
    some = [0, 39_999, 40_000, 65_535, 65_536, 79_999]
    q, k, v = qkv.view(80_000, 16, 3, 1, 64)[some].unbind(2)
    agree(o.view(80_000, 16, 1, 64)[some], formula.attention(q, k, v)[0])
    assert is_finite([o])


def test_R017_a_batch_of_65536():
    q, k, v = (randn(65_536, full(8, 1), 4, 64, dtype=torch.float16).transpose(1, 2) for _ in range(3))
    o = flash_attn_func(q, k, v)
    agree(o[-2:], formula.attention(q[-2:], k[-2:], v[-2:])[0])
    assert bool(o.any(-1).all())


@pytest.mark.parametrize("shape", [(1, 65_536, 10, 16), (1, 1, 64 * 65_535 + 1, 1)], ids=["heads", "blocks of 64 queries"])
def test_R018_65536_heads_or_blocks(shape):
    q = randn(*shape).transpose(1, 2)
    k, v = (randn(1, shape[1], min(shape[2], 3), shape[3]).transpose(1, 2) for _ in range(2))
    o = flash_attn_func(q, k, v)
    agree(o, formula.attention(q, k, v)[0])


def test_R020_a_decode_of_65536_sequences_works_or_raises():
    pages, table = randn(64, 32, 1, 64, dtype=torch.bfloat16), torch.randint(0, 64, (65_536, 1), dtype=torch.int32)
    q = randn(65_536, 1, 4, 64, dtype=torch.bfloat16)
    o = flash_attn_with_kvcache(q, pages, pages, cache_seqlens=32, block_table=table)
    last = pages[table[-3:, 0].long()]
    agree(o[-3:], formula.attention(q[-3:], last, last)[0])
    wide = randn(1, 1, 64, 576, dtype=torch.bfloat16)
    with pytest.raises((ValueError, NotImplementedError), match="head_dim.*576|576.*256"):
        tilewise.decode(wide, wide[:, :, :1], wide[:, :, :1, :512])
