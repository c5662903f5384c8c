#!/usr/bin/env python3
"""Text by SmolLM2-135M-Instruct (30 layers, 9 heads of queries to 3 of keys): a batch of two prompts, with Tilewise and
with eager attention.

    pip install transformers gguf accelerate && tools/fetch_model.sh
    python examples/python/generate_text.py --tokens 60
"""

import sys
from pathlib import Path

import tilewise.compat  # noqa: F401  before transformers, for --attention flash_attention_2
import tilewise.integrations.transformers
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from checks import Checks, arguments, say

MODEL = Path(__file__).resolve().parents[2] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = ("Why is the sky blue?", "Name three animals that live in the sea, and say in one sentence what each of them eats.")


def load(file: Path):
    """The model in float32, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, padding_side="left")
    if tokenizer.pad_token is None:  # some versions of Transformers do not find it in the file
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    return model.eval(), tokenizer


def encode(tokenizer, device):
    """The prompts as a batch, padded on the left."""
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    texts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
    return tokenizer(texts, padding=True, return_tensors="pt").to(device)


@torch.inference_mode()
def run(model, batch, num_tokens, ids=None):
    """The most likely tokens after the batch, one by one with a cache; and the logits of the whole of `ids` (or of what was
    generated), in one pass."""
    generated = model.generate(**batch, max_new_tokens=num_tokens, do_sample=False)
    ids = generated if ids is None else ids
    padding = torch.nn.functional.pad(batch["attention_mask"], (0, ids.shape[1] - batch["attention_mask"].shape[1]), value=1)
    return generated, model(input_ids=ids, attention_mask=padding).logits[padding.bool()]


def main() -> None:
    parser = arguments("Text by SmolLM2-135M-Instruct, with Tilewise and with eager attention.")
    parser.add_argument("--model", type=Path, default=MODEL, help="GGUF file")
    parser.add_argument("--tokens", type=int, default=24, help="how many to generate")
    options = parser.parse_args()
    if not options.model.is_file():
        sys.exit(f"generate_text: {options.model} is not there; tools/fetch_model.sh fetches it")

    tilewise.integrations.transformers.register()
    say(f"loading {options.model.name}")
    model, tokenizer = load(options.model)
    model.to(options.device)
    batch = encode(tokenizer, options.device)

    say(f"{options.tokens} tokens with eager attention on {options.device}")
    model.set_attn_implementation("eager")
    expected_ids, expected_logits = run(model, batch, options.tokens)
    say(f"{options.tokens} tokens with {options.attention}")
    model.set_attn_implementation(options.attention)
    ids, logits = run(model, batch, options.tokens, expected_ids)

    checks = Checks()
    checks.equal("attention in use", model.config._attn_implementation, options.attention)
    start = batch["input_ids"].shape[1]
    for prompt, own, expected in zip(PROMPTS, ids, expected_ids):
        say(f"> {prompt}")
        texts = [tokenizer.decode(x[start:], skip_special_tokens=True) for x in (own, expected)]
        checks.equal("text", *texts)
    checks.close("logits", logits, expected_logits, 1e-4)
    checks.finish()


if __name__ == "__main__":
    main()
