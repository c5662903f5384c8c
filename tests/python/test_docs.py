"""What the documentation shows runs: examples in docstrings, and the Python of docs/. Links between its pages have ends."""

import doctest
import importlib
import pkgutil

import compat_formula
import doc_pages
import pytest
import tilewise
import torch

MODULES = [name for _, name, _ in pkgutil.iter_modules(tilewise.__path__) if name not in ("_native", "__main__")]
PAGES = [
    doc_pages.DOCS / "python.md",
    doc_pages.DOCS / "migrating-from-flash-attn.md",
    doc_pages.DOCS / "cookbook.md",
    *sorted((doc_pages.DOCS / "cookbook").glob("*.md")),
]
BLOCKS = [(page, index) for page in PAGES for index in range(len(doc_pages.blocks_of(page)))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"tilewise.{name}"))
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(tilewise.__all__))
def test_public_names_are_described(name):
    item = getattr(tilewise, name)
    assert item.__doc__
    if name[0].islower():
        assert ">>>" in item.__doc__, f"{name} has no example"


@pytest.fixture
def device(monkeypatch):
    """The pages use a GPU where torch has one: here only where the tests are asked to. Their defaults end with the test."""
    if compat_formula.DEVICE == "cpu":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch.manual_seed(3)
    yield compat_formula.DEVICE
    torch.set_default_device(None)


@pytest.mark.parametrize("page, index", BLOCKS, ids=[str(doc_pages.blocks_of(page)[index]) for page, index in BLOCKS])
def test_page(device, page, index):
    """Each block runs after the first one of its page, and without the others."""
    blocks = doc_pages.blocks_of(page)
    if blocks[index].needs_gpu and device == "cpu":
        pytest.skip("needs a GPU: set TILEWISE_TEST_DEVICE=cuda")
    if blocks[index].needs_kernels and not any(row["device"] == "cuda" for row in tilewise.capabilities()["kernels"]):
        pytest.skip("this build has no kernels for GPUs")
    names = {"__name__": "page"}
    for block in blocks[:1] if index == 0 else (blocks[0], blocks[index]):
        block.run(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    for target, anchor in doc_pages.links_of(page):
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            assert anchor in doc_pages.anchors_of(file), f"{target}#{anchor}"


@pytest.mark.parametrize("page", sorted((doc_pages.DOCS / "cookbook").glob("*.md")), ids=lambda page: page.name)
def test_contents(page):
    """The cookbook lists each question of its pages, and each page its own."""
    listed = {(target, anchor) for target, anchor in doc_pages.links_of(doc_pages.DOCS / "cookbook.md")}
    own = {anchor for target, anchor in doc_pages.links_of(page) if target == ""}
    questions = [line[3:] for line in page.read_text().splitlines() if line.startswith("## ")]
    anchors = doc_pages.anchors_of(page)
    assert len(anchors) == len(questions) + 1
    for anchor in anchors:
        if not anchor.startswith("cookbook-"):
            assert anchor in own and (f"cookbook/{page.name}", anchor) in listed
