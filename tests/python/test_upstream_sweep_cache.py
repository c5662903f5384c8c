"""The cache functions of flash_attn and flash_attn_interface over upstream's range: new keys, rotary, pages, left padding, rows of the cache,
ragged queries, splits."""

import random

import compat_formula as formula
import pytest
import sweep
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch

import flash_attn
import flash_attn_interface

SHORT = ((1, 128), (1, 339), (3, 300), (64, 256), (3, 199), (16, 130), (128, 128))
LONG = (*SHORT, (3, 1024), (64, 800), (3, 799), (64, 2048), (16, 20_000), (1, 131_072))
FACTORS = {
    "generation": (2, 3),
    "heads": sweep.HEADS,
    "head_dim": sweep.HEAD_DIMS,
    "seqlens": LONG if sweep.ON_GPU else SHORT,
    "new_keys": (False, True, True),
    "rotary": (0.0, 0.5, 1.0),
    "interleaved": (False, True),
    "mask": ("full", "causal", "local", "causal local"),
    "score": ("plain", "plain", "softcap15", "alibi"),
    "page_size": (None, 256, None, 1, 4, 19, 128),
    "left": (False, True),
    "rows": ("own", "other"),
    "ragged": (False, True),
    "splits": (1, 0, 3),
    "dtype": sweep.DTYPES,
}
CASES = sweep.sample(FACTORS, 1500 if sweep.ON_GPU else 96, 3)
BATCH, SPARE = 2, 3  # sequences, and rows or pages of the cache that belong to none


