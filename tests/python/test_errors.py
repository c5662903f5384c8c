"""Refusals: the type of the exception, and that the message names the argument as Python does, its value and what is allowed."""

import inspect

import numpy as np
import pytest
import reference
import tilewise
import torch


def call(rng, **options):
    q, k, v = reference.tensors(rng)
    return tilewise.attention(q, k, v, **options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"scale": -1.0}, ValueError, ["scale: -1"]),
        ({"scale": "big"}, TypeError, ["scale: a number", "str"]),
        ({"dropout_p": 1.5}, ValueError, ["dropout_p", "1.5"]),
        ({"dropout_seed": 3}, ValueError, ["dropout_seed"]),
        ({"window": (-3, 0)}, ValueError, ["window[0]: -3"]),
        ({"window": (1.5, 0)}, TypeError, ["window[0]: an integer", "float"]),
        ({"causal": True, "window": (4, 2)}, ValueError, ["window[1]: 2 with causal"]),
        ({"prefix": 2, "window": (5, 0)}, ValueError, ["prefix: is given with window[0] 5"]),
        ({"prefix": 2}, ValueError, ["prefix", "without causal, window[1] or block"]),
        ({"prefix": np.zeros(7, np.int32), "causal": True}, ValueError, ["prefix: batch is 7", "prefix is (batch)"]),
        ({"diagonal": "top_left"}, ValueError, ["diagonal: has no effect without causal"]),
        ({"window": 7}, TypeError, ["window", "7", "pair"]),
        ({"diagonal": "left"}, ValueError, ["diagonal", "'left'", "top_left"]),
        ({"causal": "yes"}, TypeError, ["causal", "True or False", "str"]),
        ({"softcap": "big"}, TypeError, ["softcap", "number", "str"]),
        ({"num_splits": 1.5}, TypeError, ["num_splits", "integer", "float"]),
        ({"num_threads": 2**40}, ValueError, ["num_threads", "32 bits"]),
        ({"dropout_seed": -1, "dropout_p": 0.1}, ValueError, ["dropout_seed", "-1", "2^64"]),
        ({"mask": [[True]]}, TypeError, ["mask", "tensor", "list"]),
        ({"bias": np.zeros((1, 1, 1), np.float32)}, ValueError, ["bias", "axes"]),
        ({"alibi_slopes": np.zeros(3, np.float32)}, ValueError, ["alibi_slopes", "3"]),
        ({"sink": np.zeros(4, np.float16)}, ValueError, ["sink", "f16", "f32"]),
        ({"max_seqlen_q": 5}, ValueError, ["max_seqlen_q", "5", "cu_seqlens_q"]),
        ({"kernel": "warp_drive"}, ValueError, ["kernel", "warp_drive"]),
        ({"kernel": 3}, TypeError, ["kernel", "int"]),
        ({"softmax_scale": 1.0}, TypeError, ["softmax_scale", "did you mean 'scale'"]),
        ({"causl": True}, TypeError, ["causl", "did you mean 'causal'"]),
        ({"page_table": np.zeros((2, 2), np.int64)}, ValueError, ["page_table", "i64", "i32"]),
        ({"out": np.zeros((2, 33, 4, 41), np.float32)}, ValueError, ["out:", "41"]),
        ({"out": np.zeros((2, 33, 4, 40), np.float64)}, ValueError, ["out:", "f64", "f32"]),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else None,
)
def test_options(rng, options, error, words):
    with pytest.raises(error) as caught:
        call(rng, **options)
    for word in words:
        assert word in str(caught.value)


def test_tensors(rng):
    q, k, v = reference.tensors(rng)
    with pytest.raises(ValueError, match=r"q: has 2 axes"):
        tilewise.attention(q[0, 0], k, v)
    with pytest.raises(ValueError, match=r"k: .*f64.*one dtype"):
        tilewise.attention(q, k.astype(np.float64), v)
    with pytest.raises(ValueError, match=r"k: .*negative"):
        tilewise.attention(q, k[:, ::-1], v)
    with pytest.raises(TypeError, match="q: the dtype is int8"):
        tilewise.attention(q.astype(np.int8), k.astype(np.int8), v.astype(np.int8))
    with pytest.raises(TypeError, match=r"q: a tensor .* not list"):
        tilewise.attention([[1.0]], k, v)
    with pytest.raises(TypeError, match=r"k: a tensor .* not float"):
        tilewise.attention(q, 1.0, v)
    with pytest.raises(TypeError, match="k: the dtype is complex64"):
        tilewise.attention(q, k.astype(np.complex64), v)


