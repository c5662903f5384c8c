"""How far off a result may be. The rule, the same for every peer: the error of a row (of head_dim numbers) is

    |row - exact row|  /  max(|exact row|, root mean square of |exact row| over the rows that are compared)

in the Euclidean norm. The worst row of o may have TOLERANCE of its type, the worst row of a gradient GRADIENT_FACTOR
times that, and two peers may differ by PEER_FACTOR times as much as each may from the exact result. A row with a
number that is not finite is wrong.

The numbers are 4 rounding errors (half a unit in the last place) of bf16 and of fp16, where rounding P and o costs
about one, and 256 of fp32.
"""

TOLERANCE = {"bf16": 2**-6, "fp16": 2**-9, "fp32": 2**-16}
GRADIENT_FACTOR = 2
PEER_FACTOR = 2


def allowed(dtype: str, name: str) -> float:
    """Of o, or of a gradient of that name."""
    return TOLERANCE[dtype] * (1 if name == "o" else GRADIENT_FACTOR)
