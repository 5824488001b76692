"""What is measured, the same for every peer and for heddle's model bench.

Tokens are made up: no program's speed depends on which they are, and nothing stops at an end token.
Only the model's own call is timed, never choosing the next token.
"""
import time

NUM_ROWS = 8
PROMPT_TOKENS = 32    # per row, before decoding
DECODE_TOKENS = 64    # per row and sample, where peers.py is not told otherwise
PREFILL_TOKENS = 512


def prompt_ids(row, count):
    return [100 + (7919 * row + 37 * i) % 40000 for i in range(count)]


class Stopwatch:
    """Adds up the time spent inside `with` blocks."""

    def __init__(self):
        self.seconds = 0.0

    def __enter__(self):
        self.begin = time.perf_counter()

    def __exit__(self, *_):
        self.seconds += time.perf_counter() - self.begin


def samples_of(measure, count):
    """tokens/s of `count` runs of measure, which returns (tokens, seconds); one run before them is for warming up."""
    measure()
    return [tokens / seconds for tokens, seconds in (measure() for _ in range(count))]
