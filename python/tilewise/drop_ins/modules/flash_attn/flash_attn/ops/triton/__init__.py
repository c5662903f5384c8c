"""Operators of flash_attn that Tilewise has; none is of Triton."""
