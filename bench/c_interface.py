"""The C interface as ctypes, as far as the benchmarks call it: structures of tilewise.h, and a Plan over torch tensors."""

import ctypes

MAX_RANK = 5
FORWARD, BACKWARD, DECODE = 0, 1, 2
CAUSAL = 1  # a flag of Mask
DETERMINISTIC = 1  # a flag of Options


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("stride", ctypes.c_int64 * MAX_RANK),
    ]


def structure(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


def tensors(*names):
    return [(name, Tensor) for name in names]


Lengths = structure(
    "Lengths",
    *tensors("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "leftpad_k"),
    ("max_seqlen_q", ctypes.c_int64),
    ("max_seqlen_k", ctypes.c_int64),
)
Mask = structure(
    "Mask",
    ("flags", ctypes.c_uint32),
    ("chunk", ctypes.c_int32),
    ("window_left", ctypes.c_int64),
    ("window_right", ctypes.c_int64),
    ("prefix", ctypes.c_int64),
    ("block", ctypes.c_int64),
    *tensors("prefix_lens", "mask", "key_begin", "key_end"),
)
Score = structure(
    "Score",
    ("flags", ctypes.c_uint32),
    ("softmax_scale", ctypes.c_float),
    ("softcap", ctypes.c_float),
    ("dropout_p", ctypes.c_float),
    ("dropout_seed", ctypes.c_uint64),
    ("dropout_offset", ctypes.c_uint64),
    *tensors("alibi_slopes", "bias", "sink"),
)
Cache = structure(
    "Cache",
    *tensors("cache_seqlens", "cache_batch_idx", "page_table", "k_new", "v_new", "cu_seqlens_k_new"),
    *tensors("rotary_cos", "rotary_sin", "rotary_seqlens"),
    ("rotary_interleaved", ctypes.c_int32),
    ("error_flag", Tensor),
)
Gradients = structure(
    "Gradients", *tensors("grad_o", "grad_lse", "grad_q", "grad_k", "grad_v", "grad_bias", "grad_sink")
)
Options = structure(
    "Options",
    ("flags", ctypes.c_uint32),
    ("num_splits", ctypes.c_int32),
    ("num_threads", ctypes.c_int32),
    ("kernel", ctypes.c_char_p),
)
Attention = structure(
    "Attention",
    ("struct_size", ctypes.c_size_t),
    *tensors("q", "k", "v", "o", "lse"),
    ("lengths", Lengths),
    ("mask", Mask),
    ("score", Score),
    ("cache", Cache),
    ("gradients", Gradients),
    ("options", Options),
)


class Library:
    """libtilewise, its errors as exceptions."""

    def __init__(self, path, device="cuda:0"):
        self.lib = ctypes.CDLL(path)
        self.lib.tilewise_last_error.restype = ctypes.c_char_p
        self.lib.tilewise_plan_workspace_bytes.restype = ctypes.c_size_t
        self.lib.tilewise_plan_kernel.restype = ctypes.c_char_p
        self.lib.tilewise_plan_text.restype = ctypes.c_char_p
        self.device = ctypes.c_void_p()
        self.check(self.lib.tilewise_device_open(device.encode(), ctypes.byref(self.device)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.tilewise_last_error().decode())


class Plan:
    """A planned call; `launch(attention)` runs it on torch's current stream."""

    def __init__(self, library, op, attention):
        import torch

        self.library, self.plan = library, ctypes.c_void_p()
        library.check(
            library.lib.tilewise_plan_create(library.device, op, ctypes.byref(attention), ctypes.byref(self.plan))
        )
        self.workspace_bytes = library.lib.tilewise_plan_workspace_bytes(self.plan)
        self.workspace = torch.empty(max(self.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
        self.kernel = library.lib.tilewise_plan_kernel(self.plan).decode()

    def launch(self, attention):
        import torch

        self.library.check(
            self.library.lib.tilewise_launch(
                self.plan,
                ctypes.byref(attention),
                ctypes.c_void_p(self.workspace.data_ptr()),
                ctypes.c_size_t(self.workspace_bytes),
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            )
        )

    def __del__(self):
        self.library.lib.tilewise_plan_destroy(self.plan)


def describe(x):
    """A torch tensor as a tilewise_tensor; the caller keeps it alive."""
    import torch

    dtypes = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.float64: 4, torch.int32: 5}
    tensor = Tensor()
    tensor.data, tensor.dtype, tensor.rank = x.data_ptr(), dtypes[x.dtype], x.dim()
    tensor.shape[: x.dim()] = x.shape
    tensor.stride[: x.dim()] = x.stride()
    return tensor


def attention_of(causal=False, **named):
    """An Attention from torch tensors by field name; gradients and cache fields too. Keeps the tensors alive."""
    call = Attention()
    call.struct_size = ctypes.sizeof(Attention)
    for name, x in named.items():
        for part in (call, call.gradients, call.cache, call.lengths):
            if name in dict(part._fields_):
                setattr(part, name, describe(x))
                break
        else:
            raise KeyError(name)
    if causal:
        call.mask.flags = CAUSAL
    call.tensors = list(named.values())
    return call
