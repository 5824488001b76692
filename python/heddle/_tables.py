"""Tables in HTML, as notebooks show them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

_STYLE = "text-align: left; vertical-align: top; white-space: pre-wrap; max-width: 40em"


class Cell(NamedTuple):
    """A text, and what stands small below it."""

    text: str
    note: str = ""

    def html(self) -> str:
        """A cell whose text shows as it is, markup and spaces included."""
        note = f"\n<small>{html.escape(self.note)}</small>" if self.note else ""
        return f'<td style="{_STYLE}">{html.escape(self.text)}{note}</td>'


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table; columns in which all cells are empty are left out."""
    nothing = Cell("")
    full = [[*row, *[nothing] * (len(headers) - len(row))] for row in rows]
    shown = [i for i in range(len(headers)) if any(row[i] != nothing for row in full)]
    head = "".join(f'<th style="text-align: left">{html.escape(headers[i])}</th>' for i in shown)
    body = "".join(f"<tr>{''.join(row[i].html() for i in shown)}</tr>" for row in full)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
