"""flash_attn_3._C: its import registers torch.ops.flash_attn_3, computed by Tilewise."""

from tilewise.drop_ins.operators import register

register("flash_attn_3")
