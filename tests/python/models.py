"""Small models of Transformers with random weights, and what their tests compare: eager attention with another
implementation.

`tilewise.compat` comes first: Transformers looks for flash_attn once. TILEWISE_TEST_DEVICE=cuda runs the models on a
GPU.
"""

import contextlib
from unittest import mock

import compat_formula
import tilewise.compat  # noqa: F401
import tilewise.integrations.transformers
import torch
import transformers
from transformers.masking_utils import create_masks_for_generate
from transformers.utils import import_utils

DEVICE = compat_formula.DEVICE
VOCABULARY = 97
FLASH = ("flash_attention_2", "flash_attention_3")
NAMES = ("llama", "mistral", "gemma2", "gpt_oss")

tilewise.integrations.transformers.register()

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.2,
}


def config(name, **changes):
    """Heads of 16, two of queries to one of keys; windows are shorter than the sequences of the tests."""
    sizes = {**_SIZES, **changes}
    if name == "mistral":
        return transformers.MistralConfig(**{"sliding_window": 7, **sizes})
    if name == "gemma2":
        soft = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 16}
        return transformers.Gemma2Config(**{"sliding_window": 7, **soft, **sizes})
    if name == "gpt_oss":
        experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
        return transformers.GptOssConfig(**{"sliding_window": 7, **experts, **sizes})
    return transformers.LlamaConfig(**sizes)


@contextlib.contextmanager
def flash_attention_is_offered():
    """Transformers offers flash attention where it sees a GPU, whatever flash_attn can do. Without one, its question is
    answered with yes here; nothing else of it is changed."""
    if DEVICE != "cpu":
        yield
        return
    checks = (import_utils.is_flash_attn_2_available, import_utils.is_flash_attn_3_available)
    try:
        with mock.patch.object(import_utils, "is_torch_cuda_available", lambda: True):
            for check in checks:
                check.cache_clear()
            yield
    finally:
        for check in checks:
            check.cache_clear()


def build(name, implementation, dtype=torch.float32, **changes):
    """The same weights for every implementation. Sinks, which start as 0, are drawn too."""
    torch.manual_seed(11)
    chosen = {"attn_implementation": implementation, "dtype": dtype}
    if name == "gpt_oss":
        chosen["experts_implementation"] = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config(name, **changes), **chosen)
    assert model.config._attn_implementation == implementation
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if key.endswith("sinks"):
                weight.normal_()
    return model.to(DEVICE).eval()


def checkpoint(model):
    """Activations are computed again in the backward pass. Transformers changed the method's name."""
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()


def implementations(name):
    """What `name` is tested with; Transformers gives GPT-OSS flash attention only from kernels of its hub."""
    return ("tilewise",) if name == "gpt_oss" else ("tilewise", *FLASH)


CASES = [(name, implementation) for name in NAMES for implementation in implementations(name)]


def tokens(batch, length):
    torch.manual_seed(3)
    return torch.randint(2, VOCABULARY, (batch, length)).to(DEVICE)


def padded(side):
    """Two sequences of 20 tokens, one of them with 6 of padding: input_ids and attention_mask."""
    ids, mask = tokens(2, 20), torch.ones(2, 20, dtype=torch.int64, device=DEVICE)
    hidden = slice(0, 6) if side == "left" else slice(14, 20)
    mask[1, hidden] = 0
    ids[1, hidden] = 0
    return {"input_ids": ids, "attention_mask": mask}


LENGTHS = (9, 3, 12)


def packed():
    """Three sequences in one row, told by their position_ids."""
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None].to(DEVICE)
    return {"input_ids": tokens(1, sum(LENGTHS)), "position_ids": positions}


def packed_with_lengths():
    """The same, told by the lengths too, as DataCollatorWithFlattening makes it."""
    ends = torch.tensor([0, *LENGTHS]).cumsum(0).to(DEVICE, torch.int32)
    lengths = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": max(LENGTHS), "max_length_k": max(LENGTHS)}
    return {**packed(), **lengths}


INPUTS = {
    "plain": lambda: {"input_ids": tokens(2, 20)},
    "left_padding": lambda: padded("left"),
    "right_padding": lambda: padded("right"),
    "packed": packed,
    "packed_with_lengths": packed_with_lengths,
}


def _told(model, inputs):
    """Packed sequences as masks: for eager attention, which knows no lengths, and for GPT-OSS, which makes its masks
    without position_ids."""
    needs_masks = model.config.model_type == "gpt_oss" and "cu_seq_lens_q" not in inputs
    if "position_ids" not in inputs or not (needs_masks or model.config._attn_implementation == "eager"):
        return inputs
    ids, positions = inputs["input_ids"], inputs["position_ids"]
    masks = create_masks_for_generate(model.config, model.get_input_embeddings()(ids), None, None, positions)
    return {"input_ids": ids, "position_ids": positions, "attention_mask": masks}


def logits(model, inputs):
    """Of the tokens that are no padding."""
    out = model(**_told(model, inputs), use_cache=False).logits.float()
    return out[inputs["attention_mask"].bool()] if "attention_mask" in inputs else out


def gradients(model, inputs):
    """The loss of a training step, and the gradient of each parameter that takes part. No row of padding takes part:
    eager attention gives one that sees nothing the mean of all values, others 0."""
    model.train()
    model.zero_grad()
    labels = inputs["input_ids"]
    if "attention_mask" in inputs:
        kept = inputs["attention_mask"].bool()
        labels = labels.masked_fill(~(kept & kept.roll(1, dims=1)), -100)
    loss = model(**_told(model, inputs), labels=labels, use_cache=False).loss
    loss.backward()
    found = {key: x.grad.float().clone() for key, x in model.named_parameters() if x.grad is not None}
    model.eval()
    return loss.detach().float(), found


def same(actual, expected, error):
    """Each tensor to `error` of its largest element."""
    for x, y in zip(actual, expected, strict=True):
        assert x.isfinite().all()
        assert (x - y).abs().max() <= error * max(1e-3, y.abs().max())


def same_gradients(actual, expected, error):
    assert actual[1].keys() == expected[1].keys()
    same([actual[0], *actual[1].values()], [expected[0], *expected[1].values()], error)
