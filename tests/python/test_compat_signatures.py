"""Names, signatures, defaults and versions of the drop-ins: clients inspect them and pass by position."""

import importlib
import importlib.metadata
import inspect
import subprocess
import sys

import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch

_SCORES = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, "
    "return_attn_probs=False"
)
_RAGGED = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
_DESCALE = "q_descale=None, k_descale=None, v_descale=None"
_TAIL3 = (
    "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, "
    "return_attn_probs=False"
)
_MASK2 = "dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes"

SIGNATURES = {
    "flash_attn": {
        "flash_attn_func": f"q, k, v, {_SCORES}",
        "flash_attn_kvpacked_func": f"q, kv, {_SCORES}",
        "flash_attn_qkvpacked_func": f"qkv, {_SCORES}",
        "flash_attn_varlen_func": f"q, k, v, {_RAGGED}, {_SCORES}, block_table=None",
        "flash_attn_varlen_kvpacked_func": f"q, kv, {_RAGGED}, {_SCORES}",
        "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {_SCORES}",
        "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), "
        "softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False",
    },
    "flash_attn.flash_attn_interface": {
        "_flash_attn_forward": f"q, k, v, {_MASK2}, return_softmax",
        "_flash_attn_varlen_forward": f"q, k, v, {_RAGGED}, dropout_p, softmax_scale, causal, window_size_left=-1, "
        "window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False, block_table=None, leftpad_k=None, "
        "seqused_k=None, zero_tensors=False",
        "_flash_attn_backward": f"dout, q, k, v, out, softmax_lse, dq, dk, dv, {_MASK2}, deterministic, rng_state=None",
        "_flash_attn_varlen_backward": f"dout, q, k, v, out, softmax_lse, dq, dk, dv, {_RAGGED}, {_MASK2}, deterministic, "
        "rng_state=None, zero_tensors=False",
        "maybe_contiguous": "x",
        "round_multiple": "x, m",
    },
    "flash_attn.bert_padding": {
        "unpad_input": "hidden_states, attention_mask, unused_mask=None",
        "unpad_input_for_concatenated_sequences": "hidden_states, attention_mask_in_length",
        "pad_input": "hidden_states, indices, batch, seqlen",
        "index_first_axis": "input, indices",
        "index_put_first_axis": "values, indices, first_axis_dim",
        "index_first_axis_residual": "input, indices",
    },
    "flash_attn.layers.rotary": {
        "apply_rotary_emb": "x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None",
        "RotaryEmbedding": "dim, base=10000.0, interleaved=False, scale_base=None, device=None",
        "RotaryEmbedding.forward": "self, qkv, kv=None, seqlen_offset=0, max_seqlen=None, num_heads_q=None",
    },
    "flash_attn.ops.triton.rotary": {
        "apply_rotary": "x, cos, sin, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None, interleaved=False, inplace=False, "
        "conjugate=False",
    },
    "flash_attn_interface": {
        "flash_attn_func": f"q, k, v, softmax_scale=None, causal=False, qv=None, {_DESCALE}, {_TAIL3}",
        "flash_attn_qkvpacked_func": f"qkv, softmax_scale=None, causal=False, {_DESCALE}, window_size=(-1, -1), attention_chunk=0, "
        "softcap=0.0, deterministic=False, num_heads_q=None, sm_margin=0, return_attn_probs=False",
        "flash_attn_varlen_func": f"q, k, v, {_RAGGED}, seqused_q=None, seqused_k=None, softmax_scale=None, causal=False, qv=None, "
        f"{_DESCALE}, {_TAIL3}",
        "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, "
        "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, "
        f"max_seqlen_q=None, rotary_seqlens=None, {_DESCALE}, softmax_scale=None, causal=False, window_size=(-1, -1), "
        "attention_chunk=0, softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, "
        "sm_margin=0, return_softmax_lse=False",
        "flash_attn_combine": "out_partial, lse_partial, out=None, out_dtype=None",
        "get_scheduler_metadata": "batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens, "
        f"qkv_dtype={torch.bfloat16}, headdim_v=None, cu_seqlens_q=None, cu_seqlens_k_new=None, cache_leftpad=None, page_size=None, "
        "max_seqlen_k_new=0, causal=False, window_size=(-1, -1), attention_chunk=0, has_softcap=False, num_splits=0, "
        "pack_gqa=None, sm_margin=0",
    },
}
CASES = [(module, name) for module, functions in SIGNATURES.items() for name in functions]


