#!/usr/bin/env python3
"""Time of a call of the Python package on the host, in microseconds: tiny tensors, minimum of 9 rounds. torch's own beside it.

usage: bench/torch_overhead.py [--device cuda] [--calls 400]

On a GPU the queue is emptied between rounds, so that a call never waits for a full one.
"""

import argparse
import time

import tilewise
import torch
import torch.nn.functional as F


def microseconds(function, calls, wait):
    best = float("inf")
    for _ in range(9):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best * 1e6


def cases(device):
    q, k, v = (torch.randn(1, 16, 2, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    leaf, grad = q.clone().requires_grad_(), torch.ones_like(q)
    out = torch.empty_like(q)
    by_heads = [x.transpose(1, 2) for x in (q, k, v)]
    return {
        "torch.add(out=)": lambda: torch.add(q, k, out=out),
        "F.scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(*by_heads),
        "attention": lambda: tilewise.attention(q, k, v),
        "attention, causal and scale": lambda: tilewise.attention(q, k, v, causal=True, scale=0.3),
        "torch.ops.tilewise.attention": lambda: torch.ops.tilewise.attention.default(q, k, v),
        "attention, recording": lambda: tilewise.attention(leaf, k, v),
        "attention and its backward": lambda: torch.autograd.grad(tilewise.attention(leaf, k, v), leaf, grad),
    }


def main():
    parser = argparse.ArgumentParser(description="Time of a call on the host.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, default=400)
    options = parser.parse_args()
    wait = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
    print(f"torch {torch.__version__}, {options.device}")
    for name, function in cases(options.device).items():
        function()
        print(f"{name:32} {microseconds(function, options.calls, wait):8.2f} us", flush=True)


if __name__ == "__main__":
    main()
