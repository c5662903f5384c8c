"""The functions of flash_attn and flash_attn_interface without a cache, over upstream's range of shapes, types, masks and scores."""

import random

import compat_formula as formula
import pytest
import sweep
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch

import flash_attn
import flash_attn_interface

SHORT = ((113, 203), (128, 217), (108, 256), (1, 239), (3, 799), (239, 1), (799, 3), (127, 129), (1, 1), (200, 97), (64, 65))
LONG = ((113, 211), (256, 512), (512, 256), (127, 512), (127, 513), (640, 128), (64, 800), (1, 147))
LONG = (*SHORT, *LONG, (1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048))
SEQLENS = LONG if sweep.ON_GPU else SHORT
KINDS = {
    "two": ("func", "qkvpacked", "kvpacked", "varlen", "varlen_qkvpacked", "varlen_kvpacked", "varlen_paged"),
    "three": ("func3", "qkvpacked3", "varlen3"),
}
FACTORS = {
    "heads": sweep.HEADS,
    "head_dim": sweep.HEAD_DIMS,
    "seqlens": SEQLENS,
    "mask": ("full", "causal", "local", "left", "causal local"),
    "dtype": sweep.DTYPES,
    "deterministic": (False, True),
}
TWO = {"kind": KINDS["two"], **FACTORS, "score": ("plain", "softcap50", "alibi", "dropout", "softcap15")}
THREE = {"kind": KINDS["three"], **FACTORS, "score": ("plain", "softcap15")}
CASES = sweep.sample(TWO, 2000 if sweep.ON_GPU else 72, 1) + sweep.sample(THREE, 1000 if sweep.ON_GPU else 36, 2)
# Few keys: there the gradient through the softmax nearly cancels, and with dropout the rounding of o is what is left of it.
CASES = [case for case in CASES if case["score"] != "dropout" or case["seqlens"][1] > 16]
# Nothing shows what dropout dropped of paged keys.
CASES = [case for case in CASES if case["score"] != "dropout" or case["kind"] != "varlen_paged"]
P = 0.17


def dense_inputs(case, batch, self_attention):
    (heads, heads_kv), (seqlen_q, seqlen_k) = sweep.HEADS[case["heads"]], case["seqlens"]
    if self_attention:
        heads_kv, seqlen_q = heads if case["kind"] != "qkvpacked3" else heads_kv, seqlen_k
    shapes = ((batch, seqlen_q, heads), *[(batch, seqlen_k, heads_kv)] * 2)
    return [torch.randn(*shape, case["head_dim"]).to(sweep.DTYPES[case["dtype"]]) for shape in shapes]


def call(case, inputs, options, more):
    """(o, what was kept) by the drop-in, of q, k, v that want gradients."""
    kind, (q, k, v) = case["kind"].removesuffix("_paged"), inputs
    module = flash_attn_interface if kind.endswith("3") else flash_attn
    options = options | {"return_attn_probs": True, "deterministic": case["deterministic"]}
    kind = kind.removesuffix("3")
    name = {"func": "flash_attn_func", "varlen": "flash_attn_varlen_func"}.get(kind, f"flash_attn_{kind}_func")
    axis = q.dim() - 2
    if "qkvpacked" in kind:
        if module is flash_attn_interface and case["heads"] != "mha":
            given, more = [torch.cat((q, k, v), axis)], {"num_heads_q": q.shape[axis]}
        else:
            given = [torch.stack((q, k, v), axis)]
    elif "kvpacked" in kind:
        given = [q, torch.stack((k, v), axis)]
    else:
        given = [q, k, v]
    return getattr(module, name)(*given, **more, **options)


def mask_and_scores(case, seqlen_k, heads, batch, order):
    """Options of the drop-in, options of the formula, and q's factor."""
    window, causal = sweep.window_of(case["mask"], seqlen_k, order)
    factor, scores = sweep.scores_of(case["score"], heads, batch)
    given = {"causal": causal, "window_size": window} | ({"softcap": scores["softcap"]} if "softcap" in scores else {})
    if "slopes" in scores:
        given["alibi_slopes"] = scores["slopes"]
    if case["score"] == "dropout":
        given["dropout_p"] = P
    return given, {"causal": causal, "window": window, **scores}, factor


def kept(s_dmask, case, seqlen_q, seqlen_k):
    if case["score"] != "dropout":
        return {}
    shown = s_dmask[:, :, :seqlen_q, :seqlen_k]
    return {"keep": (~torch.signbit(shown)).to(sweep.WIDE) / (1 - P)}


