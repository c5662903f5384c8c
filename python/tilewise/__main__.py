"""python -m tilewise COMMAND: doctor examines this machine (--json for programs), compat installs the drop-ins for flash_attn; every other
command is the bundled program's."""

import json
import os
import subprocess
import sys

from .reporting import doctor, program

_OWN_COMMANDS = """Subcommands of the Python package:
  compat                          installs, removes or shows the drop-ins for flash_attn
"""


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (["-h"], ["--help"]):
        code = subprocess.run([program(), *arguments]).returncode
        print(_OWN_COMMANDS, end="")
        return code
    if arguments[:1] == ["compat"]:
        from .drop_ins.command import main as compat

        return compat(arguments[1:])
    if arguments[:1] != ["doctor"] or not set(arguments[1:]) <= {"--json"}:
        os.execv(program(), [str(program()), *arguments])
    report = doctor()
    if "--json" in arguments:
        print(json.dumps({"status": report.status, "findings": report.findings}, indent=2))
    else:
        print(report)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
