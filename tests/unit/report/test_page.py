"""A page is one file; its pictures can be files too."""

import base64
import re

import pytest

from evenodds.report.page import Page, pictures_folder
from evenodds.report.plots import new_figure

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def page():
    page = Page("Title <1>", "note")
    for name in ("first", ""):
        figure, axes = new_figure((2.0, 1.0))
        axes.plot([0, 1], [0, 1])
        page.picture(figure, "caption & more", name)
    return page


def test_pictures_are_inlined_and_nothing_is_fetched(page, tmp_path):
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "http" not in text
    assert "Title &lt;1&gt;" in text
    assert "Caption &amp; more" in text
    inlined = re.findall(r'width="200" src="data:image/png;base64,([^"]+)"', text)
    assert [base64.b64decode(data) for data in inlined] == list(page.pictures.values())
    assert not list(tmp_path.glob("*pictures*"))


def test_pictures_are_written_where_asked_for(page, tmp_path):
    page.write(tmp_path / "page.html", pictures=True)
    assert pictures_folder(tmp_path / "page.html") == tmp_path / "page-pictures"
    files = sorted((tmp_path / "page-pictures").iterdir())
    assert [file.name for file in files] == ["first.png", "picture-2.png"]
    assert all(file.read_bytes().startswith(PNG) for file in files)
    page.write(tmp_path / "page.html", pictures=tmp_path / "other")
    assert (tmp_path / "other" / "first.png").read_bytes() == page.pictures["first"]


def test_two_pictures_have_two_names(page):
    figure, _ = new_figure((2.0, 1.0))
    with pytest.raises(AssertionError, match="first"):
        page.picture(figure, "again", "first")
