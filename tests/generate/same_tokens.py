#!/usr/bin/env python3
"""The language model says the same with every attention: (generate program, model file) -> "N passed, N failed".

Greedy decoding is run on three prompts with the product's kernels and with the double-precision oracle, on a dense and on a
paged cache, and on a GPU where there is one (a line says if there is none, and nothing is counted). Every token must agree: an attention that is off by more than rounding derails within a few words.
"""

import subprocess
import sys

TOKENS = 40
TIMEOUT_SECONDS = 240
ORACLE_KERNEL = "cpu_reference_forward"

# The last one is longer than the piece of a prompt that is fed at once, so its later pieces attend to a filled cache.
PROMPTS = {
    "question": "What is the capital of France?",
    "instruction": "Write two sentences about the sea, then count: 1, 2, 3.",
    "long": "Summarize this list of errands in one sentence. "
    + " ".join(f"On day {day} buy {day + 2} apples and post {day} letters." for day in range(1, 16)),
}

REFERENCE = ("--attention", "oracle")
VARIANTS = {
    "tilewise, dense": ("--attention", "tilewise"),
    "tilewise, paged": ("--attention", "tilewise", "--paged"),
    "tilewise, pages of 7": ("--attention", "tilewise", "--paged", "--page-size", "7"),
    "tilewise, one thread": ("--attention", "tilewise", "--threads", "1"),
    "oracle, paged": ("--attention", "oracle", "--paged"),
}
GPU_VARIANTS = {
    "GPU, dense": ("--device", "cuda"),
    "GPU, paged": ("--device", "cuda", "--paged"),
    "GPU, pages of 7": ("--device", "cuda", "--paged", "--page-size", "7"),
}


class Failure(Exception):
    pass


def generate(program, model, prompt, options):
    command = [program, "--model", model, "--prompt", prompt, "--greedy", "--tokens", str(TOKENS), *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    if result.returncode != 0:
        raise Failure(f"exit code {result.returncode}: {result.stderr.strip()}")
    if (f"attention by {ORACLE_KERNEL}," in result.stderr) != ("oracle" in options):
        raise Failure(f"ran on the wrong kernel, so that the comparison says nothing: {result.stderr.strip()}")
    return result.stdout


def reason_against_gpu(program, model):
    """Empty where the library opens a GPU."""
    command = [program, "--model", model, "--prompt", "Hi", "--greedy", "--tokens", "1", "--device", "cuda"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    return result.stderr.strip() if "cannot be opened" in result.stderr else ""


def token_ids(program, model, prompt, options):
    ids = [int(word) for word in generate(program, model, prompt, (*options, "--print-ids")).split()]
    if not ids:
        raise Failure("no token came out")
    return ids


def first_difference(ids, expected):
    pairs = zip(ids, expected)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(expected)))


def check_text(program, model):
    text = generate(program, model, PROMPTS["question"], ())
    if "Paris" not in text:
        raise Failure(f"the answer does not name Paris: {text.strip()!r}")


def check_variant(program, model, prompt, options, expected):
    ids = token_ids(program, model, prompt, options)
    if ids != expected:
        raise Failure(f"differs from token {first_difference(ids, expected)} on\n    {ids}\n    {expected}")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: same_tokens.py GENERATE MODEL")
    program, model = sys.argv[1:]
    passed = failed = 0

    def run(name, check, *arguments):
        nonlocal passed, failed
        try:
            result = check(*arguments)
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"FAILED  {name}: {failure}", flush=True)
            failed += 1
            return None
        print(f"passed  {name}", flush=True)
        passed += 1
        return result

    run("the answer makes sense", check_text, program, model)
    variants, reason = dict(VARIANTS), reason_against_gpu(program, model)
    if reason:
        print(f"not run  the variants on a GPU ({len(PROMPTS) * len(GPU_VARIANTS)} cases): {reason}", flush=True)
    else:
        variants.update(GPU_VARIANTS)
    for prompt_name, prompt in PROMPTS.items():
        expected = run(f"{prompt_name}: oracle, dense", token_ids, program, model, prompt, REFERENCE)
        for variant_name, options in variants.items():
            run(f"{prompt_name}: {variant_name}", check_variant, program, model, prompt, options, expected)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
