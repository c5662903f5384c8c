"""Where tensors come from: the exchange table, attributes, `__dlpack__`, and that each is read in place."""

import numpy as np
import pytest
import reference
import tilewise
import torch
from tilewise import _native

F32, F16, BF16, F64, I32, I64, BOOL, BITS = range(1, 9)


@pytest.fixture(params=["table", "attributes"])
def way(request):
    _native.allow_exchange_table(request.param == "table")
    yield request.param
    _native.allow_exchange_table(True)


TYPES = {
    torch.float32: F32,
    torch.float16: F16,
    torch.bfloat16: BF16,
    torch.float64: F64,
    torch.int32: I32,
    torch.int64: I64,
    torch.bool: BOOL,
    torch.uint8: BITS,
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_torch(way, dtype):
    x = torch.zeros(3, 5, 7, dtype=dtype)[1:, :, ::2].transpose(0, 1)
    assert _native.describe(x) == (x.data_ptr(), TYPES[dtype], tuple(x.shape), x.stride(), (1, 0), False)


def test_torch_subclasses(way):
    class Mine(torch.Tensor):
        pass

    for x in (torch.nn.Parameter(torch.zeros(2, 3)), torch.zeros(2, 3).as_subclass(Mine), torch.zeros(2, 3, requires_grad=True)):
        assert _native.describe(x)[:3] == (x.data_ptr(), F32, (2, 3))


def test_exchange_table_is_used():
    """torch >= 2.10 is read without calling a method of the tensor."""
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.fail(f"torch {torch.__version__} has no exchange table; the tests want 2.10 or newer")

    class Silent(torch.Tensor):
        def __dlpack__(self, *args, **kwargs):
            raise AssertionError

        def data_ptr(self):
            raise AssertionError

    assert _native.describe(torch.zeros(4).as_subclass(Silent))[2] == (4,)


def test_numpy():
    for dtype, code in (("f4", F32), ("f2", F16), ("f8", F64), ("i4", I32), ("i8", I64), ("?", BOOL), ("u1", BITS)):
        x = np.zeros((4, 6), dtype)[::2]
        strides = tuple(s // x.itemsize for s in x.strides)
        assert _native.describe(x) == (x.ctypes.data, code, x.shape, strides, (1, 0), False)
    x.flags.writeable = False
    assert _native.describe(x)[-1] is True


def test_old_producers():
    """An array library that knows neither versions nor keywords of `__dlpack__`."""

    class Old:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self):
            return self.array.__dlpack__()

    x = np.zeros((2, 3), np.float32)
    assert _native.describe(Old(x))[:3] == (x.ctypes.data, F32, (2, 3))


def test_bad_producers():
    class NoCapsule:
        def __dlpack__(self, **kwargs):
            return 5

    class Raises:
        def __dlpack__(self, **kwargs):
            raise BufferError("out of order")

    with pytest.raises(TypeError, match="capsule.*int"):
        _native.describe(NoCapsule())
    with pytest.raises(TypeError, match="Raises.*out of order"):
        _native.describe(Raises())
    with pytest.raises(TypeError, match="not object"):
        _native.describe(object())


def test_words():
    words = (4096, "bf16", (2, 3), None, "cpu")
    assert _native.describe(words) == (4096, BF16, (2, 3), (3, 1), (1, 0), False)
    for bad in ((4096, "bf16", (2, 3), (1,), "cpu"), (1, 2), (0, "int7", (1,), None, "cpu"), (0, "f32", (1,), None, "tpu")):
        with pytest.raises((TypeError, ValueError, NotImplementedError)):
            _native.describe(bad)


def test_ml_dtypes_bfloat16(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in reference.tensors(rng))
    o = tilewise.attention(q, k, v)
    assert o.dtype == ml_dtypes.bfloat16
    as_torch = [torch.from_numpy(x.astype(np.float32)).bfloat16() for x in (q, k, v)]
    assert np.array_equal(o.astype(np.float32), tilewise.attention(*as_torch).float().numpy())


def test_jax(rng):
    jax = pytest.importorskip("jax")
    q, k, v = (jax.device_put(x, jax.devices("cpu")[0]) for x in reference.tensors(rng))
    o, lse = tilewise.attention(q, k, v, return_lse=True)
    assert isinstance(o, jax.Array) and isinstance(lse, jax.Array)
    np.testing.assert_allclose(o, reference.attention(q, k, v)[0], rtol=1e-5, atol=1e-5)
    half = [x.astype(jax.numpy.bfloat16) for x in (q, k, v)]
    assert tilewise.attention(*half).dtype == jax.numpy.bfloat16


def test_both_ways_agree(way, rng):
    q, k, v = (torch.from_numpy(x) for x in reference.tensors(rng))
    np.testing.assert_allclose(tilewise.attention(q, k, v), reference.attention(q, k, v)[0], rtol=1e-5, atol=1e-5)


def test_mixed_libraries(rng):
    """Masks and lengths may be of another library than q; the result is of q's."""
    q, k, v = reference.tensors(rng)
    mask = rng.random((2, 1, 33, 65)) < 0.5
    o = tilewise.attention(torch.from_numpy(q), k, v, mask=mask)
    assert isinstance(o, torch.Tensor)
    assert np.array_equal(o.numpy(), tilewise.attention(q, k, v, mask=torch.from_numpy(mask)))
