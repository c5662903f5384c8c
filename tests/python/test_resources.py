"""References, memory, threads, and the cache of plans."""

import gc
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import reference
import tilewise
import torch
from tilewise import _native

CAPACITY = 1024  # plans that the module keeps


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_references(rng, kind):
    """Neither a call nor a refused one keeps anything."""
    tensors = [kind(x) for x in reference.tensors(rng)]
    options = {"alibi_slopes": kind(np.ones(4, np.float32)), "kernel": "cpu_reference_forward"}
    bad = {**options, "sink": kind(np.ones(3, np.float32))}

    def call(count):
        for _ in range(count):
            tilewise.attention(*tensors, **options)
            with pytest.raises(ValueError):
                tilewise.attention(*tensors, **bad)

    call(2)
    watched = [*tensors, *bad.values()]
    before = [sys.getrefcount(x) for x in watched]
    call(20)
    assert [sys.getrefcount(x) for x in watched] == before
    gone = [weakref.ref(x) for x in tensors]
    del tensors, watched, call
    gc.collect()
    assert all(ref() is None for ref in gone)


def test_memory_stays(rng):
    q, k, v = reference.tensors(rng, batch=4, seqlen_q=256, seqlen_k=256)
    for turn in range(300):
        if turn == 100:
            before = resident_bytes()
        tilewise.attention(q, k, v, causal=True, return_lse=True)
    assert resident_bytes() - before < 8 << 20


def test_plans_are_cached(rng):
    tensors = reference.tensors(rng, seqlen_q=19)
    tilewise.attention(*tensors)
    before = _native.num_cached_plans()
    tilewise.attention(*tensors)
    tilewise.attention(*(x.copy() for x in tensors))
    assert _native.num_cached_plans() == before
    tilewise.attention(*tensors, causal=True)
    assert _native.num_cached_plans() == min(before + 1, CAPACITY)  # other tests of the process may have filled it


def test_cache_is_bounded():
    for seqlen in range(1, 1200):
        q = tilewise.spec((1, seqlen, 1, 8), "float32")
        tilewise.explain(q, q, q, device="cpu")
    assert _native.num_cached_plans() <= CAPACITY


def test_plans_differ_where_calls_do(rng):
    """Every option is a part of the key: a second call with another value gets another result."""
    q, k, v = reference.tensors(rng)
    bias = rng.standard_normal((1, 1, 33, 65)).astype(np.float32)
    calls = [{}, {"causal": True}, {"window": (3, 3)}, {"window": (3, 4)}, {"chunk": 8}, {"block": 8}]
    calls += [{"causal": True, "prefix": 40}, {"scale": 0.3}, {"scale": 0.0}, {"softcap": 1.0}, {"softcap": 2.0}, {"bias": bias}]
    calls += [{"causal": True, "diagonal": "top_left"}]
    for _ in range(2):
        results = [tilewise.attention(q, k, v, **options) for options in calls]
        for options, result in zip(calls, results):
            np.testing.assert_allclose(result, reference.attention(q, k, v, **options)[0], rtol=1e-5, atol=1e-5)


def test_threads(rng):
    cases = [reference.tensors(rng, seqlen_q=n) for n in (17, 40, 63)]
    expected = [tilewise.attention(*case) for case in cases]
    failures = []

    def work():
        for turn in range(30):
            index = turn % 3
            if not np.array_equal(tilewise.attention(*cases[index], num_threads=1), expected[index]):
                failures.append(turn)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_gil_is_released(rng):
    """While a long call runs, another thread gets on."""
    q, k, v = reference.tensors(rng, batch=1, seqlen_q=1500, seqlen_k=1500, heads=8, head_dim=64, head_dim_v=64)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    watcher = threading.Thread(target=tick)
    watcher.start()
    begin = time.perf_counter()
    tilewise.attention(q, k, v, kernel="cpu_reference_forward")
    end = time.perf_counter()
    done.set()
    watcher.join()
    inside = sum(begin < moment < end for moment in ticks)
    assert inside > 10
