"""Plots of figures as SVG: what heddle, the best peer and the floor take, and bars of several peers."""

import math
from xml.sax.saxutils import escape

ROW, WIDTH = 17, 560  # pixels
LEFT, LEFT_OF_BARS = 150, 200  # of the axis, for labels
RIGHT, RIGHT_WITH_PEER = 70, 250
OURS, LOSS, PEER, OTHER, FLOOR = "#1a7f5a", "#c2371f", "#7a7f87", "#c9ccd1", "#b8860b"


class Drawing:
    """Lines of an SVG. `place` gives the part of the axis, 0 to 1, at which a value stands; the axis begins `left` pixels from the edge."""

    def __init__(self, place, left=LEFT):
        self.place, self.left, self.parts = place, left, []

    def x(self, value):
        return self.left + WIDTH * self.place(value)

    def text(self, x, y, text, anchor="start", colour="#222", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">'
                          f"{escape(text)}</text>")

    def line(self, x1, y1, x2, y2, colour, width=1.0):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def bar(self, x1, x2, y, colour):
        self.parts.append(f'<rect x="{x1:.1f}" y="{y - 5:.1f}" width="{x2 - x1:.1f}" height="10" fill="{colour}"/>')

    def dot(self, x, y, colour):
        """Filled, but hollow for a peer."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"white" if colour == PEER else colour}" '
                          f'stroke="{colour}" stroke-width="1.5"/>')

    def axis(self, values, unit, top, bottom):
        for value in values:
            x = self.x(value)
            self.line(x, top, x, bottom, "#ddd")
            self.text(x, bottom + 14, f"{value:g} {unit}".rstrip(), "middle")

    def svg(self, right, height):
        width, body = self.left + WIDTH + right, "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def dot_plot(groups, names_peers=False):
    """Microseconds on a logarithmic axis. `groups`: (title, rows), whose rows have `label`, `us`, `floor`, `peer_us` and `peer`."""
    values = [us for _, rows in groups for row in rows for us in (row.us, row.floor, row.peer_us)]
    low, high = math.floor(math.log10(min(values))), math.log10(1.2 * max(values))
    drawing = Drawing(lambda us: (math.log10(us) - low) / (high - low))
    draw_dot_legend(drawing, 20)
    y = 36
    for title, rows in groups:
        drawing.text(drawing.left, y + 10, title, weight="bold")
        y += 28
        drawing.axis([10.0**exponent for exponent in range(low, math.floor(high) + 1)], "us", y - 8, y + ROW * len(rows) - 8)
        for row in rows:
            draw_dots(drawing, row, y, names_peers)
            y += ROW
        y += 24
    return drawing.svg(RIGHT_WITH_PEER if names_peers else RIGHT, y)


def draw_dot_legend(drawing, y):
    for x, colour, name in ((0, OURS, "heddle"), (90, LOSS, "heddle, slower"), (220, PEER, "best peer")):
        drawing.dot(drawing.left + x, y - 4, colour)
        drawing.text(drawing.left + x + 10, y, name)
    drawing.line(drawing.left + 320, y - 10, drawing.left + 320, y + 2, FLOOR, 2)
    drawing.text(drawing.left + 330, y, "bytes at 4.6 TB/s")
    drawing.text(drawing.left + WIDTH + 12, y, "faster by")


def draw_dots(drawing, row, y, names_peer):
    """The floor as a tick, heddle and the best peer as dots, joined; red where heddle is the slower one."""
    colour = OURS if row.us <= row.peer_us else LOSS
    drawing.text(drawing.left - 10, y + 4, row.label, "end")
    drawing.line(drawing.x(row.us), y, drawing.x(row.peer_us), y, colour, 2)
    drawing.line(drawing.x(row.floor), y - 6, drawing.x(row.floor), y + 6, FLOOR, 2)
    drawing.dot(drawing.x(row.peer_us), y, PEER)
    drawing.dot(drawing.x(row.us), y, colour)
    drawing.text(drawing.left + WIDTH + 12, y + 4, f"{row.peer_us / row.us:.2f}x", colour=colour,
                 weight="normal" if colour == OURS else "bold")
    if names_peer:
        drawing.text(drawing.left + WIDTH + 54, y + 4, row.peer)


def bar_plot(groups, unit, step, legend):
    """`groups`: (title, bars) with bars of (label, value, colour), from zero on. `step`: of the axis. `legend`: (colour, text)."""
    top = max(value for _, bars in groups for _, value, _ in bars)
    drawing = Drawing(lambda value: value / (1.02 * top), LEFT_OF_BARS)
    x = drawing.left
    for colour, text in legend:
        drawing.bar(x, x + 10, 16, colour)
        drawing.text(x + 16, 20, text)
        x += 40 + 6.5 * len(text)
    y = 36
    for title, bars in groups:
        drawing.text(drawing.left, y + 10, title, weight="bold")
        y += 28
        drawing.axis(range(0, int(top) + 1, step), unit, y - 8, y + ROW * len(bars) - 8)
        for label, value, colour in bars:
            drawing.text(drawing.left - 10, y + 4, label, "end")
            drawing.bar(drawing.left, drawing.x(value), y, colour)
            drawing.text(drawing.x(value) + 6, y + 4, f"{value:.0f}")
            y += ROW
        y += 24
    return drawing.svg(RIGHT, y)