def test_read_only_outputs(rng):
    q, k, v = reference.tensors(rng)
    for array in (q, k, v):
        array.flags.writeable = False
    out = np.zeros((2, 33, 4, 40), np.float32)
    tilewise.attention(q, k, v, out=out)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: .*read-only"):
        tilewise.attention(q, k, v, out=out)


def test_lengths_on_the_host_are_read(rng):
    q, k, v = (x[0] for x in reference.tensors(rng))
    with pytest.raises(ValueError, match=r"cu_seqlens_q: \[2\] is 40"):
        tilewise.attention_varlen(q, k, v, np.array([0, 5, 40], np.int32), np.array([0, 5, 65], np.int32))


def test_refused_call_writes_nothing(rng):
    q, k, v = (x[0] for x in reference.tensors(rng))
    out = np.full((33, 4, 40), np.nan, np.float32)
    with pytest.raises(ValueError):
        tilewise.attention_varlen(q, k, v, np.array([0, 50], np.int32), np.array([0, 65], np.int32), out=out)
    assert np.isnan(out).all()


def test_a_cache_is_named_as_one(rng):
    q, k, v = reference.tensors(rng)
    with pytest.raises(ValueError, match=r"v_cache: num_heads_kv is 1 .* but 2 by k_cache, .*; v_cache is "):
        tilewise.decode(q, k, v[:, :, :1])
    with pytest.raises(ValueError, match=r"k_cache: .*f64.*; q, k_cache and v_cache have one dtype"):
        tilewise.decode(q, k.astype(np.float64), v)
    with pytest.raises(TypeError, match=r"v_cache: a tensor .* not int"):
        tilewise.append(k, 3, k, v, cache_seqlens=np.zeros(2, np.int32))
    v.flags.writeable = False
    with pytest.raises(ValueError, match=r"v_cache: .*read-only"):
        tilewise.append(k, v, k, k, cache_seqlens=np.zeros(2, np.int32))


def test_explain_names_its_own_arguments(rng):
    q, k, v = reference.tensors(rng)
    with pytest.raises(ValueError, match=r"v: num_heads_kv is 1 .* but 2 by k"):
        tilewise.explain(q, k, v[:, :, :1], operation="decode")
    with pytest.raises(ValueError, match="scale: -1"):
        tilewise.explain(q, k, v, scale=-1)


def test_what_a_caller_wrote_stays(rng):
    with pytest.raises(ValueError, match='kernel: no kernel is named "softmax_scale"'):
        call(rng, kernel="softmax_scale")


@pytest.mark.parametrize("operation, functions", [("FORWARD", (tilewise.attention, tilewise.explain)), ("DECODE", (tilewise.decode,))])
def test_every_field_has_the_name_of_its_argument(operation, functions):
    """Whatever field is wrong, the message begins with the name that the operation's function has for it."""
    from tilewise import _native

    names = {name for function in functions for name in inspect.signature(function).parameters}
    others = inspect.signature(tilewise.attention).parameters  # fields of no decode are known to it too
    own = {"device", "allocate", "stream", "lse"}
    for field in _native.fields():
        if field in own or field.startswith("grad_"):
            continue
        with pytest.raises(TypeError) as caught:
            _native.run(getattr(_native, operation), **{field: object()})
        head = str(caught.value).partition(":")[0].partition("[")[0]
        assert head in names or (head == field and head in others and field not in "kv"), f"{field} is called {head}"


def test_meta_tensors_have_no_memory():
    q = torch.empty(1, 4, 2, 8, device="meta")
    with pytest.raises((ValueError, NotImplementedError), match="meta"):
        tilewise.attention(q, q, q)


def test_every_option_is_described():
    """No option without a line in the docstring."""
    from tilewise import _options

    for function, table in (("attention", _options.ATTENTION), ("decode", {**_options._CACHE})):
        text = getattr(tilewise, function).__doc__
        assert [name for name in table if name not in text] == []
