#!/usr/bin/env python3
"""Ctrl-C while `heddle generate` answers, on a small random model: on the device of HEDDLE_TEST_DEVICE, cpu (the default) or cuda."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "server"))

import tiny_model
from program_case import Case, main

DEVICE = os.environ.get("HEDDLE_TEST_DEVICE", "cpu")
SHAPE = dataclasses.replace(tiny_model.TINY, layers=24)  # an endless row takes seconds on a GPU, too
ENDLESS = {"prompt": "the loom", "max_tokens": 2000}
SHORT = {"prompt": "weft", "max_tokens": 3}


class Interrupt(Case):
    def setUp(self):
        super().setUp()
        tiny_model.write_model(self.folder / "model", SHAPE)

    def generate(self, *arguments):
        return self.start("generate", "--raw", "--model", self.folder / "model", "--device", DEVICE, "--threads", 2, "--kv-memory", "100M",
                          *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_what_is_finished_is_written_and_told(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.generate("--json", "--max-batch", 4, "--stats", self.folder / "stats.json", "--prompts",
                                    self.rows(ENDLESS, *[SHORT] * 6))
            out = "".join(process.stdout.readline() for _ in range(6))
            process.send_signal(number)
            rest, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 128 + number, err)
            self.assertEqual(sorted(a["index"] for a in self.parse(out + rest)), [1, 2, 3, 4, 5, 6])
            self.assertIn("6 rows", err)
            stats = json.loads((self.folder / "stats.json").read_text())
            self.assertEqual((stats["rows"], stats["failed_rows"]), (6, 0))
            self.assertIn(f"running on {DEVICE}", err)

    def test_a_text_that_breaks_off_ends_its_line(self):
        process = self.generate("--max-tokens", ENDLESS["max_tokens"], ENDLESS["prompt"])
        process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue(out.endswith("\n"))


if __name__ == "__main__":
    main()
