"""flash_attn.layers.rotary, by Tilewise."""

from tilewise.drop_ins.rotary import (
    ApplyRotaryEmb,
    ApplyRotaryEmbKV_,
    ApplyRotaryEmbQKV_,
    apply_rotary_emb,
    apply_rotary_emb_func,
    apply_rotary_emb_kv_,
    apply_rotary_emb_qkv_,
    apply_rotary_emb_torch,
    rotate_half,
)
from tilewise.drop_ins.rotary_embedding import RotaryEmbedding
