"""`python -m tilewise.bench`: Tilewise beside torch's attention and the flash_attn family, in one run. Needs torch; charts need matplotlib."""
