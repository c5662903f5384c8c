"""flash_attn_interface 3.0.0, computed by Tilewise."""

from tilewise.drop_ins.fa3 import (
    flash_attn_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from tilewise.drop_ins.fa3 import VERSION as __version__
from tilewise.drop_ins.fa3_ops import (
    _flash_attn_backward,
    _flash_attn_forward,
    flash_attn_combine,
    get_scheduler_metadata,
)
