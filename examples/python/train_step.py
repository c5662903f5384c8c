#!/usr/bin/env python3
"""A training step of a small Llama with random weights: attention by Tilewise, as it is, with gradient checkpointing, under
torch.compile, and both; compared with the same step by eager attention.

    python examples/python/train_step.py --attention flash_attention_2     # Tilewise in flash_attn's place: needs a GPU
    python examples/python/train_step.py                                   # "tilewise", on the CPU too
"""

import tilewise.compat  # noqa: F401  before transformers: from here on flash_attn is Tilewise
import tilewise.integrations.transformers
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from checks import Checks, arguments, say

LENGTHS = (48, 31)  # tokens of the sequences of the batch; the second is padded
RATE = 0.1


def build(attention: str, layers: int, device: str):
    """The same weights each time; float32, so that a difference is a mistake and no rounding."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config).to(device).train()


def checkpoint(model) -> None:
    """Activations are computed again in the backward. Transformers changed the method's name."""
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()


def make_batch(device: str):
    torch.manual_seed(2)
    ids = torch.randint(512, (len(LENGTHS), max(LENGTHS)))
    kept = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    batch = {"input_ids": ids, "attention_mask": kept.long(), "labels": ids.masked_fill(~kept, -100)}
    return {name: x.to(device) for name, x in batch.items()}


def step(model, call, batch):
    """One step of gradient descent: the loss, all gradients in one row, and the loss after the step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loss = call(**batch, use_cache=False).loss
    loss.backward()
    gradients = torch.cat([x.grad.flatten() for x in model.parameters()])
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        after = call(**batch, use_cache=False).loss
    return loss.detach(), gradients, after


def main() -> None:
    parser = arguments("A training step of a small Llama, by Tilewise and by eager attention.")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--backend", default="inductor", help="torch.compile's")
    options = parser.parse_args()

    tilewise.integrations.transformers.register()
    batch = make_batch(options.device)
    say(f"eager attention on {options.device}")
    model = build("eager", options.layers, options.device)
    loss, gradients, after = step(model, model, batch)
    say(f"loss {loss:.4f}, after the step {after:.4f}")

    checks = Checks()
    for checkpoints in (False, True):
        for compiles in (False, True):
            marks = [name for name, on in (("checkpointing", checkpoints), ("torch.compile", compiles)) if on]
            say(" + ".join([options.attention, *marks]))
            model = build(options.attention, options.layers, options.device)
            if checkpoints:
                checkpoint(model)
            call = torch.compile(model, backend=options.backend) if compiles else model
            own = step(model, call, batch)
            checks.close("  loss", own[0], loss, 1e-5)
            checks.close("  gradients", own[1], gradients, 1e-4)
            checks.close("  loss after the step", own[2], after, 1e-5)
    checks.finish()


if __name__ == "__main__":
    main()