class Cache:
    """A cache in rows or in shuffled pages, filled past what is used too, and how to find a sequence in it."""

    def __init__(self, case, capacity, heads_kv, dtype):
        self.page_size = case["page_size"]
        if self.page_size is None:
            shape = (BATCH + SPARE, capacity)
            self.rows = torch.randperm(BATCH + SPARE)[:BATCH] if case["rows"] == "other" else torch.arange(BATCH)
            shape = shape if case["rows"] == "other" else (BATCH, capacity)
        else:
            count = -(-capacity // self.page_size)
            shape = (BATCH * count + SPARE, self.page_size)
            self.table = torch.randperm(shape[0])[: BATCH * count].view(BATCH, count).int()
        self.k, self.v = (torch.randn(*shape, heads_kv, case["head_dim"]).to(dtype) for _ in range(2))

    def of(self, n):
        """(k, v) of sequence n, (capacity, heads_kv, head_dim)."""
        if self.page_size is None:
            return self.k[self.rows[n]], self.v[self.rows[n]]
        return tuple(x[self.table[n].long()].flatten(0, 1) for x in (self.k, self.v))

    def arguments(self, generation, name_rows):
        if self.page_size is not None:
            return {"block_table" if generation == 2 else "page_table": self.table}
        return {"cache_batch_idx": self.rows.int()} if name_rows else {}


def rotated(x, case, tables, positions, dtype):
    """x (s, h, d) of the type `dtype`, each step in that type."""
    x = x.to(dtype)
    if tables is None:
        return x
    cos, sin = (table[positions].to(dtype)[:, None] for table in tables)
    size = 2 * cos.shape[-1]
    part, rest = x[..., :size], x[..., size:]
    first, second = (part[..., 0::2], part[..., 1::2]) if case["interleaved"] else part.chunk(2, -1)
    pair = first * cos - second * sin, first * sin + second * cos
    turned = torch.stack(pair, -1).flatten(-2) if case["interleaved"] else torch.cat(pair, -1)
    return torch.cat((turned, rest), -1)


def expected(case, call, n, dtype):
    """o of sequence n and its new keys, computed in `dtype`."""
    length, left, count = call["lengths"][n], call["left"][n], call["new"][n]
    rows = torch.arange(call["queries"][n])
    follows = case["mask"] != "full"
    q = rotated(call["q"][n], case, call["tables"], length + (rows if follows else rows * 0), dtype)
    k, v = (x.to(dtype) for x in call["before"][n])
    k_new = rotated(call["k_new"][n], case, call["tables"], length + torch.arange(count), dtype)
    k = torch.cat((k[left:length], k_new))[None]
    v = torch.cat((v[left:length], call["v_new"][n].to(dtype)))[None]
    options = dict(call["options"])
    if "slopes" in options:
        options["slopes"] = options["slopes"][n : n + 1]
    return sweep.plain(q[None], k, v, **options)[0], k_new


def make(case, order):
    """Everything of a call: tensors by sequence, options, the cache."""
    (heads, heads_kv), (seqlen_q, capacity), dtype = sweep.HEADS[case["heads"]], case["seqlens"], sweep.DTYPES[case["dtype"]]
    ragged = case["ragged"] and case["generation"] == 3
    queries = [order.randint(1, seqlen_q) if ragged else seqlen_q for _ in range(BATCH)]
    # At most as many new keys as queries, and room for them.
    new = [0] * BATCH
    if case["new_keys"]:
        new = [order.randint(1, count) for count in queries] if ragged else [order.randint(1, seqlen_q)] * BATCH
    size = int(case["rotary"] * case["head_dim"]) // 16 * 8
    # Queries that turn with their position must have one within the tables.
    turned = queries if size and case["new_keys"] and case["mask"] != "full" else new
    lengths = [order.randint(0 if count else 1, capacity - max(count, other)) for count, other in zip(new, turned)]
    left = [order.randint(0, length // 2) if case["left"] else 0 for length in lengths]
    window, causal = sweep.window_of(case["mask"], capacity, order)
    score = case["score"] if case["generation"] == 2 or case["score"] != "alibi" else "plain"
    factor, scores = sweep.scores_of(score, heads, BATCH)
    angles = torch.rand(capacity + (case["page_size"] or 0), size) * 6.28
    cache = Cache(case, capacity, heads_kv, dtype)
    rows = lambda counts, heads: [torch.randn(n, heads, case["head_dim"]).to(dtype) for n in counts]  # noqa: E731
    return {
        "queries": queries, "new": new, "lengths": lengths, "left": left, "ragged": ragged,
        "q": [x * factor for x in rows(queries, heads)], "k_new": rows(new, heads_kv), "v_new": rows(new, heads_kv),
        "tables": (angles.cos().to(dtype), angles.sin().to(dtype)) if size and case["new_keys"] else None,
        "options": {"causal": causal, "window": window, **scores},
        "cache": cache, "before": [tuple(x.clone() for x in cache.of(n)) for n in range(BATCH)],
    }  # fmt: skip


def run(case, call):
    """o by sequence, from the drop-in."""
    options, cache, whole = call["options"], call["cache"], torch.cat if call["ragged"] else torch.stack
    given = {"cache_seqlens": torch.tensor(call["lengths"], dtype=torch.int32), "num_splits": case["splits"], "causal": options["causal"]}
    given |= {"window_size": options["window"], **cache.arguments(case["generation"], case["rows"] == "other")}
    given |= {"softcap": options["softcap"]} if "softcap" in options else {}
    given |= {"alibi_slopes": options["slopes"]} if "slopes" in options else {}
    if case["left"]:
        given["cache_leftpad"] = torch.tensor(call["left"], dtype=torch.int32)
    if case["new_keys"]:
        given |= {"k": whole(call["k_new"]), "v": whole(call["v_new"])}
    if call["tables"] is not None:
        given |= {"rotary_cos": call["tables"][0], "rotary_sin": call["tables"][1], "rotary_interleaved": case["interleaved"]}
    starts = {name: torch.tensor([0, *call[name]]).cumsum(0).int() for name in ("queries", "new")}
    if call["ragged"]:
        given |= {"cu_seqlens_q": starts["queries"], "max_seqlen_q": max(call["queries"])}
        given |= {"cu_seqlens_k_new": starts["new"]} if case["new_keys"] else {}
    module = flash_attn if case["generation"] == 2 else flash_attn_interface
    o = module.flash_attn_with_kvcache(whole(call["q"]), cache.k, cache.v, **given)
    return list(o.split(call["queries"])) if call["ragged"] else list(o)


def faults_of(case, call):
    outputs, triples = run(case, call), []
    for n, o in enumerate(outputs):
        (exact, exact_k), (rough, rough_k) = (expected(case, call, n, dtype) for dtype in (sweep.WIDE, o.dtype))
        k, v = call["cache"].of(n)
        length, end = call["lengths"][n], call["lengths"][n] + call["new"][n]
        triples.append((o, exact, rough))
        if fault := sweep.broken(f"new keys of sequence {n}", k[length:end], exact_k, rough_k, 2):
            yield fault
        if not torch.equal(v[length:end], call["v_new"][n]):
            yield f"new values of sequence {n}: not as given"
        for name, now, before in zip("kv", (k, v), call["before"][n]):
            if not (torch.equal(now[:length], before[:length]) and torch.equal(now[end:], before[end:])):
                yield f"{name} of sequence {n}: rows of the cache that are not new have changed"
    if fault := sweep.broken("o", *(torch.cat(column) for column in zip(*triples)), 2):
        yield fault


@pytest.mark.parametrize("case", CASES, ids=sweep.name_of)
def test_as_near_as_plain_pytorch(case):
    with formula.start(case["seed"]), torch.no_grad():
        faults = list(faults_of(case, make(case, random.Random(case["seed"]))))
    assert not faults, "\n".join([str(case), *faults])
