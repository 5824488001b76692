"""The plot of LoRA's figures on the GPU, as SVG, for tools/plot_lora.py."""

import math
from xml.sax.saxutils import escape

from lora_tables import PHASES, rows_of

ROW, LEFT, WIDTH, RIGHT = 17, 150, 560, 70  # pixels; LEFT and RIGHT of the axis are labels
OURS, LOSS, PEER, FLOOR = "#1a7f5a", "#c2371f", "#7a7f87", "#b8860b"


class Drawing:
    """Lines of an SVG, with a logarithmic axis of microseconds."""

    def __init__(self, low, high):
        self.low, self.high, self.parts = math.log10(low), math.log10(high), []

    def x(self, us):
        return LEFT + WIDTH * (math.log10(us) - self.low) / (self.high - self.low)

    def text(self, x, y, text, anchor="start", colour="#222", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">'
                          f"{escape(text)}</text>")

    def line(self, x1, y1, x2, y2, colour, width=1.0):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, x, y, colour):
        """Filled, but hollow for a peer."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"white" if colour == PEER else colour}" '
                          f'stroke="{colour}" stroke-width="1.5"/>')

    def row(self, row, y):
        """The floor as a tick, heddle and the best peer as dots, joined; red where heddle is the slower one."""
        colour = OURS if row.us <= row.peer_us else LOSS
        self.text(LEFT - 10, y + 4, row.label, "end")
        self.line(self.x(row.us), y, self.x(row.peer_us), y, colour, 2)
        self.line(self.x(row.floor), y - 6, self.x(row.floor), y + 6, FLOOR, 2)
        self.dot(self.x(row.peer_us), y, PEER)
        self.dot(self.x(row.us), y, colour)
        self.text(LEFT + WIDTH + 12, y + 4, f"{row.peer_us / row.us:.2f}x", colour=colour,
                  weight="normal" if colour == OURS else "bold")

    def legend(self, y):
        for x, colour, name in ((0, OURS, "heddle"), (90, LOSS, "heddle, slower"), (220, PEER, "best peer")):
            self.dot(LEFT + x, y - 4, colour)
            self.text(LEFT + x + 10, y, name)
        self.line(LEFT + 320, y - 10, LEFT + 320, y + 2, FLOOR, 2)
        self.text(LEFT + 330, y, "bytes at 4.6 TB/s")
        self.text(LEFT + WIDTH + 12, y, "faster by")

    def axis(self, top, bottom):
        for exponent in range(math.ceil(self.low), math.floor(self.high) + 1):
            x = self.x(10.0**exponent)
            self.line(x, top, x, bottom, "#ddd")
            self.text(x, bottom + 14, f"{10.0**exponent:g} us", "middle")


def plot_of(results, peers):
    rows = [row for row in rows_of(results, peers) if row.peer_us]
    values = [us for row in rows for us in (row.us, row.floor, row.peer_us)]
    drawing = Drawing(10 ** math.floor(math.log10(min(values))), 1.2 * max(values))
    drawing.legend(20)
    y = 36
    for phase, title in PHASES.items():
        of_phase = [row for row in rows if row.phase == phase]
        drawing.text(LEFT, y + 10, f"{title} (site, rank, tokens/adapters)", weight="bold")
        y += 28
        drawing.axis(y - 8, y + ROW * len(of_phase) - 8)
        for row in of_phase:
            drawing.row(row, y)
            y += ROW
        y += 24
    width, body = LEFT + WIDTH + RIGHT, "\n".join(drawing.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
            f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')
