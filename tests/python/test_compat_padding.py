"""flash_attn.bert_padding: what it keeps, where it puts it back, and its gradients."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch

from flash_attn import bert_padding, flash_attn_varlen_func

with torch.device(formula.DEVICE):
    MASK = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])


@pytest.fixture(autouse=True)
def seeded():
    with formula.start(29):
        yield


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("rest", [(), (4,), (2, 3)], ids=str)
def test_there_and_back(dtype, rest):
    hidden = torch.randn(3, 5, *rest or (1,), requires_grad=True)
    rows, indices, cu_seqlens, longest, used = bert_padding.unpad_input(hidden, MASK.to(dtype))
    kept = [(b, s) for b in range(3) for s in range(5) if MASK[b, s]]
    assert torch.equal(rows, torch.stack([hidden[b, s] for b, s in kept]))
    assert indices.tolist() == [5 * b + s for b, s in kept] and indices.dtype == torch.int64
    assert cu_seqlens.tolist() == [0, 3, 3, 8] and cu_seqlens.dtype == torch.int32
    assert longest == 5 and type(longest) is int
    assert used.tolist() == [3, 0, 5] and used.dtype == torch.int32
    padded = bert_padding.pad_input(rows, indices, 3, 5)
    assert torch.equal(padded, hidden * MASK.reshape(3, 5, *[1] * (hidden.dim() - 2)))
    weight = torch.randn_like(padded)
    (gradient,) = torch.autograd.grad((padded * weight).sum(), hidden)
    assert torch.equal(gradient, weight * MASK.reshape(3, 5, *[1] * (hidden.dim() - 2)))


def test_unused_rows_are_kept_but_not_counted():
    unused = torch.tensor([[0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    rows, indices, cu_seqlens, longest, used = bert_padding.unpad_input(torch.randn(3, 5, 2), MASK, unused)
    assert indices.tolist() == [0, 1, 2, 3, 5, 10, 11, 12, 13, 14]
    assert cu_seqlens.tolist() == [0, 4, 5, 10] and longest == 5 and used.tolist() == [3, 0, 5] and len(rows) == 10


def test_concatenated_sequences():
    lengths = torch.tensor([[2, 1, 0, 0, 0], [0, 0, 0, 0, 0], [3, 2, 0, 0, 0]])
    hidden = torch.randn(3, 5, 2)
    rows, indices, cu_seqlens, longest = bert_padding.unpad_input_for_concatenated_sequences(hidden, lengths)
    assert indices.tolist() == [0, 1, 2, 10, 11, 12, 13, 14] and torch.equal(rows, hidden.flatten(0, 1)[indices])
    assert cu_seqlens.tolist() == [0, 2, 3, 6, 8] and cu_seqlens.dtype == torch.int32 and longest == 3


def test_rows_by_index():
    source = torch.randn(6, 3, requires_grad=True)
    indices = torch.tensor([4, 0, 4])
    rows = bert_padding.index_first_axis(source, indices)
    assert torch.equal(rows, source[indices])
    (gradient,) = torch.autograd.grad(rows.sum(), source)
    assert gradient[4].tolist() == [2.0] * 3  # an index that is given twice gets both
    rows, rest = bert_padding.index_first_axis_residual(source, indices)
    assert torch.equal(rows, source[indices]) and torch.equal(rest, source) and not rest.requires_grad
    placed = bert_padding.index_put_first_axis(rows[:2], indices[:2], 6)
    assert torch.equal(placed[4], rows[0]) and placed[[1, 2, 3, 5]].count_nonzero() == 0
    narrow = indices.int()  # transformers takes some of cu_seqlens for indices
    assert torch.equal(bert_padding.index_first_axis(source, narrow), rows)
    assert torch.equal(bert_padding.index_put_first_axis(rows[:2], narrow[:2], 6), placed)
    assert torch.equal(bert_padding.IndexFirstAxis.apply(source, indices), rows)
    assert torch.equal(bert_padding.IndexPutFirstAxis.apply(rows[:2], indices[:2], 6), placed)
    for wrong in (lambda: bert_padding.index_first_axis(indices, indices), lambda: bert_padding.index_put_first_axis(indices, indices, 6)):
        with pytest.raises(ValueError, match="axes|axis"):
            wrong()


def test_attention_of_a_padded_batch():
    """The usual way: unpad, ragged attention, pad; each sequence as if it were alone."""
    x = torch.randn(3, 5, 2, 8)
    rows, indices, cu, longest, _ = bert_padding.unpad_input(x, MASK)
    o = bert_padding.pad_input(flash_attn_varlen_func(rows, rows, rows, cu, cu, longest, longest), indices, 3, 5)
    for n in (0, 2):
        own = x[n][MASK[n].bool()]
        expected = torch.nn.functional.scaled_dot_product_attention(*[own.transpose(0, 1)] * 3).transpose(0, 1)
        torch.testing.assert_close(o[n][MASK[n].bool()], expected)
    assert o[1].count_nonzero() == 0
