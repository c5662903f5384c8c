"""What the examples share: the choice of an attention, and comparisons that are printed and counted."""

import argparse
import sys

import torch

ATTENTIONS = ("tilewise", "flash_attention_2", "flash_attention_3")


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    has_gpu = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if has_gpu else "cpu", help="where the model runs")
    parser.add_argument(
        "--attention",
        choices=ATTENTIONS,
        default="tilewise",
        help="what is compared with eager; Transformers offers the flash_attention ones only where torch sees a GPU",
    )
    return parser


def say(line: str) -> None:
    print(line, flush=True)


class Checks:
    """Comparisons with eager attention."""

    def __init__(self) -> None:
        self.count = 0
        self.failed = 0

    def _note(self, is_right: bool, line: str) -> None:
        self.count += 1
        self.failed += not is_right
        say(f"{'same' if is_right else 'DIFFERENT'}: {line}")

    def close(self, what: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
        """Every element to `tolerance` of the largest one expected."""
        size = expected.abs().max().item()
        difference = (actual.double() - expected.double()).abs().max().item() / max(size, 1e-30)
        self._note(difference <= tolerance, f"{what}: {difference:.1e} of the largest element, {tolerance:.0e} allowed")

    def equal(self, what: str, actual: object, expected: object) -> None:
        self._note(actual == expected, f"{what}: {actual!r}" if actual == expected else f"{what}: {actual!r}, not {expected!r}")

    def finish(self) -> None:
        """Ends the program: 0 if all were the same, else 1."""
        say(f"{self.count - self.failed} of {self.count} comparisons are the same as with eager attention")
        sys.exit(1 if self.failed or self.count == 0 else 0)
