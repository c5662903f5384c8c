"""The other libraries of the benchmark: how they are called, found and told apart from our drop-ins, with made-up
modules."""

import types

import pytest
import tilewise
import tilewise.compat
import torch
from bench_inputs import case_of
from tilewise.bench import checks, peers_flash, peers_flashinfer, peers_sdpa
from tilewise.bench.errors import Refused
from tilewise.bench.inputs import make_inputs
from tilewise.bench.peer_names import PEER_NAMES

CPU_CASES = [
    case_of("forward", dtype="fp32", causal=True),
    case_of("backward", dtype="fp32", window=(5, -1)),
    case_of("decode", dtype="fp32", window=(9, 0)),
    case_of("ragged", dtype="fp32", causal=True, lengths=(24, 7)),
]


def assert_right(attend, case, inputs):
    q, k, v = inputs.sets[0]
    outputs = {"o": attend(q, k, v).detach()}
    for place in checks.sampled_places(case, "cpu"):
        wanted = {"o": checks.exact(case, inputs, place)["o"]}
        assert checks.fault_of(case, outputs, wanted, place)[1] is None


def flash_module(unlimited, returns):
    """flash_attn's functions as far as they are called, computed by ours; `returns` makes the result of o."""

    def options(causal, window_size):
        left, right = (-1 if x == unlimited else x for x in window_size)
        return {"causal": causal, "window": None if (left, right) == (-1, -1) else (left, 0 if causal else right)}

    def flash_attn_func(q, k, v, causal=False, window_size=None):
        return returns(tilewise.attention(q, k, v, **options(causal, window_size)))

    def flash_attn_varlen_func(q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **mask):
        assert max_seqlen_q == max_seqlen_k == 24
        return returns(tilewise.attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **options(**mask)))

    def flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=None, causal=False, window_size=None):
        assert cache_seqlens.tolist() == [24, 24]
        chosen = {"cache_seqlens": cache_seqlens, **options(causal, window_size)}
        return returns(tilewise.decode(q, k_cache, v_cache, **chosen))

    module = types.ModuleType("made_up")
    module.flash_attn_func, module.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    module.flash_attn_with_kvcache = flash_attn_with_kvcache
    return module


@pytest.mark.parametrize("case", CPU_CASES, ids=lambda case: case.op)
@pytest.mark.parametrize(
    "unlimited, has_cache, returns", [(-1, True, lambda o: o), (None, False, lambda o: (o, None))], ids=["2 and 3", "4"]
)
def test_flash_attention_is_called_as_it_wants(case, unlimited, has_cache, returns):
    inputs = make_inputs(case, "cpu")
    bind = peers_flash._bind(flash_module(unlimited, returns), unlimited, has_cache)
    assert_right(bind(case, inputs), case, inputs)


@pytest.fixture
def drop_ins():
    """Tilewise's flash_attn and flash_attn_interface are importable, as for the other tests of this process."""
    tilewise.compat.enable()


@pytest.mark.parametrize("name", ["flash_attn", "flash_attn_interface"])
def test_our_own_drop_in_does_not_take_part(name, drop_ins):
    with pytest.raises(Refused, match=f"{name} that Python finds is Tilewise's own drop-in"):
        peers_flash.load_module(name)


def test_what_does_not_import_says_why(monkeypatch, tmp_path):
    (tmp_path / "broken_library.py").write_text("raise OSError('undefined symbol: _ZN3c10')\n")
    (tmp_path / "needy_library.py").write_text("import no_such_dependency\n")
    (tmp_path / "empty_library.py").write_text("")
    (tmp_path / "foreign_library.py").write_text("def flash_attn_func(): pass\n__version__ = '9'\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, told in (
        ("no_such_library", "no_such_library is not installed"),
        ("no_such_library.part", "no_such_library.part is not installed"),
        ("broken_library", "does not import: OSError: undefined symbol"),
        ("needy_library", "does not import: No module named 'no_such_dependency'"),
        ("empty_library", "has no flash_attn_func"),
    ):
        with pytest.raises(Refused, match=told):
            peers_flash.load_module(name)
    assert peers_flash.load_module("foreign_library").__version__ == "9"


class Wrapper:
    """FlashInfer's two wrappers, computed by ours: plan takes what its documentation lists, run the tensors."""

    def __init__(self, workspace, layout, use_tensor_cores=False):
        assert layout == "NHD" and workspace.dtype == torch.uint8 and not workspace.any()

    def plan(self, *words, **options):
        self.words, self.options = words, options
        assert options["q_data_type"] == options["kv_data_type"] == torch.float32


