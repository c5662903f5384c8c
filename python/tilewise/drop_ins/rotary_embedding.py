"""The module RotaryEmbedding of flash_attn.layers.rotary: tables of cos and sin, made when they are needed."""

import torch

from .rotary import apply_rotary_emb, apply_rotary_emb_kv_, apply_rotary_emb_qkv_


class RotaryEmbedding(torch.nn.Module):
    """Rotates q and k by position t's angles t / base^(2i / dim). With `scale_base` also scales them, q up and k down, with position
    (XPos)."""

    def __init__(self, dim, base=10000.0, interleaved=False, scale_base=None, device=None):
        super().__init__()
        self.dim, self.base, self.interleaved, self.scale_base = dim, float(base), interleaved, scale_base
        even = torch.arange(0, dim, 2, device=device, dtype=torch.float32)
        self.register_buffer("inv_freq", self._frequencies(device), persistent=False)
        scale = None if scale_base is None else (even + 0.4 * dim) / (1.4 * dim)
        self.register_buffer("scale", scale, persistent=False)
        self._seq_len_cached = 0
        self._cos_cached = self._sin_cached = self._cos_k_cached = self._sin_k_cached = None

    def _frequencies(self, device=None):
        return self.base ** -(torch.arange(0, self.dim, 2, device=device, dtype=torch.float32) / self.dim)

    def _is_cached(self, seqlen, device, dtype):
        table = self._cos_cached
        if table is None or seqlen > self._seq_len_cached or table.device != device or table.dtype != dtype:
            return False
        return not (self.training and table.is_inference())  # autograd cannot save those

    def _update_cos_sin_cache(self, seqlen, device=None, dtype=None):
        device = self.inv_freq.device if device is None else device
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if self._is_cached(seqlen, device, dtype):
            return
        self._seq_len_cached = seqlen
        rows = torch.arange(seqlen, device=device, dtype=torch.float32)
        # A model that was cast has rounded frequencies, too coarse for far positions.
        exact = self.inv_freq.dtype == torch.float32
        angles = torch.outer(rows, self.inv_freq.to(device) if exact else self._frequencies(device))
        cos, sin = angles.cos(), angles.sin()
        self._cos_k_cached = self._sin_k_cached = None
        if self.scale is not None:
            power = (rows - seqlen // 2) / self.scale_base
            scale = self.scale.to(device=device, dtype=torch.float32) ** power[:, None]
            self._cos_k_cached, self._sin_k_cached = ((table / scale).to(dtype) for table in (cos, sin))
            cos, sin = cos * scale, sin * scale
        self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)

    def forward(self, qkv, kv=None, seqlen_offset=0, max_seqlen=None, num_heads_q=None):
        """qkv in place, or qkv as q alone and kv: returns what it got. `max_seqlen` is how far tables must reach, for a `seqlen_offset`
        that is a tensor."""
        reach = max_seqlen
        if reach is None and isinstance(seqlen_offset, int):
            reach = qkv.shape[1] + seqlen_offset
        if reach is not None:
            self._update_cos_sin_cache(reach, device=qkv.device, dtype=qkv.dtype)
        if self._cos_cached is None:
            raise ValueError("max_seqlen: is needed with a seqlen_offset that is a tensor")
        cos, sin, rest = self._cos_cached, self._sin_cached, (self.interleaved, seqlen_offset)
        cos_k = cos if self._cos_k_cached is None else self._cos_k_cached
        sin_k = sin if self._sin_k_cached is None else self._sin_k_cached
        if kv is None:
            return apply_rotary_emb_qkv_(qkv, cos, sin, cos_k, sin_k, *rest, num_heads_q)
        q = apply_rotary_emb(qkv, cos, sin, self.interleaved, True, seqlen_offset)
        return q, apply_rotary_emb_kv_(kv, cos_k, sin_k, *rest)
