#!/usr/bin/env python3
"""The program heddle-bench: it lists and runs op benches, measures the model, and refuses what it does not know.

  python3 tests/bench_test.py HEDDLE_BENCH ADAPTERS      (HEDDLE_MODEL names the model)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEDDLE_BENCH, ADAPTERS = None, None


def run(*arguments):
    """(exit code, standard output, standard error) of the program."""
    done = subprocess.run([HEDDLE_BENCH, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json = pathlib.Path(folder.name) / "samples.json"

    def refused(self, *arguments, says):
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (2, ""), err)
        self.assertTrue(err.splitlines()[-1].startswith("heddle-bench: "), err)
        for word in says:
            self.assertIn(word, err.splitlines()[-1])

    def test_without_a_name_it_lists_the_op_benches_of_every_family(self):
        code, out, err = run()
        self.assertEqual((code, err), (0, ""))
        families = {name.split("/")[0] for name in out.split()}
        self.assertLessEqual({"activation", "attention", "linear", "lora", "norm", "rope", "sampling"}, families)

    def test_a_name_runs_the_benches_that_have_it(self):
        _, listed, _ = run()
        name = next(line for line in listed.split() if line.startswith("norm/"))
        code, out, err = run(f"^{name}$", "--json", self.json)
        self.assertEqual(code, 0, err)
        (bench,) = json.loads(self.json.read_text())["benchmarks"]
        self.assertTrue(bench["name"].startswith(name), bench)
        self.assertGreater(bench["real_time"], 0)
        self.assertIn(name, out)

    def test_the_model_with_and_without_adapters(self):
        given = ["--adapter", f"slug={ADAPTERS}/slug", "--adapter", f"cron={ADAPTERS}/cron"]
        code, out, err = run("model", "--samples", 1, "--tokens", 4, *given, "--json", self.json)
        self.assertEqual(code, 0, err)
        object = json.loads(self.json.read_text())
        self.assertEqual(object["model"], pathlib.Path(os.environ["HEDDLE_MODEL"]).name)
        figures = {figure["name"]: figure["samples"] for figure in object["results"]}
        for name in ("decode_1_row", "decode_8_rows", "decode_8_rows_8_adapters", "decode_8_rows_8_adapters_rank_16",
                     "prefill_512"):
            self.assertEqual(len(figures[name]), 1, name)
            self.assertGreater(figures[name][0], 0, name)
            self.assertIn(name, out)

    def test_the_model_behind_a_context_with_a_cache_of_16_bits(self):
        code, out, err = run("model", "--samples", 1, "--tokens", 2, "--context", 40, "--kv-type", "bf16", "--json", self.json)
        self.assertEqual(code, 0, err)
        object = json.loads(self.json.read_text())
        self.assertEqual(object["kv_type"], "bf16")
        speeds = {figure["name"]: figure["samples"][0] for figure in object["results"] if figure["unit"] == "tokens/s"}
        self.assertEqual(list(speeds), ["decode_1_row_behind_40", "decode_8_rows_behind_40"])
        self.assertGreater(min(speeds.values()), 0)

    def test_what_it_refuses(self):
        self.refused("no-such-op", says=["no-such-op", "heddle-bench"])
        self.refused("model", "lora", says=["model", "alone"])
        self.refused("model", "--adapter", "name", says=["NAME=DIR", "name"])
        self.refused("model", "--samples", "0", says=["--samples"])
        self.refused("model", "--tokens", "0", says=["--tokens"])
        self.refused("model", "--context", "0", says=["--context"])
        self.refused("model", "--kv-type", "f8", says=["kv_type is 'f8'", "bf16"])
        self.refused("model", "--model", "/no/such.gguf", says=["/no/such.gguf"])
        self.refused("--no-such-option", says=["--no-such-option", "heddle-bench --help"])

    def test_help_and_version(self):
        code, out, _ = run("--help")
        self.assertEqual(code, 0)
        for word in ("NAME", "--json", "--adapter", "--samples", "--tokens", "--threads", "model"):
            self.assertIn(word, out)
        self.assertEqual(run("--version")[0], 0)


if __name__ == "__main__":
    HEDDLE_BENCH, ADAPTERS = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1])
