"""flash_attn_config: which parts of flash_attn 3 a build leaves out. Tilewise leaves out 8-bit inputs."""

_PARTS = "BACKWARD SPLIT PAGEDKV APPENDKV LOCAL SOFTCAP PACKGQA FP16 VARLEN CLUSTER HDIM64 HDIM96 HDIM128 HDIM192 HDIM256".split()

CONFIG = {"build_flags": {f"FLASHATTENTION_DISABLE_{part}": False for part in _PARTS} | {"FLASHATTENTION_DISABLE_FP8": True}}
