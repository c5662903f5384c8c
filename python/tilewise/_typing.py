"""Types of the public functions' arguments, for type checkers: nothing imports this when the package runs."""

from typing import Any, Protocol, TypedDict, TypeVar


class Array(Protocol):
    """A tensor of torch, NumPy, CuPy or JAX."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...


A = TypeVar("A", bound=Array)


class _Mask(TypedDict, total=False):
    causal: bool | None
    window: tuple[int | None, int | None] | list[int] | None
    diagonal: str | None
    chunk: int | None
    prefix: int | Array | None
    block: int | None
    mask: Array | None
    key_begin: Array | None
    key_end: Array | None


class _Score(TypedDict, total=False):
    scale: float | None
    softcap: float | None
    alibi_slopes: Array | None
    bias: Array | None
    sink: Array | None


class _Dropout(TypedDict, total=False):
    dropout_p: float | None
    dropout_seed: int | None
    dropout_offset: int | None


class _Starts(TypedDict, total=False):
    cu_seqlens_q: Array | None
    cu_seqlens_k: Array | None


class _Lengths(TypedDict, total=False):
    max_seqlen_q: int | Array | None
    max_seqlen_k: int | Array | None
    seqused_q: Array | None
    leftpad_k: Array | None
    page_table: Array | None


class MergeOptions(TypedDict, total=False):
    num_threads: int | None
    kernel: str | None
    stream: int | None


class _Execution(MergeOptions, total=False):
    batch_invariant: bool | None
    num_splits: int | None


class _Cache(TypedDict, total=False):
    cache_seqlens: Array | None
    cache_batch_idx: Array | None
    cu_seqlens_k_new: Array | None
    rotary_cos: Array | None
    rotary_sin: Array | None
    rotary_seqlens: Array | None
    rotary_interleaved: bool | None
    error_flag: Array | None


class VarlenOptions(_Mask, _Score, _Dropout, _Lengths, _Execution, total=False):
    seqused_k: Array | None
    deterministic: bool | None


class AttentionOptions(VarlenOptions, _Starts, total=False):
    pass


class DecodeOptions(_Mask, _Score, _Starts, _Lengths, _Cache, _Execution, total=False):
    pass


class AppendOptions(_Cache, MergeOptions, total=False):
    page_table: Array | None
    leftpad_k: Array | None


class ExplainOptions(AttentionOptions, _Cache, total=False):
    pass
