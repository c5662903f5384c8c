"""Gradients of torch tensors: autograd.Functions outside of the ops, for q, k, v, bias and sink from o and lse, and for merge.

Traced, a Function calls an op of `torch_ops`, which is what a graph then holds; else the function behind the op, without the dispatcher.
A second derivative is refused: the backward is a Function too wherever one could be asked for.
"""

import torch

from . import torch_ops

_ops = torch.ops.tilewise
_compiles = torch.compiler.is_compiling
_num_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_jit_state = torch._C._get_tracing_state
PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
QUESTIONS = (_num_modes, _transform, _jit_state)  # of what traces, besides torch.compile


def is_traced(tensors):
    """torch.compile, a dispatch mode, a torch.func transform, torch.jit.trace, or a subclass with a dispatch of its own."""
    if _compiles() or _num_modes() > 0 or _transform() is not None or _jit_state() is not None:
        return True
    for x in tensors:
        if type(x) is not torch.Tensor and isinstance(x, torch.Tensor) and type(x) not in PLAIN_TYPES:
            return True
    return False


def _forward(names, options, q, k, v, *tensors):
    fields = dict(options)
    fields.update(zip(names, tensors))
    if not is_traced((q, k, v, *tensors)):
        return torch_ops.attention(q, k, v, **fields)
    op = _ops.attention_dropout if "dropout_state" in fields else _ops.attention
    return op.default(q, k, v, **fields)


def _keep(ctx, inputs, output):
    ctx.names, ctx.options = inputs[:2]
    ctx.save_for_backward(*output, *inputs[2:])
    ctx.set_materialize_grads(False)


class Attention(torch.autograd.Function):
    """(names, options, q, k, v, *tensors) -> (o, lse); `names` are the fields of `tensors`, `options` pairs of a field and a number."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _forward(*inputs)
        _keep(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, grad_o, grad_lse):
        count = 5 + len(ctx.names)
        if grad_o is None and grad_lse is None:
            return (None,) * count
        o, lse, q, k, v, *tensors = ctx.saved_tensors
        if grad_o is None:
            grad_o = torch.zeros_like(o)
        needed = {name: need for name, need in zip(ctx.names, ctx.needs_input_grad[5:]) if need}
        options = tuple(x for x in ctx.options if x[0] not in ("num_splits", "kernel_name"))  # they are the forward's own
        options += tuple(("grad_" + name, True) for name in ("bias", "sink") if name in needed)
        arguments = (ctx.names, options, grad_o, grad_lse, q, k, v, o, lse, *tensors)
        # Only a backward that is itself recorded can be differentiated, and only that has to pay for saying no.
        run = _backward if not torch.is_grad_enabled() else AttentionBackward.apply
        grads = list(run(*arguments))
        gradients = [grad if need else None for grad, need in zip(grads[:3], ctx.needs_input_grad[2:5])]
        others = dict(zip([name for name in ("bias", "sink") if name in needed], grads[3:]))
        return None, None, *gradients, *[others.get(name) for name in ctx.names]

    @staticmethod
    def vmap(info, in_dims, *inputs):
        torch_ops.refuse_vmap()


class TransformedAttention(Attention):
    """The form that torch.func transforms want; outside of them torch takes 50 us more for it."""

    @staticmethod
    def forward(*inputs):
        return _forward(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _keep(ctx, inputs, output)


def _backward(names, options, grad_o, grad_lse, *saved):
    fields = dict(options)
    fields.update(zip(names, saved[5:]))
    if not is_traced((grad_o, *saved)):
        return tuple(torch_ops.attention_backward(grad_o, grad_lse, *saved[:5], **fields))
    op = _ops.attention_dropout_backward if "dropout_state" in fields else _ops.attention_backward
    return tuple(op.default(grad_o, grad_lse, *saved[:5], **fields))


class AttentionBackward(torch.autograd.Function):
    """The backward as a node of a graph (create_graph=True, torch.func.grad), which refuses to be differentiated."""

    @staticmethod
    def forward(names, options, grad_o, grad_lse, *saved):
        return _backward(names, options, grad_o, grad_lse, *saved)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(
            "attention: second derivatives are not computed; a gradient penalty or a Hessian needs attention by plain torch operations"
        )

    @staticmethod
    def vmap(info, in_dims, *inputs):
        torch_ops.refuse_vmap()


class Merge(torch.autograd.Function):
    """(options, partial_o, partial_lse) -> (o, lse)."""

    @staticmethod
    def forward(options, partial_o, partial_lse):
        if not is_traced((partial_o, partial_lse)):
            return torch_ops.merge(partial_o, partial_lse, **dict(options))
        return _ops.merge.default(partial_o, partial_lse, **dict(options))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[1:], *output)

    @staticmethod
    def backward(ctx, grad_o, grad_lse):
        partial_o, partial_lse, o, lse = ctx.saved_tensors
        is_empty = partial_lse == -torch.inf
        weight = torch.where(is_empty, 0.0, (partial_lse - lse).exp())
        by_row = weight.transpose(-1, -2).unsqueeze(-1)
        grad_o = grad_o.to(weight.dtype)
        # A part without keys may hold anything.
        lead = torch.where(by_row == 0, 0.0, partial_o.to(weight.dtype) - o.to(weight.dtype))
        toward = (lead * grad_o).sum(-1).transpose(-1, -2) + torch.where(lse == -torch.inf, 0.0, grad_lse)
        return None, (by_row * grad_o).to(partial_o.dtype), (weight * toward).to(partial_lse.dtype)

    @staticmethod
    def vmap(info, in_dims, *inputs):
        torch_ops.refuse_vmap()
