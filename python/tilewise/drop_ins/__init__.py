"""What the drop-ins for `flash_attn` and `flash_attn_interface` are made of.

    fa2, fa2_ops, fa2_extension   flash_attn, its private operators and flash_attn_2_cuda
    fa3, fa3_ops                  flash_attn_interface
    operators                     torch.ops.flash_attn and torch.ops.flash_attn_3
    padding, rotary               flash_attn.bert_padding, flash_attn.layers.rotary
    modules                       the modules under their own names, a few lines each, in one folder a distribution
    distributions                 installs, removes and describes them as distributions

`tilewise.compat` makes them importable without installing. Signatures, their order and their defaults are those of the libraries, whatever
we would have chosen. All but `distributions` needs torch.
"""
