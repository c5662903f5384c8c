"""flash_attn_3.flash_attn_config, by Tilewise."""

from flash_attn_config import CONFIG
