"""ARCHITECTURE.md is short, and what it says of imports and lines is what the code says."""

import architecture_page
import pytest

PAGE = architecture_page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert architecture_page.page(PAGE) == PAGE, f"run: {architecture_page.COMMAND}"


def test_the_page_can_be_read_in_one_go() -> None:
    assert len(PAGE.splitlines()) <= 300


def test_the_picture_has_every_layer_and_what_it_imports_of_the_next() -> None:
    [drawn] = architecture_page.PICTURE.findall(PAGE)
    boxes = drawn.split("├")
    assert [box.split("│")[1].split()[0] for box in boxes] == [*architecture_page.layers(PAGE)]
    assert "learner" in boxes[1].split("↓")[1], boxes[1]
    assert "↓" not in boxes[-1]


def test_a_line_that_moved_is_found_and_a_function_that_went_is_an_error() -> None:
    link = "[`Learner.update`](core/plugrad/learner/learner.py#L{line})"
    moved = architecture_page.page(link.format(line=1))
    assert moved == link.format(
        line=architecture_page.line_of("core/plugrad/learner/learner.py", "Learner.update")
    )
    assert moved != link.format(line=1)
    with pytest.raises(ValueError, match="not enough values"):
        architecture_page.page("[`Learner.gone`](core/plugrad/learner/learner.py#L1)")
