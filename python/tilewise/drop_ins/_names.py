"""Refusals by the names that a caller of flash_attn gave: they come from `tilewise.attention`, which calls some arguments otherwise."""

import re

import torch

FA2 = {
    "scale": "softmax_scale",
    "window": "window_size",
    "page_table": "block_table",
    "leftpad_k": "cache_leftpad",
    "chunk": "attention_chunk",
}
FA3 = {name: own for name, own in FA2.items() if name != "page_table"}

_REFUSALS = (TypeError, ValueError, NotImplementedError)
_compiles = torch.compiler.is_compiling


def in_words_of(names, message):
    """`message` with the argument that it begins with, and names that are no English words wherever they are, by `names`."""
    subject, colon, rest = message.partition(":")
    subject = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), subject, count=1) if colon else subject
    rest = re.sub(r"\w+_\w+", lambda word: names.get(word[0], word[0]), rest)
    return subject + colon + rest


def named_as(names, function):
    """`function`, with its refusals in the words of `names`."""

    def call(*arguments, **options):
        if _compiles():
            return function(*arguments, **options)
        try:
            return function(*arguments, **options)
        except _REFUSALS as error:
            message = in_words_of(names, str(error))
            if message == str(error):
                raise
            raise type(error)(message) from None

    return call
