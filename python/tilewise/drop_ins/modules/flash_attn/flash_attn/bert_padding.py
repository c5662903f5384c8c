"""flash_attn.bert_padding, by Tilewise."""

from tilewise.drop_ins import padding as _padding
from tilewise.drop_ins.padding import (
    IndexFirstAxis,
    IndexFirstAxisResidual,
    IndexPutFirstAxis,
    index_first_axis,
    index_first_axis_residual,
    index_put_first_axis,
    pad_input,
    unpad_input,
    unpad_input_for_concatenated_sequences,
)


def __getattr__(name):
    """`rearrange` and `repeat` of einops."""
    return getattr(_padding, name)
