"""flash_attn_2_cuda, computed by Tilewise."""

from tilewise.drop_ins.fa2_extension import bwd, fwd, fwd_kvcache, varlen_bwd, varlen_fwd
