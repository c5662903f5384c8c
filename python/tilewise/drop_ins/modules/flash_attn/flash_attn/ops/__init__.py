"""Operators of flash_attn that Tilewise has."""
