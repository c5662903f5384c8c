"""flash_attn.ops.triton.rotary, by Tilewise."""

from tilewise.drop_ins.rotary import apply_rotary
