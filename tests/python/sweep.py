"""The sweep of upstream's interface: cases, attention in plain PyTorch, and the rule that accepts a result.

The rule is upstream's: a result may be off from the formula in a wide type by twice what the same formula computed by plain PyTorch in the
narrow type is off, gradients by three times, plus the rounding of numbers of that size. `SAMPLES` cases are taken evenly from the product
of all factors: each value of a factor comes up equally often, in an order of its own.
"""

import random

import compat_formula as formula
import torch

DEVICE = formula.DEVICE
ON_GPU = DEVICE != "cpu"
WIDE = torch.float32 if ON_GPU else torch.float64
HEAD_DIMS = (32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256)
HEADS = {"mha": (6, 6), "gqa": (6, 2), "mqa": (6, 1)}
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def sample(factors, count, seed):
    """`count` cases, {factor: value}, from factors {name: values}."""
    order = random.Random(seed)
    columns = []
    for values in factors.values():
        values = list(values)
        column = [values[n % len(values)] for n in range(count)]
        order.shuffle(column)
        columns.append(column)
    return [dict(zip(factors, row)) | {"seed": seed * 100_000 + n} for n, row in enumerate(zip(*columns))]


def name_of(case):
    return "-".join(f"{value}".replace(" ", "") for value in case.values())


def window_of(mask, seqlen_k, order):
    """window_size and causal of a kind of mask."""
    left, right = (order.randrange(max(seqlen_k, 1)) for _ in range(2))
    return {
        "full": ((-1, -1), False),
        "causal": ((-1, -1), True),
        "local": ((left, right), False),
        "left": ((left, -1), False),
        "causal local": ((left, 0), True),
    }[mask]


def scores_of(score, heads, batch):
    """q's factor and the options of the formula. A softcap only shows where scores come near it."""
    if score.startswith("softcap"):
        cap = float(score[7:])
        return cap / 4, {"softcap": cap}
    if score == "alibi":
        return 1.0, {"slopes": torch.rand(batch, heads) * 0.3}
    return 1.0, {}


def plain(q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, slopes=None, keep=None):
    """o of q (b, sq, h, d), k, v (b, sk, hk, d), each step in the type of q, as one writes attention in PyTorch."""
    groups = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k * q.shape[-1] ** -0.5)
    if softcap:
        s = torch.tanh(s / softcap) * softcap
    if slopes is not None:
        rows, keys = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
        s = s - (slopes[..., None, None] * (rows + k.shape[1] - q.shape[1] - keys).abs()).to(s.dtype)
    hidden = ~formula.visible(q.shape[1], k.shape[1], causal=causal, window=window)
    empty = hidden.all(-1, keepdim=True)
    p = s.masked_fill(hidden & ~empty, float("-inf")).softmax(-1) if k.shape[1] else s
    p = p.masked_fill(empty, 0.0)
    return torch.einsum("bhij,bjhd->bihd", p if keep is None else p * keep.to(p.dtype), v)


def packed_plain(tensors, rows, keys, slopes=None, keep=None, **options):
    """`plain` of a ragged batch q, k, v: rows and keys are the (begin, end) of each sequence; other rows of o are 0."""
    q, k, v = tensors
    o = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for n, ((a, b), (c, d)) in enumerate(zip(rows, keys, strict=True)):
        options["slopes"] = None if slopes is None else slopes[n : n + 1]
        options["keep"] = None if keep is None else keep[n]
        o = o.index_add(0, torch.arange(a, b), plain(q[a:b][None], k[c:d][None], v[c:d][None], **options)[0])
    return o


def leaves(tensors, dtype):
    return [x.detach().to(dtype).requires_grad_() for x in tensors]


def worst(x, y):
    return (x.to(WIDE) - y.to(WIDE)).abs().max().item() if x.numel() else 0.0


def rounding(exact, dtype):
    """What numbers of this size lose when a third is added and taken away again."""
    x = exact.detach().to(dtype)
    return worst(x + 0.3 - 0.3, x)


def broken(name, found, exact, narrow, factor):
    """A line about a result that the rule does not accept, or None."""
    dtype = found.dtype
    allowed = factor * worst(narrow, exact) + 2 * rounding(exact, dtype)
    if not found.isfinite().all():
        return f"{name}: not finite"
    error = worst(found, exact)
    return None if error <= allowed else f"{name}: off by {error:.3e}; {allowed:.3e} is allowed"


def judge(names, own, wide, narrow, gradients=True):
    """Faults of o and of the gradients of the inputs, which have names: (inputs, o) as found, in a wide type and in the narrow one."""
    (_, o), (_, exact), (_, rough) = own, wide, narrow
    faults = [broken("o", o, exact, rough, 2)]
    if gradients:
        grad_o = torch.randn(o.shape).to(o.dtype)
        triples = zip(*(torch.autograd.grad(x, inputs, grad_o.to(x.dtype)) for inputs, x in (own, wide, narrow)))
        faults += [broken(f"gradient of {name}", *triple, 3) for name, triple in zip(names, triples, strict=True)]
    return [fault for fault in faults if fault]
