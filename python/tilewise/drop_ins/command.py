"""`python -m tilewise compat install | remove | status`."""

import argparse
import sys

from .distributions import CompatError, default_site, install, remove, status

_DESCRIPTION = """Makes Tilewise importable as flash_attn, flash_attn_2_cuda and flash_attn_interface: writes two small distributions,
flash-attn and flash-attn-3, or removes them. Distributions that are not Tilewise's are never touched."""


def main(arguments):
    parser = argparse.ArgumentParser(prog="tilewise compat", description=_DESCRIPTION)
    parser.add_argument("action", choices=("install", "remove", "status"))
    parser.add_argument("--target", metavar="DIR", help=f"the site directory; default is {default_site()}")
    options = parser.parse_args(arguments)
    try:
        if options.action == "status":
            for name, (state, text) in status(options.target).items():
                print(f"{name:<13} {state:<10} {text}")
            return 0
        done = (install if options.action == "install" else remove)(options.target)
    except CompatError as error:
        print(f"tilewise compat: {error}", file=sys.stderr)
        return 1
    verb = "installed" if options.action == "install" else "removed"
    for distribution in done:
        print(f"{verb} {distribution.name} {distribution.version}")
    if not done:
        print("nothing of Tilewise's is installed")
    return 0
