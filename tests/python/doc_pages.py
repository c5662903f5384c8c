"""The Python in the pages of docs/: fenced blocks, found and run."""

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
NEEDS_GPU = "# needs a GPU"
NEEDS_KERNELS = "# needs kernels for GPUs"
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Python of a page. Its name is that of the page and of its first line there."""

    page: Path
    line: int
    code: str

    def __str__(self):
        return f"{self.page.relative_to(DOCS)}:{self.line}"

    @property
    def needs_gpu(self):
        return self.code.startswith(NEEDS_GPU)

    @property
    def needs_kernels(self):
        return self.code.startswith(NEEDS_KERNELS)

    def run(self, names):
        """Runs it on `names`; a traceback has the lines of the page."""
        exec(compile("\n" * (self.line - 1) + self.code, str(self.page), "exec"), names)


def blocks_of(page):
    """The blocks of a page, in order."""
    text = page.read_text()
    return [Block(page, text.count("\n", 0, match.start(1)) + 1, match[1]) for match in _FENCE.finditer(text)]


def links_of(page):
    """(target, anchor) of the links to files; an empty target is the page itself."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors_of(page):
    """What headings can be linked by, as GitHub makes it of their text."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
