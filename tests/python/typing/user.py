"""A program of a user, for the type checker alone: `# error` marks what it must refuse, on the same line."""

import numpy as np
import numpy.typing as npt
import tilewise
import tilewise.compat
from tilewise import _native


class Tensor:
    """Stands for torch's, whose sources would take a type checker half a minute."""

    shape: tuple[int, ...] = (1, 4, 2, 8)
    dtype: str = "float32"


q, k, v, lengths, lse = (Tensor() for _ in range(5))

o: Tensor = tilewise.attention(q, k, v)
o = tilewise.attention(q, k, v, causal=True, window=(3, None), scale=0.5, alibi_slopes=Tensor(), out=o)
pair: tuple[Tensor, Tensor] = tilewise.attention(q, k, v, return_lse=True, dropout_p=0.1, dropout_seed=3)
o = tilewise.attention_varlen(q, k, v, lengths, lengths, max_seqlen_q=4, deterministic=True)
o = tilewise.decode(q, k, v, cache_seqlens=lengths, page_table=None, rotary_interleaved=True)
o, lse = tilewise.decode(q, k, v, q, q, cache_seqlens=lengths, return_lse=True)
tilewise.append(k, v, k, v, cache_seqlens=lengths)
o, lse = tilewise.merge([o, o], [lse, lse])
o, lse = tilewise.merge(o, lse, num_threads=1)

array: npt.NDArray[np.float32] = np.ones((1, 4, 2, 8), np.float32)
array = tilewise.attention(array, array, array, softcap=3.0)

plan: tilewise.Explanation = tilewise.explain(tilewise.spec((1, 4, 2, 8), "float32"), q, q, causal=True, device="cpu")
kernel: str = plan.kernel
size: int = plan.workspace_bytes
report: tilewise.Report = tilewise.doctor()
code: int = report.exit_code
names: list[str] = list(tilewise.capabilities(include_recorded=True)["devices"])
version: str = tilewise.__version__
number: int = _native.num_cached_plans()
tilewise.compat.enable(yield_to_installed=True)
states: dict[str, tuple[str, str]] = tilewise.compat.status("somewhere")

tilewise.attention(q, k)  # error
tilewise.attention(q, k, v, sofcap=3.0)  # error
tilewise.attention(q, k, v, causal="yes")  # error
tilewise.attention("q", k, v)  # error
tilewise.attention_varlen(q, k, v, lengths, window=3)  # error
tilewise.decode(q, k, v, dropout_p=0.1)  # error
tilewise.append(k, v, k, v, causal=True)  # error
tilewise.merge(o)  # error
tilewise.spec(4, "float32")  # error
o = tilewise.attention(q, k, v, return_lse=True)  # error
array = tilewise.attention(q, k, v)  # error
plan.kernel = "another"  # error
text: str = report.exit_code  # error
tilewise.compat.install(3)  # error
