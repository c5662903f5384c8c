"""A small scanner for C, C++ and CUDA sources, in plain Python: tokens, and the outline that the checkers look at."""
