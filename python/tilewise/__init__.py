"""Tilewise: exact attention for every NVIDIA GPU since Ampere and for every CPU.

    attention, attention_varlen      attention over given keys and values, dense, ragged or paged
    decode, append                   with a key-value cache
    merge                            results over disjoint sets of keys
    explain, spec                    which kernel a call runs, and why
    capabilities, doctor             what this build and this machine have

Arrays of torch, NumPy, CuPy and JAX (on the CPU) come in without a copy; results are of the kind of q. Neither torch nor NumPy is imported
before such an array comes in.
"""

from . import _native
from .attention import attention, attention_varlen
from .cache import append, decode
from .explaining import Explanation, explain, spec
from .merging import merge
from .reporting import Report, capabilities, doctor

__version__ = _native.version()

__all__ = [
    "Explanation",
    "Report",
    "append",
    "attention",
    "attention_varlen",
    "capabilities",
    "decode",
    "doctor",
    "explain",
    "merge",
    "spec",
]
