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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import check_records

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
        code, out, err = run("model", "--samples", 1, "--tokens", 2, "--context", 40, "--kv-type", "bf16", "--speculate", "ngram",
                             "--json", self.json)
        self.assertEqual(code, 0, err)
        object = json.loads(self.json.read_text())
        self.assertEqual((object["kv_type"], object["speculation"]), ("bf16", "ngram"))
        speeds = {figure["name"]: figure["samples"][0] for figure in object["results"] if figure["unit"] == "tokens/s"}
        self.assertEqual(list(speeds), ["decode_1_row_behind_40", "decode_8_rows_behind_40"])
        self.assertGreater(min(speeds.values()), 0)

    def shape(self, context=256, vocabulary=300):
        """The config.json of a tiny model."""
        config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": vocabulary, "max_position_embeddings": context}
        path = self.json.with_name("config.json")
        path.write_text(json.dumps(config))
        return path

    def test_an_engine_on_a_model_made_of_a_seed(self):
        shape = self.shape()
        code, out, err = run("engine", "--shape", shape, "--rows", "1/1", "3/2", "2/0", "3/1/2", "--context", 40, "--prompt", 100, "--samples", 2,
                             "--beside", 3, "--prefill-chunk", 30, "--tokens", 4, "--rank", 8, "--weights", "q8_0", "--commit", "1234567", "--json", self.json)
        self.assertEqual(code, 0, err)
        report = json.loads(self.json.read_text())
        self.assertEqual(check_records.faults_of(report), [])
        self.assertEqual((report["weights"], report["rank"], report["kv_type"], report["speculation"]), ("q8_0", 8, "f32", "off"))
        records = report["records"]
        self.assertEqual([r["op"] for r in records], ["plain_reads", *["decode_step"] * 4, *["prompt"] * 4, "prompt_beside_rows",
                                                   "longest_step_beside_prompt"])
        self.assertEqual([(r["rows"], r["adapters"], r["base_rows"], r["context"]) for r in records[1:5]],
                         [(1, 1, 0, 40), (3, 2, 0, 40), (2, 0, 2, 40), (3, 1, 2, 40)])
        self.assertEqual([(r["prompts"], r["tokens"], r["adapters"]) for r in records[5:9]], [(1, 100, 0), (1, 100, 1), (8, 96, 0), (8, 96, 8)])
        prompt, longest = records[9:]
        self.assertEqual([(r["tokens"], r["rows"], r["context"]) for r in (prompt, longest)], [(100, 3, 40)] * 2)
        self.assertLess(longest["ms"], prompt["ms"])  # it comes in four steps
        # Projections and head of 34 bytes for 32, keys and values in f32, adapters in f16.
        layer, kv, adapter = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96, 2 * 2 * 32 * 4 * 40, 2 * 2 * 8 * (4 * 64 + 2 * (64 + 32) + 3 * (64 + 96))
        weights = (2 * layer + 300 * 64) * 34 / 32
        for record in records[1:5]:
            self.assertAlmostEqual(record["bytes"], weights + record["rows"] * kv + record["adapters"] * adapter, delta=0.02 * weights)
        for record in records:
            self.assertEqual(len(record["samples"]), 2)
            self.assertGreater(min(record["samples"]), 0)
        self.assertEqual(len(out.splitlines()), len(records) + 4)  # below each step the times of host and device

    def prefix(self, figure, *arguments, context=256, vocabulary=300):
        """The records of one figure of `heddle-bench prefix`, by name."""
        code, out, err = run("prefix", "--figure", figure, "--shape", self.shape(context, vocabulary), "--samples", 1 if figure == "lookup" else 2,
                             "--rank", 8, "--commit", "1234567", "--json", self.json, *arguments)
        self.assertEqual(code, 0, err)
        report = json.loads(self.json.read_text())
        self.assertEqual(check_records.faults_of(report), [])
        records = {record["figure"]: record for record in report["records"]}
        for name, record in records.items():
            self.assertIn(name, out)
            self.assertGreater(min(record["samples"]), 0, name)
            if figure != "lookup":
                self.assertEqual(len(record["samples"]), 1 if name.startswith("first_tokens") else 2, name)
        return records

    def test_prefixes_that_all_requests_share(self):
        records = self.prefix("shared", "--requests", 5, "--prompt", 96, "--shared", 64)
        self.assertEqual(list(records), ["resident", "prefix_once", "warm", "warm_to_launch", "cold", "warm_over_resident",
                                         "cold_over_prefix_and_resident"])
        for record in records.values():
            self.assertEqual((record["requests"], record["prompt"], record["shared"]), (5, 96, 64))
        self.assertEqual(records["cold_over_prefix_and_resident"]["found"], 4 * 64)  # computed once
        for ratio, above, below in (("warm_over_resident", "warm", ["resident"]),
                                    ("cold_over_prefix_and_resident", "cold", ["prefix_once", "resident"])):
            for i, sample in enumerate(records[ratio]["samples"]):
                self.assertAlmostEqual(sample * sum(records[name]["samples"][i] for name in below), records[above]["samples"][i])

    def test_chats_with_and_without_the_prefix_cache(self):
        records = self.prefix("chats", "--users", 4, "--num-adapters", 3, "--turns", 3, "--prompt", 20, "--tokens", 12)
        cached, computed, ratio = (records[name] for name in ("chats_with_cache", "chats_without_cache", "chats_without_over_with"))
        # Turns of 20, 52 and 84 tokens; 32 and 64 of these are as before, but for the token drawn last, which was never computed.
        self.assertEqual(cached["tokens_asked"], [4 * (20 + 52 + 84)] * 2)
        self.assertEqual((cached["tokens_found"], computed["tokens_found"]), ([4 * (31 + 63)] * 2, [0, 0]))
        self.assertEqual([len(turns) for turns in cached["each_turn_ms"]], [3, 3])
        self.assertEqual(ratio["rounds_of_other_answers"], 0)

    def test_how_long_finding_pages_takes(self):
        records = self.prefix("lookup")
        self.assertEqual({name: record["pages_found"] for name, record in records.items()},
                         {"lookup_2048": 128, "lookup_4096": 256, "lookup_32768": 2048, "lookup_nothing": 0})
        for record in records.values():
            self.assertEqual(len(record["samples"]), 100)
            self.assertLessEqual(record["median"], record["p99"])

    def test_requests_that_share_nothing(self):
        records = self.prefix("apart", "--requests", 6, "--batch", 3, "--prompt", 40, "--tokens", 4)
        self.assertEqual(list(records), ["apart_with_cache", "apart_without_cache", "apart_with_over_without",
                                         "apart_by_processor_time"])
        self.assertEqual({record["cache_pages"] for record in records.values()}, {17})  # evictions: all requests leave 12 more

    def test_requests_that_start_now_or_when_there_is_room_for_the_longest_answer(self):
        records = self.prefix("admit", "--requests", 30, "--tokens", 100, "--cache-tokens", 4500, context=8192)
        now, longest = records["admit_now"], records["admit_longest"]
        self.assertGreater(min(now["parkings"]), 0)
        self.assertEqual(longest["parkings"], [0, 0])
        self.assertEqual(longest["rows_per_step"], [1, 1])  # the cache holds one of the longest
        self.assertGreater(min(now["rows_per_step"]), 10)

    def test_decode_steps_with_penalties_and_likely_tokens(self):
        records = self.prefix("rules", "--context", 40, "--batch", 6, "--num-adapters", 3, "--tokens", 4)
        self.assertEqual(list(records), ["step", "step_with_rules", "step_with_rules_over_without"])

    def test_decode_steps_of_rows_with_schemas_of_their_own(self):
        records = self.prefix("formats", "--context", 40, "--batch", 3, "--num-adapters", 2, "--tokens", 4,
                              "--vocabulary", os.environ["HEDDLE_MODEL"], context=1024, vocabulary=49152)
        self.assertEqual(list(records), ["first_tokens_with_formats", "step", "step_with_formats", "step_with_formats_over_without"])

    def test_an_adapter_that_is_replaced_under_requests_that_run(self):
        code, out, err = run("swaps", "--shape", "tiny", "--swaps", 60, "--batch", 4, "--prompt", 8, "--tokens", 12, "--rank", 4, "--threads", 2,
                             "--device", "cpu", "--json", self.json)
        self.assertEqual(code, 0, err)
        finish, switch = json.loads(self.json.read_text())["records"]
        self.assertEqual([record["running"] for record in (finish, switch)], ["finish", "switch"])
        for record in (finish, switch):
            self.assertEqual((record["swaps"], record["mixed"]), (60, 0))
            self.assertGreater(record["answers"], 0)
        self.assertEqual(finish["switches"], 0)
        self.assertGreater(switch["switches"], 0)
        self.assertIn("swap_switch", out)

    def test_what_it_refuses(self):
        self.refused("engine", "model", says=["alone"])
        self.refused("engine", "--shape", "/no/such.json", says=["/no/such.json", "llama-3.1-8b", "config.json"])
        for wrong in ("1", "1/2", "0/0", "2/-1", "a/1", "1/1x", "2/2/1", "2/1/-1"):
            self.refused("engine", "--rows", wrong, says=[f"--rows {wrong}", "32/8"])
        self.refused("engine", "--speculate", "ngram", says=["--speculate ngram", "one token of each row", "`model`"])
        self.refused("prefix", "--figure", "hits", says=["--figure hits", "shared", "rules"])
        self.refused("prefix", "--figure", "shared", "--shape", self.shape(), "--shared", "40", says=["--shared is 40", "page size 16"])
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