def find(module, name):
    item = importlib.import_module(module)
    for part in name.split("."):
        item = getattr(item, part)
    return item


@pytest.mark.parametrize("module, name", CASES, ids=[".".join(case) for case in CASES])
def test_signature(module, name):
    assert str(inspect.signature(find(module, name))) == f"({SIGNATURES[module][name]})"


@pytest.mark.parametrize("module, name", [c for c in CASES if "Embedding" not in c[1]], ids=lambda x: x)
def test_older_inspection(module, name):
    """Ring attention asks getfullargspec, which does not look behind decorators."""
    specification = inspect.getfullargspec(find(module, name))
    assert specification.varargs is None and specification.varkw is None
    assert specification.args == list(inspect.signature(find(module, name)).parameters)


@pytest.mark.parametrize(
    "name, count", [("fwd", 13), ("varlen_fwd", 22), ("bwd", 19), ("varlen_bwd", 24), ("fwd_kvcache", 20)]
)
def test_extension(name, count):
    assert len(inspect.signature(find("flash_attn_2_cuda", name)).parameters) == count


@pytest.mark.parametrize(
    "module, names",
    [
        ("flash_attn", "__version__"),
        (
            "flash_attn.flash_attn_interface",
            "flash_attn_func flash_attn_varlen_func flash_attn_with_kvcache flash_attn_gpu USE_TRITON_ROCM FlashAttnFunc "
            "FlashAttnVarlenFunc FlashAttnQKVPackedFunc FlashAttnKVPackedFunc FlashAttnVarlenQKVPackedFunc FlashAttnVarlenKVPackedFunc "
            "_wrapped_flash_attn_forward _wrapped_flash_attn_backward _wrapped_flash_attn_varlen_forward "
            "_wrapped_flash_attn_varlen_backward",
        ),
        ("flash_attn.bert_padding", "IndexFirstAxis IndexPutFirstAxis IndexFirstAxisResidual"),
        (
            "flash_attn.layers.rotary",
            "apply_rotary_emb_func apply_rotary_emb_qkv_ apply_rotary_emb_kv_ apply_rotary_emb_torch rotate_half ApplyRotaryEmb "
            "ApplyRotaryEmbQKV_ ApplyRotaryEmbKV_",
        ),
        ("flash_attn_interface", "_flash_attn_forward _flash_attn_backward __version__"),
        ("flash_attn_3.flash_attn_interface", "flash_attn_func flash_attn_varlen_func flash_attn_with_kvcache"),
        ("flash_attn_config", "CONFIG"),
    ],
)
def test_names(module, names):
    for name in names.split():
        find(module, name)


def test_the_package_brings_its_interface():
    """Callers write flash_attn.flash_attn_interface.x after `import flash_attn` alone."""
    code = "import tilewise.compat, flash_attn; flash_attn.flash_attn_interface._flash_attn_forward"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_versions():
    import flash_attn
    import flash_attn_interface

    assert flash_attn.__version__ == "2.8.3" and flash_attn_interface.__version__ == "3.0.0"
    assert importlib.metadata.version("flash-attn") == importlib.metadata.version("flash_attn") == "2.8.3+tilewise"
    assert importlib.metadata.version("flash-attn-3") == "3.0.0+tilewise"
    owners = importlib.metadata.packages_distributions()
    assert owners["flash_attn"] == ["flash-attn"] and owners["flash_attn_interface"] == ["flash-attn-3"]


def test_what_einops_has_is_passed_on():
    from flash_attn import bert_padding

    try:
        import einops
    except ImportError:
        with pytest.raises(ImportError, match="einops"):
            bert_padding.rearrange
    else:
        assert bert_padding.rearrange is einops.rearrange and bert_padding.repeat is einops.repeat
    with pytest.raises(AttributeError, match="nonsense"):
        bert_padding.nonsense