class RaggedWrapper(Wrapper):
    def run(self, q, k, v):
        starts_q, starts_k, heads, heads_kv, head_dim = self.words
        assert (q.shape[1:], k.shape[1:]) == ((heads, head_dim), (heads_kv, head_dim))
        left, causal = self.options["window_left"], self.options["causal"]
        window = None if left < 0 else (left, 0 if causal else -1)
        return tilewise.attention_varlen(q, k, v, starts_q, starts_k, causal=causal, window=window)


class PagedWrapper(Wrapper):
    def run(self, q, caches):
        starts, pages, last, heads, heads_kv, head_dim, page = self.words
        batch = len(starts) - 1
        table = pages.view(batch, -1)
        assert caches[0].shape[1:] == (page, heads_kv, head_dim) and q.shape == (batch, heads, head_dim)
        lengths = ((starts[1:] - starts[:-1] - 1) * page + last).int()
        left = self.options["window_left"]
        window = None if left < 0 else (left, 0)
        return tilewise.decode(q[:, None], *caches, cache_seqlens=lengths, page_table=table, window=window)[:, 0]


FLASHINFER = types.SimpleNamespace(
    BatchPrefillWithRaggedKVCacheWrapper=RaggedWrapper, BatchDecodeWithPagedKVCacheWrapper=PagedWrapper
)


@pytest.mark.parametrize(
    "case",
    [
        case_of("forward", dtype="fp32", causal=True),
        case_of("forward", dtype="fp32", window=(5, -1)),
        case_of("ragged", dtype="fp32", causal=True, window=(5, 0), lengths=(24, 7)),
        case_of("decode", dtype="fp32"),
        case_of("decode", dtype="fp32", seqlen=32, window=(9, 0)),
    ],
    ids=lambda case: case.name,
)
def test_flashinfer_is_called_as_it_wants(case):
    inputs = make_inputs(case, "cpu")
    bind = peers_flashinfer._bind_decode if case.op == "decode" else peers_flashinfer._bind_ragged
    assert_right(bind(FLASHINFER, case, inputs), case, inputs)


def test_flashinfer_refuses_a_window_to_the_right():
    with pytest.raises(Refused, match="right side: 3"):
        case = case_of("forward", dtype="fp32", window=(5, 3))
        peers_flashinfer._bind_ragged(FLASHINFER, case, make_inputs(case, "cpu"))


@pytest.mark.parametrize("case", CPU_CASES[:3], ids=lambda case: case.op)
def test_torch_is_called_as_it_wants(case):
    inputs = make_inputs(case, "cpu")
    assert_right(peers_sdpa.LOADERS["sdpa-math"]("cpu").bind(case, inputs), case, inputs)


def test_torch_s_nested_tensors():
    case = case_of("ragged", dtype="fp32", heads_kv=4, lengths=(24, 7))
    inputs = make_inputs(case, "cpu")
    assert_right(peers_sdpa.LOADERS["sdpa-math"]("cpu").bind(case, inputs), case, inputs)


def test_torch_s_reasons_become_a_line():
    """On the CPU FlashAttention's back end takes no nested tensors."""
    case = case_of("ragged", dtype="fp32", heads_kv=4, lengths=(24, 7))
    with pytest.raises(Refused, match="(?i)cuda"):
        peers_sdpa.LOADERS["sdpa-flash"]("cpu").bind(case, make_inputs(case, "cpu"))


def test_reasons_are_those_of_the_back_end():
    said = [
        "Memory efficient kernel not used because:",
        "Memory Efficient attention has been runtime disabled. (Triggered internally at x.h:5)",
        "Flash attention kernel not used because:",
        "Flash attention does not support this. (Triggered internally at y.h:7)",
        "CuDNN attention kernel not used because:",
        "cuDNN attention has been runtime disabled.",
    ]
    assert peers_sdpa.reasons_of("flash", said) == ["Flash attention does not support this."]
    assert peers_sdpa.reasons_of("math", ["something else"]) == ["something else"]


def test_every_name_has_a_peer():
    loaders = peers_sdpa.LOADERS | peers_flash.LOADERS | peers_flashinfer.LOADERS
    assert sorted(loaders) == sorted(PEER_NAMES)
