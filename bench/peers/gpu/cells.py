"""What both programs measure: decode steps and prompts of an 8B shape, with names that a command line takes."""
import dataclasses
import re
import statistics

CONTEXT, RANK, CHUNK = 1024, 16, 8192
DECODE = ("32/0", "32/8", "1/1", "8/8", "64/64")
PROMPTS = ("1x8192/0", "1x8192/1", "8x1024/0", "8x1024/8")


@dataclasses.dataclass(frozen=True)
class Cell:
    """"32/8": a decode step of 32 rows, of which row i uses adapter i % 8. "8x1024/8": eight prompts of 1,024 tokens at once, with an
    adapter each."""
    rows: int
    tokens: int  # of each prompt; 0 for a decode step
    adapters: int

    @classmethod
    def read(cls, text):
        found = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?/(\d+)", text)
        if not found or int(found[3]) > int(found[1]):
            raise ValueError(f"{text!r} is no cell: expected rows and no more adapters than these, as in 32/8 or 8x1024/8")
        return cls(int(found[1]), int(found[2] or 0), int(found[3]))

    @classmethod
    def of_record(cls, record):
        if record["op"] == "decode_step":
            return cls(record["rows"], 0, record["adapters"])
        return cls(record["prompts"], record["tokens"] // record["prompts"], record["adapters"])

    def __str__(self):
        return f"{self.rows}{f'x{self.tokens}' if self.tokens else ''}/{self.adapters}"

    def record(self, samples, **facts):
        """A record of bench/results of these milliseconds."""
        ms = statistics.median(samples)
        if self.tokens:
            return dict(facts, op="prompt", tokens=self.rows * self.tokens, prompts=self.rows, adapters=self.adapters,
                        tokens_per_s=1e3 * self.rows * self.tokens / ms, ms=ms, samples=samples)
        return dict(facts, op="decode_step", rows=self.rows, adapters=self.adapters, context=CONTEXT, tokens_per_s=1e3 * self.rows / ms,
                    ms=ms, samples=samples)
