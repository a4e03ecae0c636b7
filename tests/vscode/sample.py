"""The file that the tests type in: a real one, with a line that stands twice taken out once."""

from __future__ import annotations

from workbench import REPOSITORY

SAMPLE = REPOSITORY / "server" / "midspan_server" / "demo" / "inventory.py"
LINE = '            raise ValueError("quantity must be positive")'
"""Stands twice in the sample; its second copy is taken out and typed again, so that the model has seen the answer."""


def split_sample() -> tuple[str, str]:
    """Returns the sample before and after the line that is taken out."""
    text = SAMPLE.read_text()
    assert text.count(f"{LINE}\n") == 2, "the sample repeats its line"
    head, _, tail = text.rpartition(f"{LINE}\n")
    return head, tail


def with_holes(*pairs: tuple[str, str]) -> str:
    """Returns the sample up to the method `total`, with the last place of each text replaced; by holes, for example."""
    text = SAMPLE.read_text()
    text = text[: text.rindex("\n    def total(self)")]
    for old, new in pairs:
        before, found, after = text.rpartition(old)
        assert found, f"the sample holds {old!r}"
        text = before + new + after
    return text


HOLES = with_holes(("if quantity <= 0:", "if ___:"), ("item = self.items[name]", "item = ___"))
"""Two holes; both texts are written out a few lines above, so the model knows them."""
DOUBTFUL = """
    def appraise(self, blob: bytes) -> None:
        ___

    def reconcile(self, other: object) -> bool:
        ___
"""
"""What nobody can know: the model hesitates over it, whatever it has learned."""
