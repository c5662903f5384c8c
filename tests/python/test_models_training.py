"""Training steps of models of Transformers with Tilewise: the gradients of eager attention, also compiled, checkpointed
and with dropout."""

import functools

import models
import pytest
import tilewise.integrations.transformers as integration
import torch

ERROR = 5e-5 if models.DEVICE == "cpu" else 1e-3


@pytest.fixture(autouse=True)
def offered():
    with models.flash_attention_is_offered():
        yield


@pytest.mark.parametrize("inputs", sorted(models.INPUTS))
@pytest.mark.parametrize(("name", "implementation"), models.CASES)
def test_gradients(name, implementation, inputs):
    given = models.INPUTS[inputs]()
    expected = models.gradients(models.build(name, "eager"), given)
    actual = models.gradients(models.build(name, implementation), given)
    assert name != "gpt_oss" or any(key.endswith("sinks") for key in actual[1])
    models.same_gradients(actual, expected, ERROR)


STEPS = [
    *((name, None, checkpointed) for name in ("tilewise", *models.FLASH) for checkpointed in (False, True)),
    ("tilewise", "aot_eager", True),
    ("flash_attention_2", "aot_eager", True),
    ("flash_attention_2", "inductor", False),
]


@pytest.mark.parametrize(("implementation", "backend", "checkpointed"), STEPS)
def test_a_step_of_llama(implementation, backend, checkpointed):
    """Loss, gradients, and the loss after the step."""
    torch.compiler.reset()
    layers = 1 if backend == "inductor" else 2
    given = {"input_ids": models.tokens(2, 20)}
    found = []
    for name in ("eager", implementation):
        model = models.build("llama", name, num_hidden_layers=layers)
        if name != "eager" and checkpointed:
            models.checkpoint(model)
        # In float32 Transformers' flash attention warns once, which breaks the graph.
        whole = implementation not in models.FLASH
        run = model if name == "eager" or backend is None else torch.compile(model, backend=backend, fullgraph=whole)
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        loss = run(**given, labels=given["input_ids"], use_cache=False).loss
        loss.backward()
        gradients = {key: x.grad.clone() for key, x in model.named_parameters()}
        optimizer.step()
        with torch.no_grad():
            after = model(**given, labels=given["input_ids"], use_cache=False).loss
        assert after < loss
        gradients["after"] = after
        found.append((loss.detach(), gradients))
    models.same_gradients(found[1], found[0], ERROR)


@pytest.mark.parametrize("inputs", ["left_padding", "packed_with_lengths"])
def test_a_compiled_step_with_masks(inputs):
    """A mask cannot be looked at while a program is traced, so none is made short."""
    torch.compiler.reset()
    given = models.INPUTS[inputs]()
    expected = models.gradients(models.build("mistral", "eager", num_hidden_layers=1), given)
    model = models.build("mistral", "tilewise", num_hidden_layers=1)
    model.compile(backend="aot_eager", fullgraph=True)
    models.same_gradients(models.gradients(model, given), expected, ERROR)


def strays_no_further(steps):
    """The gradients of bfloat16 stray from those of float32 as far as eager attention's do."""
    given = {"input_ids": models.tokens(2, 20)}
    exact = models.gradients(models.build("llama", "eager", num_hidden_layers=1), given)[1]
    found = [step(given)[1] for step in steps]
    eager, own = ([(x[key] - exact[key]).norm() / exact[key].norm() for key in exact] for x in found)
    assert all(x <= 2 * y + 1e-2 for x, y in zip(own, eager, strict=True))


@pytest.mark.parametrize(
    ("implementation", "checkpointed"),
    [("tilewise", False), ("flash_attention_2", False), ("flash_attention_2", True), ("flash_attention_3", False)],
)
def test_a_step_in_bfloat16_is_one_graph(implementation, checkpointed):
    torch.compiler.reset()

    def step(given):
        model = models.build("llama", implementation, torch.bfloat16, num_hidden_layers=1)
        if checkpointed:
            models.checkpoint(model)
        model.compile(backend="aot_eager", fullgraph=True)
        return models.gradients(model, given)

    eager = models.build("llama", "eager", torch.bfloat16, num_hidden_layers=1)
    strays_no_further([functools.partial(models.gradients, eager), step])


@pytest.mark.parametrize("implementation", ["tilewise", *models.FLASH])
def test_autocast(implementation):
    def step(name, given):
        with torch.autocast(models.DEVICE, dtype=torch.bfloat16):
            return models.gradients(models.build("llama", name, num_hidden_layers=1), given)

    strays_no_further([functools.partial(step, "eager"), functools.partial(step, implementation)])


@pytest.mark.parametrize("implementation", ["tilewise", "flash_attention_2"])
def test_dropout_repeats_and_is_recomputed(implementation):
    given = {"input_ids": models.tokens(2, 20)}

    def run(seed, checkpointed=False):
        model = models.build("llama", implementation, attention_dropout=0.3)
        if checkpointed:
            models.checkpoint(model)
        torch.manual_seed(seed)
        return models.gradients(model, given)

    first = run(1)
    models.same_gradients(run(1, checkpointed=True), first, 1e-6 if models.DEVICE == "cpu" else 1e-4)
    assert run(2)[0] != first[0]
    assert first[0] != models.gradients(models.build("llama", implementation), given)[0]


def test_dropout_has_the_right_mean():
    torch.manual_seed(4)
    q, k, v = (torch.randn(1, 4, 6, 16, device=models.DEVICE) for _ in range(3))
    module = torch.nn.Module()
    expected = integration.attention(module, q, k, v, None)[0]
    many = torch.stack([integration.attention(module, q, k, v, None, dropout=0.4)[0] for _ in range(1500)])
    assert (many.mean(0) - expected).abs().max() < 5 * (many.std(0) / 1500**0.5).max()


def test_a_position_bias_learns():
    """The bias of a model that adds its own to the scores, beside each kind of mask."""
    torch.manual_seed(4)
    q, k, v = (torch.randn(2, 4, 6, 16, device=models.DEVICE) for _ in range(3))
    seen = torch.ones(6, 6, dtype=torch.bool, device=models.DEVICE).tril()
    added = torch.zeros(2, 1, 6, 6, device=models.DEVICE).masked_fill(~seen, float("-inf"))
    short = integration.attention_mask(2, 6, 6, allow_is_causal_skip=False, device=models.DEVICE)
    for mask in (None, short, seen.expand(2, 1, 6, 6), added):
        bias = torch.randn(1, 4, 6, 6, device=models.DEVICE, requires_grad=True)
        o = integration.attention(torch.nn.Module(), q, k, v, mask, position_bias=bias)[0]
        scores = (q @ k.mT / 4 + bias).masked_fill(~seen, float("-inf"))
        expected = (scores.softmax(-1) @ v).transpose(1, 2)
        models.same([o], [expected], ERROR)
        weight = torch.randn_like(o)
        models.same(torch.autograd.grad(o, bias, weight), torch.autograd.grad(expected, bias, weight), ERROR)
