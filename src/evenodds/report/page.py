"""A self-contained HTML page: text, tables and pictures in one file.

The pictures can also be written beside it, as PNG files.
"""

import base64
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenodds.files import replacing, write_text

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff;
       max-width: 74rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.note { color: #555; margin-top: .3rem; }
figure { margin: 1.4rem 0; }
figure img { max-width: 100%; height: auto; }
figcaption { color: #444; font-size: .92rem; margin-top: .3rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: #444; padding-bottom: .4rem; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid #ddd; }
td { white-space: nowrap; }
th { border-bottom: 2px solid #999; font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
tr.first td { font-weight: 600; }
"""

DOTS = 150  # an inch of a figure in its file
PIXELS = 100  # of the screen, an inch of a figure: text is as large in all of them


class Page:
    """Gathers the parts of a page in order.

    Args:
        title: Its heading.
        note: A line under it: what was measured, and how.

    Attributes:
        pictures: PNG data of every picture, by its name.
    """

    def __init__(self, title: str, note: str = "") -> None:
        self.title = title
        self.pictures: dict[str, bytes] = {}
        self._parts = [f"<h1>{html.escape(title)}</h1>"]
        if note:
            self._parts.append(f'<p class="note">{html.escape(note)}</p>')

    def heading(self, text: str) -> None:
        """A section begins."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        caption: str = "",
        first: bool = False,
    ) -> None:
        """A table; `first` sets its first row apart."""
        lines = ['<div class="scroll"><table>']
        if caption:
            lines.append(f"<caption>{html.escape(caption)}</caption>")
        lines.append(f"<thead>{_row(columns, 'th')}</thead><tbody>")
        for place, row in enumerate(rows):
            lines.append(_row(row, "td", "first" if first and place == 0 else ""))
        self._parts.append("".join(lines) + "</tbody></table></div>")

    def picture(self, figure: Any, caption: str, name: str = "") -> None:
        """A matplotlib figure, as PNG within the page; the figure is closed.

        Args:
            figure: What to show.
            caption: What a reader sees in it.
            name: Of its file, without ending; `picture-N` by default.
        """
        name = name or f"picture-{len(self.pictures) + 1}"
        assert name not in self.pictures, f"two pictures are called {name}"
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DOTS, metadata={"Software": None})
        self.pictures[name] = buffer.getvalue()
        data = base64.b64encode(buffer.getvalue()).decode()
        width = round(PIXELS * figure.get_figwidth())
        text = html.escape(caption[:1].upper() + caption[1:])
        self._parts.append(
            f'<figure><img width="{width}" src="data:image/png;base64,{data}" alt="{text}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def write(self, path: Path, pictures: Path | bool = False) -> None:
        """Write the page, and where asked for its pictures, each file atomically.

        Args:
            path: Of the page.
            pictures: A folder for NAME.png; True for `pictures_folder(path)`.
        """
        if pictures:
            folder = pictures_folder(path) if pictures is True else pictures
            for name, data in self.pictures.items():
                with replacing(folder / f"{name}.png") as temporary:
                    temporary.write_bytes(data)
        body = "\n".join(self._parts)
        write_text(
            path,
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head>"
            f"<body>\n{body}\n</body></html>\n",
        )


def pictures_folder(path: Path) -> Path:
    """Where the pictures of the page at `path` lie: STEM-pictures beside it."""
    return path.with_name(f"{path.stem}-pictures")


def number(value: float | None, digits: int = 3) -> str:
    """A number for a table; a dash where there is none."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _row(cells: Sequence[Any], tag: str, kind: str = "") -> str:
    opened = f'<tr class="{kind}">' if kind else "<tr>"
    inner = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
    return f"{opened}{inner}</tr>"
