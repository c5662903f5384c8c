"""Models of Transformers with Tilewise give what eager attention gives: forward passes, masks and generation."""

import importlib.metadata

import models
import pytest
import tilewise.integrations.transformers as integration
import torch
import transformers
from transformers.masking_utils import causal_mask_function, create_causal_mask, sliding_window_causal_mask_function

ERROR = 2e-5 if models.DEVICE == "cpu" else 2e-4
in_all = pytest.mark.parametrize(("name", "implementation"), models.CASES)


@pytest.fixture(autouse=True)
def offered():
    with models.flash_attention_is_offered():
        yield


@pytest.mark.parametrize("inputs", sorted(models.INPUTS))
@in_all
@torch.no_grad()
def test_forward(name, implementation, inputs):
    given = models.INPUTS[inputs]()
    expected = models.logits(models.build(name, "eager"), given)
    models.same([models.logits(models.build(name, implementation), given)], [expected], ERROR)


@pytest.mark.parametrize("padding", [None, "left"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@in_all
@torch.no_grad()
def test_generate(name, implementation, cache, padding):
    """The same tokens, and scores, far enough for a window to move on."""
    given = {"input_ids": models.tokens(2, 5)} if padding is None else models.padded(padding)
    options = {
        "max_new_tokens": 9,
        "do_sample": False,
        "cache_implementation": cache,
        "return_dict_in_generate": True,
        "output_scores": True,
        "disable_compile": True,
    }
    expected = models.build(name, "eager").generate(**given, **options)
    actual = models.build(name, implementation).generate(**given, **options)
    assert actual.sequences.tolist() == expected.sequences.tolist()
    models.same(actual.scores, expected.scores, ERROR)


@pytest.mark.parametrize(("name", "programs"), [("llama", 1), ("mistral", 2)])
@torch.no_grad()
def test_generate_with_a_compiled_step(name, programs):
    """Masks of the steps are made outside of the program, so they stay short. As many programs as with eager attention:
    a sliding cache counts in a Python number, which only the second takes as a variable."""
    given = models.padded("left")
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    compiled = transformers.CompileConfig(backend="aot_eager", fullgraph=True, mode=None)
    compiled._compile_all_devices = True
    options = {"max_new_tokens": 9, "do_sample": False, "cache_implementation": "static"}
    expected = models.build(name, "eager", num_hidden_layers=1).generate(**given, **options, disable_compile=True)
    actual = models.build(name, "tilewise", num_hidden_layers=1).generate(**given, **options, compile_config=compiled)
    assert actual.tolist() == expected.tolist()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == programs


def test_flash_attention_is_the_drop_in():
    import flash_attn
    import flash_attn_interface

    assert importlib.metadata.version("flash-attn") == "2.8.3+tilewise"
    assert flash_attn.flash_attn_varlen_func.__module__.startswith("tilewise.")
    assert flash_attn_interface.flash_attn_varlen_func.__module__.startswith("tilewise.")


@torch.no_grad()
def test_packing_in_several_rows():
    positions = torch.tensor([[*range(7), *range(13)], [*range(16), *range(4)]], device=models.DEVICE)
    given = {"input_ids": models.tokens(2, 20), "position_ids": positions}
    found = [models.logits(models.build("mistral", implementation), given) for implementation in ("eager", "tilewise")]
    models.same([found[1]], [found[0]], ERROR)


@pytest.mark.parametrize("mask", ["none", "bool", "short"])
@pytest.mark.parametrize("window", [None, 3])
def test_lengths_beside_a_mask(window, mask):
    """cu_seq_lens hold whatever the mask says, and alone too."""
    q, k, v = (torch.randn(1, heads, 24, 16, device=models.DEVICE) for heads in (4, 2, 2))
    function = causal_mask_function if window is None else sliding_window_causal_mask_function(window)
    given = {"mask_function": function, "allow_is_causal_skip": False, "device": models.DEVICE}
    masks = {
        "none": None,
        "bool": transformers.masking_utils.sdpa_mask(1, 24, 24, **given),
        "short": integration.attention_mask(1, 24, 24, **given),
    }
    ends = models.packed_with_lengths()["cu_seq_lens_q"]
    module, options = torch.nn.Module(), {"sliding_window": window}
    lengths = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 12, "max_length_k": 12}
    o = integration.attention(module, q, k, v, masks[mask], **lengths, **options)[0]
    parts = [[x[:, :, a:b] for x in (q, k, v)] for a, b in zip(ends.tolist(), ends[1:].tolist())]
    expected = [integration.attention(module, *part, None, **options)[0] for part in parts]
    models.same([o], [torch.cat(expected, dim=1)], ERROR)


def test_rows_behind_the_last_sequence_see_nothing():
    q = torch.randn(1, 4, 24, 16, device=models.DEVICE)
    mask = integration.attention_mask(1, 24, 24, allow_is_causal_skip=False, device=models.DEVICE)
    ends = torch.tensor([0, 9, 20], device=models.DEVICE)
    o = integration.attention(torch.nn.Module(), q, q, q, mask, cu_seq_lens_q=ends, cu_seq_lens_k=ends)[0]
    assert o[:, :20].abs().amin(dim=(0, 2, 3)).all() and not o[:, 20:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("implementation", ["tilewise", *models.FLASH])
@torch.no_grad()
def test_half_types_are_no_worse_than_eager(implementation, dtype):
    given = models.padded("left")
    exact = models.logits(models.build("llama", "eager"), given)
    eager = (models.logits(models.build("llama", "eager", dtype), given) - exact).abs().max()
    own = (models.logits(models.build("llama", implementation, dtype), given) - exact).abs().max()
    assert own <= 2 * eager


@torch.no_grad()
def test_an_encoder_sees_both_ways():
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    sizes["vocab_size"] = models.VOCABULARY
    found = []
    for implementation in ("eager", "tilewise"):
        torch.manual_seed(5)
        model = transformers.BertModel(transformers.BertConfig(**sizes, attn_implementation=implementation))
        model.to(models.DEVICE).eval()
        given = models.padded("right")
        found.append(model(**given).last_hidden_state[given["attention_mask"].bool()])
    models.same([found[1]], [found[0]], ERROR)


@torch.no_grad()
def test_masks_of_the_caller():
    """A mask of 4 axes is taken as it is: bool, or numbers that are added."""
    ids = models.tokens(2, 12)
    seen = torch.rand(2, 1, 12, 12, device=models.DEVICE) < 0.5
    seen |= torch.eye(12, dtype=torch.bool, device=models.DEVICE)
    added = torch.zeros(seen.shape, device=models.DEVICE).masked_fill(~seen, torch.finfo(torch.float32).min)
    expected = models.build("llama", "eager")(ids, attention_mask=added, use_cache=False).logits
    model = models.build("llama", "tilewise")
    for mask in (seen, added):
        models.same([model(ids, attention_mask=mask, use_cache=False).logits], [expected], ERROR)


def shown(mask, kv_length):
    """A mask in its short form as bool (batch, 1, query_length, kv_length)."""
    if mask.dtype == torch.bool:
        return mask
    keys = torch.arange(kv_length, device=mask.device)
    return (keys >= mask[..., :1]) & (keys < mask[..., 1:])


PADDING = {
    "left": [[1] * 9, [0] * 4 + [1] * 5],
    "right": [[1] * 9, [1] * 5 + [0] * 4],
    "holes": [[1, 0, 1, 1, 1, 0, 1, 1, 1]] * 2,
}


@pytest.mark.parametrize("chunk", [1 << 24, 40])
@pytest.mark.parametrize(("offset", "kv_offset"), [(0, 0), (2, 0), (torch.tensor(2), 0), (5, 3)], ids=str)
@pytest.mark.parametrize("padding", [None, *PADDING])
@pytest.mark.parametrize("pattern", ["causal", "window"])
def test_short_masks_show_what_long_ones_do(monkeypatch, pattern, padding, offset, kv_offset, chunk):
    """`kv_offset` keys have left a sliding cache."""
    monkeypatch.setattr(integration, "_CHUNK", chunk)
    function = causal_mask_function if pattern == "causal" else sliding_window_causal_mask_function(3)
    mask = None if padding is None else torch.tensor(PADDING[padding], dtype=torch.bool)
    given = {"q_offset": offset, "kv_offset": kv_offset, "mask_function": function, "attention_mask": mask}
    given["allow_is_causal_skip"] = False
    expected = transformers.masking_utils.sdpa_mask(2, 7, 9, **given)
    actual = integration.attention_mask(2, 7, 9, **given)
    assert actual.dtype == (torch.bool if padding == "holes" else torch.int32)
    assert torch.equal(shown(actual, 9), expected)


def test_no_mask_where_none_is_needed():
    assert integration.attention_mask(2, 7, 9, q_offset=2) is None
    assert integration.attention_mask(2, 7, 9, q_offset=2, attention_mask=torch.ones(2, 9, dtype=torch.bool)) is None
    static = integration.attention_mask(2, 7, 16, q_offset=torch.tensor(0))
    assert static is not None, "a static cache has keys behind the last row"


@torch.no_grad()
def test_patterns_of_a_model_that_are_no_intervals():
    """Every second key: a function that a model lays over causal attention."""
    ids = models.tokens(2, 12)
    found = []
    for implementation in ("eager", "tilewise"):
        model = models.build("llama", implementation)
        embedded = model.model.embed_tokens(ids)
        mask = create_causal_mask(
            model.config, embedded, None, None, and_mask_function=lambda batch, head, row, key: (row - key) % 2 == 0
        )
        found.append(model(ids, attention_mask=mask, use_cache=False).logits)
    models.same([found[1]], [found[0]], ERROR)


@pytest.mark.parametrize(
    ("mask", "options", "error"),
    [
        (torch.ones(2, 12), {}, ValueError),
        (torch.ones(2, 1, 12, 12, dtype=torch.int64), {}, ValueError),
        (None, {"output_attentions": True}, NotImplementedError),
        (None, {"block_table": torch.zeros(1, 1)}, NotImplementedError),
        (None, {"cu_seq_lens_q": torch.tensor([0, 24])}, ValueError),
    ],
    ids=["two axes", "integers", "probabilities", "paged", "lengths of queries alone"],
)
def test_what_is_refused(mask, options, error):
    q = torch.randn(2, 4, 12, 16)
    name = next(iter(options), "attention_mask")
    with pytest.raises(error, match=name):
        integration.attention(torch.nn.Module(), q, q, q, mask, **options)


def test_names_that_are_refused():
    with pytest.raises(ValueError, match="flash"):
        integration.register("tilewise_flash")
