#!/usr/bin/env python3
"""tools/terminal_picture.py FILE.svg COMMAND...: records what a command shows on a terminal of 80 x 26 as a moving SVG.

  tools/terminal_picture.py docs/images/demo.svg build/heddle demo

The terminal understands what heddle's programs write: text, line ends, and the sequences that move up and erase. Where much is printed at
once it scrolls as a slow reader would like, a line every 60 ms. Frames stand one below the other, and an animation in CSS moves the
window from one to the next; the last one stays for some seconds.
"""

import html
import os
import pathlib
import pty
import re
import shlex
import sys
import time

COLUMNS, ROWS = 80, 26
CELL, LINE, MARGIN = 8.4, 18, 12  # pixels
FRAME_SECONDS, LINE_SECONDS, LAST_SECONDS = 0.08, 0.06, 6.0
SEQUENCE = re.compile(r"\x1b\[(\d*)([AJKm])|\x1b\[\?\d+[hl]")


class Terminal:
    """The lines of the screen, and where the cursor is."""

    def __init__(self):
        self.lines, self.row, self.column = [""], 0, 0

    def put(self, character):
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[:self.column] + character + line[self.column + 1:]
        self.column += 1

    def line_end(self):
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def sequence(self, number, kind):
        if kind == "A":
            self.row = max(self.row - int(number or 1), 0)
        elif kind in "JK":
            self.lines[self.row] = self.lines[self.row][:self.column]
            if kind == "J":
                del self.lines[self.row + 1:]

    def screen(self):
        return [line.rstrip() for line in self.lines[max(self.row + 1 - ROWS, 0):][:ROWS]]


def record(command):
    """(seconds, text) of all that the command writes."""
    child, file = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm", COLUMNS=str(COLUMNS), LINES=str(ROWS), NO_COLOR="1")
        os.execvp(command[0], command)
    begin, pieces = time.monotonic(), []
    while True:
        try:
            data = os.read(file, 65536)
        except OSError:  # it has ended
            break
        if not data:
            break
        pieces.append((time.monotonic() - begin, data.decode(errors="replace")))
    return pieces, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def frames_of(pieces, command):
    """(seconds, lines of the screen) of what is to be seen."""
    terminal, frames, delay, last_end = Terminal(), [], 0.0, -1.0
    for character in "$ " + shlex.join(command):
        terminal.put(character)
    frames.append((0.0, terminal.screen()))
    terminal.line_end()
    terminal.column = 0
    for when, text in pieces:
        place = 0
        while place < len(text):
            if found := SEQUENCE.match(text, place):
                terminal.sequence(found[1], found[2]) if found[2] else None
                place = found.end()
                continue
            character = text[place]
            place += 1
            if character == "\r":
                terminal.column = 0
            elif character == "\n":
                terminal.line_end()
                if len(terminal.lines) > ROWS and when + delay - last_end < LINE_SECONDS:
                    delay += LINE_SECONDS
                    frames.append((when + delay, terminal.screen()))
                last_end = when + delay
            else:
                terminal.put(character)
        if when + delay - frames[-1][0] >= FRAME_SECONDS:
            frames.append((when + delay, terminal.screen()))
    frames.append((frames[-1][0] + FRAME_SECONDS, terminal.screen()))
    return frames


def svg_of(frames):
    width, height = COLUMNS * CELL + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    total = frames[-1][0] + LAST_SECONDS
    steps = "".join(f"{100 * when / total:.2f}%{{transform:translateY({-height * i}px)}}" for i, (when, _) in enumerate(frames))
    texts = []
    for i, (_, lines) in enumerate(frames):
        rows = "".join(f'<tspan x="{MARGIN}" y="{height * i + MARGIN + LINE * (row + 0.8):.1f}">{html.escape(line)}</tspan>'
                       for row, line in enumerate(lines) if line)
        texts.append(f"<text>{rows}</text>")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">\n'
            f"<style>text{{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d7dce2;white-space:pre}}"
            f".f{{animation:f {total:.2f}s steps(1,end) infinite}}@keyframes f{{{steps}}}</style>\n"
            f'<rect width="100%" height="100%" rx="8" fill="#15181d"/>\n<g class="f">' + "\n".join(texts) + "</g>\n</svg>\n")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pieces, code = record(sys.argv[2:])
    if code != 0:
        sys.exit("".join(text for _, text in pieces) + f"\nthe command ended with {code}; nothing was written")
    file = pathlib.Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(svg_of(frames_of(pieces, sys.argv[2:])))


if __name__ == "__main__":
    main()
