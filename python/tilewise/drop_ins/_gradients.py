"""The backward pass as a function of its own, for callers that bring o and lse: ring attention merges them over devices first."""

import torch

from .. import _native
from .._arrays import library_of
from .._options import ATTENTION, fields_of
from .._torch import place
from ..torch_autograd import is_traced
from ._arguments import round_up


@torch.no_grad()
def backward(inputs, results, gradients, options):
    """Writes gradients. inputs (q, k, v), results (grad_o, o, lse), gradients (dq, dk, dv), each a tensor or None for a new one, which is
    returned; options as of `tilewise.attention`.
    """
    q, k, v = inputs
    grad_o, o, lse = results
    written = [torch.empty_like(x) if gradient is None else gradient for x, gradient in zip(inputs, gradients)]
    fields = fields_of({name: value for name, value in options.items() if name != "num_splits"}, ATTENTION, "backward")
    library_of(q)  # registers the op, and brings torch in
    if is_traced((grad_o, q, k, v)):
        computed = torch.ops.tilewise.attention_backward(grad_o, None, q, k, v, o, lse, **fields)
        return [to.copy_(gradient) for to, gradient in zip(written, computed)]
    grad_q, grad_k, grad_v = written
    tensors = dict(q=q, k=k, v=v, o=o, lse=lse, grad_o=grad_o, grad_q=grad_q, grad_k=grad_k, grad_v=grad_v)
    _native.run(_native.BACKWARD, **tensors, **place(q), **fields)
    return written


@torch.no_grad()
def row_sums(grad_o, o, dropout_p, batch=None):
    """Sums of grad_o * o over each row, float32: (batch, heads, rows rounded up to 128), or ragged (heads, rows + 128 * batch)."""
    sums = (grad_o.float() * o.float()).sum(-1).transpose(-1, -2) * (1.0 - dropout_p)
    rows = sums.shape[-1]
    width = round_up(rows, 128) if batch is None else rows + 128 * batch
    return torch.nn.functional.pad(sums, (0, width - rows))


def backward_and_row_sums(inputs, results, gradients, options, dropout_p=0.0):
    """`backward`; returns [dq, dk, dv, row sums of grad_o * o]."""
    written = backward(inputs, results, gradients, options)
    lengths = options.get("cu_seqlens_q")
    return [*written, row_sums(*results[:2], dropout_p, None if lengths is None else lengths.shape[0] - 1)]
