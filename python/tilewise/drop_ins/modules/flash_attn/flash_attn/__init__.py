"""flash_attn 2.8.3, computed by Tilewise."""

from pkgutil import extend_path

from tilewise.drop_ins.fa2 import VERSION as __version__

from .flash_attn_interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

__path__ = extend_path(__path__, __name__)  # flash_attn.cute is a distribution of its own
