"""Small runs of `python -m tilewise.bench`, and peers made up for its tests."""

import os

from tilewise.bench import command
from tilewise.bench.cases import Case
from tilewise.bench.peers import Peer, ours

DEVICE = os.environ.get("TILEWISE_TEST_DEVICE", "cpu").partition(":")[0]
DTYPE = "bf16" if DEVICE == "cuda" else "fp32"
TINY = ["--device", DEVICE, "--hidden", "64", "--head-dim", "32", "--passes", "2", "--sample-ms", "0.5"]
SMALL = {
    "forward": ["--seqlen", "33", "64", "--tokens", "66"],
    "decode": ["--seqlen", "40", "80", "--batch", "2", "--gqa", "2"],
}


def arguments(op, *more):
    return ["--op", op, *TINY, *SMALL.get(op, SMALL["forward"]), *more]


def case_of(op, **fields):
    defaults = {"dtype": DTYPE, "head_dim": 32, "heads": 4, "heads_kv": 2, "batch": 2, "seqlen": 24}
    return Case(op, **{**defaults, **fields})


def spoiled(name, spoil):
    """A peer that computes as ours does and then spoils o in place of a clone."""
    right = ours(DEVICE)

    def bind(case, inputs):
        attend = right.bind(case, inputs)

        def attend_badly(q, k, v):
            o = attend(q, k, v).clone()
            spoil(o)
            return o

        return attend_badly

    return Peer(name, name, "made up", bind)


def run(prefix, *words):
    """Exit code of the command, with its files at a prefix."""
    return command.main([*words, "--out", str(prefix)])