def dense(case, order):
    batch = 2 if sweep.ON_GPU else 1
    inputs = dense_inputs(case, batch, "qkvpacked" in case["kind"])
    q, k, _ = inputs
    given, options, factor = mask_and_scores(case, k.shape[1], q.shape[2], batch, order)
    inputs[0] = q * factor
    own, wide, narrow = (sweep.leaves(inputs, dtype) for dtype in (q.dtype, sweep.WIDE, q.dtype))
    o, _, *s_dmask = call(case, own, given, {})
    options |= kept(s_dmask[0] if s_dmask else None, case, q.shape[1], k.shape[1])
    return sweep.judge("qkv", (own, o), (wide, sweep.plain(*wide, **options)), (narrow, sweep.plain(*narrow, **options)))


def ragged_lengths(longest, count, order):
    """Up to twenty shorter than the longest, one of them empty, and which rows of their room they use."""
    sizes = [max(0, longest - order.randrange(21)) for _ in range(count)]
    sizes[0], sizes[order.randrange(1, count)] = longest, 0
    used = [order.randint(0, size) for size in sizes]
    return sizes, used


def paged(x, starts, page_size):
    """The sequences of a ragged tensor in pages, in order and with a page of NaN before each sequence, and their table."""
    pages, rows = [], []
    for a, b in zip(starts[:-1].tolist(), starts[1:].tolist()):
        own = torch.nn.functional.pad(x[a:b], (0, 0, 0, 0, 0, -(b - a) % page_size)).view(-1, page_size, *x.shape[1:])
        pages += [torch.full_like(x[:1], float("nan")).expand(page_size, *x.shape[1:])[None], own]
        rows.append(torch.arange(len(own), dtype=torch.int32) + sum(map(len, pages)) - len(own))
    return torch.cat(pages), torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def ragged(case, order):
    (heads, heads_kv), (seqlen_q, seqlen_k), count = sweep.HEADS[case["heads"]], case["seqlens"], 5 if sweep.ON_GPU else 3
    sizes_q, used_q = ragged_lengths(seqlen_q, count, order)
    sizes_k, used_k = ragged_lengths(seqlen_k, count, order)
    if "qkvpacked" in case["kind"]:
        heads_kv, sizes_q, used_q = heads, sizes_k, used_k
    cu_q, cu_k = (torch.tensor([0, *sizes]).cumsum(0).int() for sizes in (sizes_q, sizes_k))
    spare = 0 if "packed" in case["kind"] else order.choice((0, 7))  # rows of q behind the last sequence
    dtype = sweep.DTYPES[case["dtype"]]
    shapes = ((sum(sizes_q) + spare, heads), *[(sum(sizes_k), heads_kv)] * 2)
    inputs = [torch.randn(*shape, case["head_dim"]).to(dtype) for shape in shapes]
    given, options, factor = mask_and_scores(case, max(sizes_k), heads, count, order)
    inputs[0] = inputs[0] * factor
    if "qkvpacked" in case["kind"]:
        more = {"cu_seqlens": cu_k, "max_seqlen": max(sizes_k)}
    else:
        more = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k, "max_seqlen_q": max(sizes_q), "max_seqlen_k": max(sizes_k)}
    ends_q, ends_k = sizes_q, sizes_k
    if case["kind"] == "varlen3":
        ends_q, ends_k = used_q, used_k
        more |= {"seqused_q": torch.tensor(used_q, dtype=torch.int32), "seqused_k": torch.tensor(used_k, dtype=torch.int32)}
    rows, keys = ([(a, a + n) for a, n in zip(cu.tolist(), ends)] for cu, ends in ((cu_q, ends_q), (cu_k, ends_k)))
    own, wide, narrow = (sweep.leaves(inputs, kind) for kind in (dtype, sweep.WIDE, dtype))
    given_tensors = own
    if case["kind"] == "varlen_paged":
        page_size = order.choice((1, 16, 19, 256))
        (k, more["block_table"]), (v, _) = (paged(x.detach(), cu_k, page_size) for x in own[1:])
        given_tensors = [own[0].detach(), k, v]
    o, _, *s_dmask = call(case, given_tensors, given, more)
    if case["score"] == "dropout":
        keep = kept(s_dmask[0], case, max(sizes_q), max(sizes_k))["keep"]
        options["keep"] = [keep[n : n + 1, :, : b - a, : d - c] for n, ((a, b), (c, d)) in enumerate(zip(rows, keys))]
    if spare:
        # Rows behind the last sequence are nobody's.
        o = o[:-spare]
    ways = [(x, sweep.packed_plain(x, rows, keys, **options)[: len(o)]) for x in (wide, narrow)]
    return sweep.judge("qkv", (own, o), *ways, gradients=case["kind"] != "varlen_paged")


@pytest.mark.parametrize("case", CASES, ids=sweep.name_of)
def test_as_near_as_plain_pytorch(case):
    order = random.Random(case["seed"])
    with formula.start(case["seed"]):
        faults = (ragged if "varlen" in case["kind"] else dense)(case, order)
    assert not faults, "\n".join([str(case), *faults])
