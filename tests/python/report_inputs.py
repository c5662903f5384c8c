"""What the tests of docs/user-reports.md share: attention in plain torch, layouts of other libraries, and memory that only exists where it
is touched.

Sizes are those of the reports where a CPU does them in a moment; `full(real, reduced)` picks the real ones on a GPU.
"""

import mmap

import compat_formula as formula
import pytest
import torch

DEVICE = formula.DEVICE
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: TILEWISE_TEST_DEVICE=cuda")
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="lengths on a GPU are not read before the launch, so they cannot be refused")


def full(real, reduced):
    return real if DEVICE != "cpu" else reduced


@pytest.fixture
def seeded():
    with formula.start(31):
        yield


def sparse(*shape, dtype=torch.bfloat16):
    """Zeros that take memory only where they are written (on a GPU: all of it)."""
    if DEVICE != "cpu":
        return torch.zeros(shape, dtype=dtype)
    size = torch.Size(shape).numel() * dtype.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000))
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def lengths(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def randn(*shape, dtype=torch.float32, grad=False):
    return torch.randn(shape, dtype=dtype).requires_grad_(grad)


def tolerance(dtype):
    return {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]


def agree(actual, expected, error=None):
    """Element by element, and finite where `expected` is."""
    error = tolerance(actual.dtype) if error is None else error
    torch.testing.assert_close(actual.double(), expected.double(), rtol=error, atol=error)


def as_formula(call, inputs, error=None, grad_o=None, gradients=True, **options):
    """o of `call(*inputs)`, and the gradients of inputs, against the formula in float64; returns o and the gradients."""
    inputs = [x.detach().requires_grad_(gradients) for x in inputs]
    o = call(*inputs)
    wide = [x.detach().double().requires_grad_(gradients) for x in inputs]
    expected = formula.attention(*wide, **options)[0]
    agree(o, expected, error)
    if not gradients:
        return o, ()
    grad_o = torch.randn(o.shape).to(o.dtype) if grad_o is None else grad_o
    found = torch.autograd.grad(o, inputs, grad_o)
    for actual, wanted in zip(found, torch.autograd.grad(expected, wide, grad_o.double()), strict=True):
        agree(actual, wanted, 4 * (tolerance(actual.dtype) if error is None else error))
    return o, found


def parts(x, cu):
    """The sequences of a ragged tensor."""
    return [x[a:b] for a, b in zip(cu[:-1].tolist(), cu[1:].tolist())]


def ragged_formula(q, k, v, cu_q, cu_k, **options):
    """o of the formula, sequence by sequence."""
    rows = zip(parts(q, cu_q), parts(k, cu_k), parts(v, cu_k), strict=True)
    return torch.cat([formula.attention(*(x[None] for x in row), **options)[0][0] for row in rows])


def is_finite(tensors):
    return all(bool(x.isfinite().all()) for x in tensors)
