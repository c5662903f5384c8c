"""Public reports (docs/user-reports.md) of softcap, determinism, dropout and precision, through Python."""

import compat_formula as formula
import pytest
import tilewise
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from report_inputs import DEVICE, agree, as_formula, full, lengths, randn, seeded  # noqa: F401

import flash_attn_interface
from flash_attn import flash_attn_func, flash_attn_qkvpacked_func
from flash_attn.flash_attn_interface import _flash_attn_backward, _flash_attn_forward

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.mark.parametrize("function", [flash_attn_func, flash_attn_interface.flash_attn_func], ids=["2", "3"])
def test_R109_backward_with_a_softcap(function):
    shape = full((2, 1024, 32, 128), (1, 130, 2, 128))
    inputs = [randn(*shape, dtype=torch.bfloat16) for _ in range(3)]
    as_formula(lambda *x: function(*x, causal=True, softcap=10.0), inputs, causal=True, softcap=10.0)


def test_R111_softcap_is_cap_times_tanh():
    """With one key seen by each row, lse is the score itself."""
    q = torch.linspace(-40, 40, 41)[None, :, None, None]
    one = torch.ones(1, 1, 1, 1)
    for cap in (0.5, 8.0, 30.0):
        for module in (__import__("flash_attn"), flash_attn_interface):
            lse = module.flash_attn_func(q, one, one, softmax_scale=1.0, softcap=cap, return_attn_probs=True)[1]
            agree(lse[0, 0], cap * torch.tanh(q.flatten().double() / cap), 1e-5)


@pytest.mark.parametrize("packed", [False, True])
def test_R114_deterministic_gradients_are_bitwise_equal_over_30_repeats(packed):
    seqlen = full(1024, 200)
    if packed:
        qkv = randn(2, seqlen, 3, 4, 64, dtype=torch.bfloat16, grad=True)
        call = lambda x: flash_attn_interface.flash_attn_qkvpacked_func(x, causal=True, deterministic=True)  # noqa: E731
        inputs = [qkv]
    else:
        inputs = [randn(2, seqlen, heads, 64, dtype=torch.bfloat16, grad=True) for heads in (4, 2, 2)]
        call = lambda *x: flash_attn_func(*x, causal=True, deterministic=True)  # noqa: E731
    grad_o = randn(2, seqlen, 4, 64, dtype=torch.bfloat16)
    first = torch.autograd.grad(call(*inputs), inputs, grad_o)
    for _ in range(full(30, 5)):
        assert all(torch.equal(x, y) for x, y in zip(torch.autograd.grad(call(*inputs), inputs, grad_o), first))


@pytest.mark.parametrize("module", ["flash_attn", "flash_attn_interface"])
def test_R115_the_deterministic_flag_reaches_the_backward(module, monkeypatch):
    seen = []
    run = tilewise._native.run

    def record(op, **fields):
        if op == tilewise._native.BACKWARD:
            seen.append(fields.get("deterministic"))
        return run(op, **fields)

    monkeypatch.setattr(tilewise._native, "run", record)
    inputs = [randn(1, 9, 2, 16, grad=True) for _ in range(3)]
    for flag in (False, True):
        __import__(module).flash_attn_func(*inputs, deterministic=flag).sum().backward()
    assert [bool(x) for x in seen] == [False, True]


@pytest.mark.parametrize("heads_kv", [8, 2])
def test_R117_a_row_has_the_same_bits_alone_and_in_a_batch(heads_kv):
    sizes = (700, 33, 1, 460, 128)
    k, v = (randn(5, 700, heads_kv, 64, dtype=torch.bfloat16) for _ in range(2))
    q = randn(5, 1, 8, 64, dtype=torch.bfloat16)
    options = {"batch_invariant": True, "causal": True}
    together = tilewise.decode(q, k, v, cache_seqlens=lengths(*sizes), **options)
    for splits in (0, 1, 4):
        for n, size in enumerate(sizes):
            own = slice(n, n + 1)
            alone = tilewise.decode(q[own], k[own], v[own], cache_seqlens=lengths(size), num_splits=splits, **options)
            assert torch.equal(alone, together[own])


