"""torch.ops.flash_attn.* and torch.ops.flash_attn_3.*: their names and schemas, eager and traced, beside the functions that they stand for."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from compat_formula import close

import flash_attn_3._C  # noqa: F401  (registers the operators)
import flash_attn_interface
from flash_attn import flash_attn_interface as private

TWO, THREE = torch.ops.flash_attn, torch.ops.flash_attn_3
MASK = (0.0, 0.25, True, -1, -1, 0.0, None)


@pytest.fixture(autouse=True)
def seeded():
    with formula.start(29):
        yield


def case(ragged=False):
    """Inputs, a gradient of o, lengths, and what the formula makes of them, causal."""
    leaves = formula.tensors(batch=1 if ragged else 2)
    o, lse, _ = formula.attention(*leaves, causal=True, scale=0.25)
    grad_o = torch.randn(o.shape)
    gradients = torch.autograd.grad(o, leaves, grad_o.double())
    found = [x.detach() for x in leaves], grad_o, (o.detach(), lse.detach()), gradients
    if not ragged:
        return *found, ()
    inputs, grad_o, results, gradients = ([x[0] for x in group] if group is not grad_o else group[0] for group in found)
    lengths = torch.tensor([0, 13], dtype=torch.int32), torch.tensor([0, 29], dtype=torch.int32), 13, 29
    return inputs, grad_o, results, gradients, lengths


def close_all(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        close(one, other)


@pytest.mark.parametrize(
    "namespace, names",
    [
        (TWO, "_flash_attn_forward _flash_attn_backward _flash_attn_varlen_forward _flash_attn_varlen_backward"),
        (THREE, "_flash_attn_forward _flash_attn_backward fwd bwd fwd_combine get_scheduler_metadata"),
    ],
)
def test_names(namespace, names):
    assert all(hasattr(namespace, name) for name in names.split())


@pytest.mark.parametrize("name", ["forward", "backward", "varlen_forward", "varlen_backward"])
def test_schemas_have_the_arguments_of_the_functions(name):
    function, operator = getattr(private, f"_flash_attn_{name}"), getattr(TWO, f"_flash_attn_{name}")
    code = function.__code__
    assert [x.name for x in operator.default._schema.arguments] == list(code.co_varnames[: code.co_argcount])
    written = {x.name for x in operator.default._schema.arguments if x.alias_info and x.alias_info.is_write}
    assert written == ({"dq", "dk", "dv"} if "backward" in name else set())


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_schemas_of_the_third_generation(name):
    function, operator = getattr(flash_attn_interface, f"_flash_attn_{name}"), getattr(THREE, f"_flash_attn_{name}")
    code, defaults = function.__code__, function.__defaults__
    arguments = operator.default._schema.arguments
    assert [x.name for x in arguments] == list(code.co_varnames[: code.co_argcount])
    assert tuple(x.default_value for x in arguments[-len(defaults) :]) == defaults


def test_what_xformers_asks_of_the_forward():
    asked = (
        "flash_attn_3::fwd(Tensor q, Tensor k, Tensor v, Tensor(k_new!)? k_new=None, Tensor(v_new!)? v_new=None, Tensor? q_v=None, "
        "Tensor(out!)? out=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? cu_seqlens_k_new=None, "
        "Tensor? seqused_q=None, Tensor? seqused_k=None, int? max_seqlen_q=None, int? max_seqlen_k=None, Tensor? page_table=None, "
        "Tensor? kv_batch_idx=None, Tensor? leftpad_k=None, Tensor? rotary_cos=None, Tensor? rotary_sin=None, "
        "Tensor? seqlens_rotary=None, Tensor? q_descale=None, Tensor? k_descale=None, Tensor? v_descale=None, "
        "float? softmax_scale=None, bool is_causal=False, int window_size_left=-1, int window_size_right=-1, int attention_chunk=0, "
        "float softcap=0., bool is_rotary_interleaved=False, Tensor? scheduler_metadata=None, int num_splits=0, bool? pack_gqa=None, "
        "int sm_margin=0) -> (Tensor(out!), Tensor, Tensor, Tensor)"
    )
    assert THREE.fwd.default._schema.is_backward_compatible_with(torch._C.parse_schema(asked))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_second_generation(ragged, how):
    inputs, grad_o, results, gradients, lengths = case(ragged)
    name = "_flash_attn_varlen_" if ragged else "_flash_attn_"

    def both(q, k, v, grad_o):
        o, lse, s_dmask, state = getattr(TWO, name + "forward")(q, k, v, *lengths, *MASK, False)
        written = [torch.empty_like(x) for x in (q, k, v)]
        sums = getattr(TWO, name + "backward")(grad_o, q, k, v, o, lse, *written, *lengths, *MASK, True, rng_state=state)
        return o, lse, sums, s_dmask, *written

    call = both if how == "eager" else torch.compile(both, fullgraph=True, backend="aot_eager")
    o, lse, sums, s_dmask, *written = call(*inputs, grad_o)
    close_all((o, lse, *written), (*results, *gradients))
    assert sums.shape == ((6, 13 + 128) if ragged else (2, 6, 128)) and s_dmask.shape == (0,)


def test_checks_of_torch():
    """Fakes, aliases and mutations are as the schemas say."""
    inputs, grad_o, _, _, _ = case()
    flat, flat_grad, _, _, lengths = case(True)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(TWO._flash_attn_forward.default, (*inputs, *MASK, False), test_utils=tests)
    torch.library.opcheck(TWO._flash_attn_varlen_forward.default, (*flat, *lengths, *MASK), test_utils=tests)
    torch.library.opcheck(THREE._flash_attn_forward.default, tuple(inputs), {"causal": True}, test_utils=tests)
    for x, grad, operator, more in (
        (inputs, grad_o, TWO._flash_attn_backward, ()),
        (flat, flat_grad, TWO._flash_attn_varlen_backward, lengths),
    ):
        o, lse = (TWO._flash_attn_varlen_forward if more else TWO._flash_attn_forward)(*x, *more, *MASK, False)[:2]
        arguments = (grad, *x, o, lse, *(torch.empty_like(y) for y in x), *more, *MASK, True)
        torch.library.opcheck(operator.default, arguments, test_utils=tests)


def test_probabilities_with_dropout_have_the_shape_that_is_traced():
    inputs = case()[0]
    real = TWO._flash_attn_forward(*inputs, 0.3, *MASK[1:], True)
    with torch._subclasses.FakeTensorMode() as mode:
        traced = TWO._flash_attn_forward(*(mode.from_tensor(x) for x in inputs), 0.3, *MASK[1:], True)
    assert [(x.shape, x.dtype, x.device) for x in real] == [(x.shape, x.dtype, x.device) for x in traced]


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_third_generation_records_gradients(how):
    inputs, grad_o, results, gradients, _ = case()
    leaves = [x.requires_grad_() for x in inputs]

    def call(*x):
        return THREE._flash_attn_forward(*x, softmax_scale=0.25, causal=True)[:2]

    run = call if how == "eager" else torch.compile(call, fullgraph=True, backend="aot_eager")
    o, lse = run(*leaves)
    close_all((o, lse), results)
    close_all(torch.autograd.grad(o, leaves, grad_o), gradients)


def test_raw_operators():
    inputs, grad_o, results, gradients, _ = case()
    out = torch.empty_like(inputs[0])
    o, lse, *parts = THREE.fwd(*inputs, out=out, softmax_scale=0.25, is_causal=True, num_splits=1)
    assert o.data_ptr() == out.data_ptr() and [x.numel() for x in parts] == [0, 0]
    close_all((o, lse), results)
    written = [torch.empty_like(x) for x in inputs]
    sums, base_two, *rest = THREE.bwd(grad_o, *inputs, o, lse, *written, softmax_scale=0.25, is_causal=True)
    close_all(written, gradients)
    close(base_two.exp2(), lse.exp(), 1e-4)
    assert sums.shape == (2, 6, 128) and len(rest) == 3
    halves = [THREE.fwd(inputs[0], *(x[:, part] for x in inputs[1:]))[:2] for part in (slice(0, 11), slice(11, 29))]
    merged, lse = THREE.fwd_combine(torch.stack([x for x, _ in halves]), torch.stack([x.transpose(1, 2) for _, x in halves]))
    whole = formula.attention(*inputs)
    close_all((merged, lse.transpose(1, 2)), whole[:2])


def test_raw_cache():
    q, k, v = (torch.randn(2, 3, heads, 16) for heads in (4, 2, 2))
    used = torch.tensor([5, 9], dtype=torch.int32)
    caches, copies = ([torch.randn(2, 16, 2, 16) for _ in range(2)] for _ in range(2))
    for x, y in zip(copies, caches):
        x.copy_(y)
    o = THREE.fwd(q, *caches, k, v, seqused_k=used, is_causal=True)[0]
    expected = flash_attn_interface.flash_attn_with_kvcache(q, *copies, k, v, cache_seqlens=used, causal=True)
    assert torch.equal(o, expected) and all(torch.equal(x, y) for x, y in zip(caches, copies))
    metadata = THREE.get_scheduler_metadata(2, 3, 16, 4, 2, 16, 16, torch.bfloat16, used, is_causal=True)
    own = flash_attn_interface.get_scheduler_metadata(2, 3, 16, 4, 2, 16, used, causal=True)
    assert torch.equal(metadata, own)


def test_what_a_traced_call_cannot_do():
    q, k, v = case()[0]
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in (q, k, v)]
        for name in ("out_", "k_new"):
            with pytest.raises(NotImplementedError, match=f"{name}: a traced call"):
                THREE._flash_attn_forward(*fakes, **{name: fakes[0]})


def test_torch_finds_the_kernels_of_the_third_generation():
    """torch.nn.attention imports a module by its name and then looks for these operators."""
    find = pytest.importorskip("torch.nn.attention._fa3", reason="this torch has no providers of attention")
    find._fa3_import_module("flash_attn_interface")
    assert find._FA3_CUDA_FWD is not None
