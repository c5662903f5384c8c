"""flash_attn_3: both modules of the distribution as a package, computed by Tilewise."""

from . import flash_attn_config, flash_attn_interface
