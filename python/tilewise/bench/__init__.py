"""python -m tilewise.bench: attention of this package beside the other implementations that Python finds here, on
this machine.

    command      the command line                    session     a run: case after case, files
    cases        what is timed: sizes, FLOPs, bytes  inputs      random tensors of a case
    peers        who takes part; peers_* bind them   run         one case: bind, check, time
    checks       a float64 reference                 tolerances  how far off is wrong
    timing       interleaved samples, CUDA graphs    machine     card, driver, versions, clocks
    report       JSON, CSV, lines of text            charts      PNG by matplotlib

Nothing is imported from here by the rest of the package, and torch only when a run begins.
"""