def test_R120_every_element_of_an_output_is_written():
    q, k, v = (randn(1, 512, 1, 128, dtype=torch.bfloat16) for _ in range(3))
    out = torch.full_like(q, float("nan"))
    tilewise.attention(q, k, v, out=out)
    agree(out, formula.attention(q, k, v)[0])
    grads = [torch.full_like(q, float("nan")) for _ in range(3)]
    o, lse, _, _ = _flash_attn_forward(q, k, v, 0.0, 0.1, False, -1, -1, 0.0, None, False)
    _flash_attn_backward(torch.ones_like(o), q, k, v, o, lse, *grads, 0.0, 0.1, False, -1, -1, 0.0, None, False)
    assert all(bool(x.isfinite().all()) for x in grads)


def test_R143_one_seed_gives_one_dropout_mask_which_can_be_exported():
    """The mask is another one than torch's own; it depends on the seed alone, whatever the device, and is shown."""
    q, k, v = (randn(2, 64, 2, 16) for _ in range(3))
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(flash_attn_func(q, k, v, dropout_p=0.2, return_attn_probs=True))
    (o, _, shown), (again, *_) = results
    assert torch.equal(o, again)
    shown = shown[:, :, :64, :64]
    keep = (~torch.signbit(shown)).double() / 0.8
    agree(o, formula.attention(q, k, v, keep=keep)[0])
    cpu = tilewise.attention(*(x.cpu() for x in (q, k, v)), dropout_p=0.2, dropout_seed=7)
    agree(tilewise.attention(q, k, v, dropout_p=0.2, dropout_seed=7).cpu(), cpu)


def test_R144_forward_and_backward_drop_the_same_elements():
    """o is linear in v: with grad_o = 1 its gradient sums what the forward kept."""
    q, k, v = (randn(2, 130, 2, 64, grad=True) for _ in range(3))
    o = flash_attn_func(q, k, v, dropout_p=0.17)
    (grad_v,) = torch.autograd.grad(o, v, torch.ones_like(o))
    torch.testing.assert_close((grad_v.double() * v).sum((1, 3)), o.double().sum((1, 3)), rtol=1e-4, atol=1e-3)
    with pytest.raises(TypeError, match="dropout_p"):
        flash_attn_interface.flash_attn_func(q, k, v, dropout_p=0.17)


@pytest.mark.parametrize("function", [flash_attn_func, flash_attn_interface.flash_attn_func], ids=["2", "3"])
def test_R145_fp32_is_served_and_a_mixture_of_types_is_named(function):
    q, k, v = (randn(1, 20, 2, 32) for _ in range(3))
    agree(function(q, k, v), formula.attention(q, k, v)[0])
    with pytest.raises((ValueError, TypeError), match="v.*(bfloat16|bf16)"):
        function(q, k, v.bfloat16())
    with torch.autocast(DEVICE, torch.bfloat16):
        o = function(q, k, v.bfloat16())
    assert o.dtype == torch.bfloat16
    agree(o, formula.attention(q, k, v)[0])


def test_R147_a_refusal_names_the_argument_and_what_is_allowed():
    q = randn(4, 10, 16)
    with pytest.raises(ValueError, match=r"q.*cu_seqlens_q"):
        tilewise.attention(q, q, q)
    wide = randn(1, 4, 1, 300)
    with pytest.raises((ValueError, NotImplementedError), match="head_dim.*300|300.*256"):
        tilewise.attention(wide, wide, wide)


def test_R156_softcap_of_fp16_products_past_the_range_of_fp16():
    q, k, v = (randn(1, 40, 2, 128, dtype=torch.float16) for _ in range(3))
    q.mul_(60)
    k.mul_(60)
    assert (q.double() @ k.double().transpose(-1, -2)).abs().max() > 65504
    o = flash_attn_qkvpacked_func(torch.stack((q, k, v), 2), softcap=50.0, causal=True)
    agree(o, formula.attention(q, k, v, softcap=50.0, causal=True)[0])
