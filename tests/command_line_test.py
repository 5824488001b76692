#!/usr/bin/env python3
"""The command line's contract: fields of answers, exit codes, one clear sentence for each wrong input.

  python3 tests/command_line_test.py HEDDLE ADAPTERS      (HEDDLE_MODEL names the model)
"""
import json
import math
import os
import pathlib
import re
import shutil
import struct
import sys

import gguf_copy
from program_case import ADAPTERS, ENDLESS, Case, adapters, main, run


def f32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


class Answers(Case):
    def test_fields_of_a_row(self):
        rows = self.rows({"prompt": "Opposites: hot, big, fast", "adapter": "opposite"},
                         {"messages": [{"role": "user", "content": "Say: é"}], "max_tokens": 3})
        first, second = self.answers("--adapter", f"opposite={ADAPTERS}/opposite", "--logprobs", "--prompts", rows)
        self.assertEqual(list(first), ["index", "id", "adapter", "text", "token_ids", "prompt_tokens", "cached_tokens", "completion_tokens",
                                       "finish_reason", "adapter_digest", "error", "hash", "logprobs"])
        self.assertRegex(first["adapter_digest"], "^[0-9a-f]{32}$")
        self.assertNotIn("adapter_digest", second)
        self.assertEqual((first["index"], first["adapter"], first["error"]), (0, "opposite", None))
        self.assertEqual((first["text"], first["finish_reason"]), ("COLD, SMALL, SLOW", "stop"))
        self.assertEqual((second["index"], second["adapter"], second["finish_reason"]), (1, None, "length"))
        self.assertEqual(second["completion_tokens"], 3)
        for row in (first, second):
            self.assertEqual(len(row["token_ids"]), row["completion_tokens"])
            self.assertEqual(len(row["logprobs"]), row["completion_tokens"])
            for value in row["logprobs"]:
                self.assertTrue(math.isfinite(value) and value <= 0)
                self.assertEqual(f32(value), value)

    def test_without_logprobs_there_is_no_such_field(self):
        (row,) = self.answers("Hello", "--max-batch", "1")
        self.assertNotIn("logprobs", row)

    def test_a_stop_string_ends_the_text_before_it(self):
        rows = self.rows({"prompt": "Opposites: hot, big, fast", "adapter": "opposite", "stop": [", SLOW", "nothing"]})
        (row,) = self.answers("--adapter", f"opposite={ADAPTERS}/opposite", "--prompts", rows)
        self.assertEqual((row["text"], row["finish_reason"]), ("COLD, SMALL", "stop"))

    def test_a_seed_repeats_a_sampled_row_whatever_runs_beside_it(self):
        row = {"prompt": "Tell me a story.", "temperature": 1.2, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 7,
               "max_tokens": 12}
        (alone,) = self.answers("--logprobs", "--prompts", self.rows(row))
        among = self.answers("--logprobs", "--threads", 1, "--prompts", self.rows({"prompt": "x"}, row, dict(row, seed=8)))
        self.assertEqual(among[1]["token_ids"], alone["token_ids"])
        self.assertEqual(among[1]["logprobs"], alone["logprobs"])
        self.assertNotEqual(among[2]["token_ids"], alone["token_ids"])

    def test_a_pipe_in_place_of_an_adapters_file_holds_up_nothing(self):
        shutil.copytree(ADAPTERS / "slug", self.folder / "slug")
        (self.folder / "slug" / "adapter_config.json").unlink()
        os.mkfifo(self.folder / "slug" / "adapter_config.json")
        lines = self.lines({"prompt": "Hi", "adapter": "slug"}, {"prompt": "Hi", "max_tokens": 1})
        first, second = self.answers("--adapters", self.folder, "-", code=1, stdin=lines)
        self.assertIn("is not a regular file", first["error"])
        self.assertIsNone(second["error"])

    def test_raw_text_is_not_templated(self):
        raw = self.answers("--raw", "The sky is")[0]
        chat = self.answers("The sky is")[0]
        self.assertLess(raw["prompt_tokens"], chat["prompt_tokens"])

    def test_the_file_of_statistics(self):
        path = self.folder / "stats.json"
        rows = self.rows(*[{"prompt": "Hi", "max_tokens": 4}] * 5)
        self.answers("--stats", path, "--max-batch", 2, "--prompts", rows)
        stats = json.loads(path.read_text())
        self.assertEqual((stats["rows"], stats["failed_rows"]), (5, 0))
        self.assertGreater(stats["decode_seconds"], 0)
        self.assertEqual(os.listdir(self.folder).count("stats.json.partial"), 0)

    def test_the_default_model_is_found_from_anywhere(self):
        env = {k: v for k, v in os.environ.items() if k != "HEDDLE_MODEL"}
        cache = self.folder / "heddle/models"
        cache.mkdir(parents=True)
        (cache / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(os.environ["HEDDLE_MODEL"])
        code, out, err = run("generate", "--json", "Hi", "--raw", env=dict(env, XDG_CACHE_HOME=self.folder))
        self.assertEqual(code, 0, err)
        self.refused("generate", "Hi", env=dict(env, XDG_CACHE_HOME="/nowhere"), says=["no model", "/nowhere", "--model"])


class RowsThatFail(Case):
    def test_they_fail_alone_where_that_is_wanted(self):
        rows = self.rows({"prompt": "Hi", "max_tokens": 2}, {"prompt": "Hi", "adapter": "nobody"},
                         {"prompt": "loom " * 9000}, {"prompt": "Hi", "max_tokens": 2})
        answers = self.answers("--keep-going", "--prompts", rows, code=1)
        self.assertEqual([a["finish_reason"] for a in answers], ["length", "error", "error", "length"])
        self.assertIn("nobody", answers[1]["error"])
        self.assertEqual((answers[1]["text"], answers[1]["token_ids"]), ("", []))
        self.assertIn("8192", answers[2]["error"])
        self.assertEqual(answers[0]["token_ids"], answers[3]["token_ids"])


class Limits(Case):
    def test_peak_memory_is_little_more_than_the_file(self):
        path = self.folder / "stats.json"
        names = sorted(folder.parent.name for folder in ADAPTERS.glob("*/adapter_config.json"))
        adapter_bytes = sum(f.stat().st_size for f in ADAPTERS.glob("*/*.safetensors"))
        rows = self.rows(*[{"prompt": "Why is the sky blue?", "max_tokens": 40}] * 8)
        self.answers(*adapters(*names), "--stats", path, "--prompts", rows)
        peak = json.loads(path.read_text())["peak_memory_bytes"]
        page_bytes = 30 * 2 * 3 * 16 * 64 * 4  # of the default model, pages of 16 tokens
        pages = 8 * math.ceil((37 + 40) / 16)
        model = os.stat(os.environ["HEDDLE_MODEL"]).st_size
        limit = 1.15 * model + pages * page_bytes + adapter_bytes + 100e6
        print(f"peak {peak / 1e6:.0f} MB, limit {limit / 1e6:.0f} MB, file {model / 1e6:.0f} MB", file=sys.stderr)
        self.assertLess(peak, limit)


    def test_rows_wait_for_the_memory_of_the_kv_cache_and_answer_the_same(self):
        rows = self.rows(*[{"prompt": f"Count to {i}.", "max_tokens": 12} for i in range(6)])
        roomy = self.answers("--logprobs", "--prompts", rows)
        tight = self.answers("--logprobs", "--kv-memory", "4MiB", "--prompts", rows)  # 5 pages: one row at a time
        self.assertEqual(self.said(tight), self.said(roomy))
        code, out, err = run("generate", "--kv-memory", "2949120", "--max-tokens", 300, "Hi")
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, r"may take \d+ tokens, which need \d+ pages of the KV cache \(\d+ bytes\), but it has 4 \(kv_memory: 2949120 bytes\)")

    def test_the_type_of_the_kv_cache_decides_the_bytes_of_its_pages_and_costs_little(self):
        rows = self.rows({"prompt": "Count to 5.", "max_tokens": 12})
        f32 = self.answers("--logprobs", "--prompts", rows)[0]
        for kind, pages, bound in ("f16", 8, 1e-2), ("bf16", 8, 1e-1), ("fp8", 15, 1.0):
            code, _, err = run("generate", "--kv-type", kind, "--kv-memory", "2949120", "--max-tokens", 300, "Hi")
            self.assertEqual(code, 2)
            self.assertIn(f"it has {pages} (kv_memory: ", err)
            rounded = self.answers("--logprobs", "--kv-type", kind, "--prompts", rows)[0]
            self.assertEqual(rounded["token_ids"], f32["token_ids"])
            self.assertNotEqual(rounded["logprobs"], f32["logprobs"])
            self.assertNotEqual(rounded["hash"], f32["hash"])
            worst = max(abs(a - b) for a, b in zip(rounded["logprobs"], f32["logprobs"]))
            print(f"{kind}: log-probabilities differ by {worst:.1e}", file=sys.stderr)
            self.assertLess(worst, bound)

    def test_the_first_line_on_standard_error_says_where_it_runs(self):
        code, _, err = run("generate", "--threads", "2", "--max-tokens", 1, "Hi")
        self.assertEqual((code, err.splitlines()[0]), (0, "heddle: running on cpu (2 threads)"))
        code, _, err = run("generate", "--threads", "1", "--device", "cpu", "--max-tokens", 1, "Hi")
        self.assertEqual((code, err.splitlines()[0]), (0, "heddle: running on cpu (1 thread)"))

    def test_adapters_of_a_folder_answer_like_those_that_are_given(self):
        named = [{"prompt": "Opposites: hot, big, fast", "adapter": name, "max_tokens": 6} for name in ("opposite", "slug", "sql", "opposite")]
        rows = self.rows(*named, {"prompt": "What is a loom?", "max_tokens": 6})
        given = [f"--adapter={name}={ADAPTERS}/{name}" for name in ("opposite", "slug", "sql")]
        want = self.answers(*given, "--logprobs", "--prompts", rows)
        one_at_a_time = ("--adapters", ADAPTERS, "--adapter-memory", "4M", "--logprobs", "--prompts", rows)
        self.assertEqual(self.said(self.answers(*one_at_a_time)), self.said(want))
        for name, says in (("nobody", "has no adapter of this name"), ("../adapters/sql", "it holds a '/'")):
            rows = self.rows({"prompt": "Hi", "adapter": name})
            self.refused("generate", "--adapters", ADAPTERS, "--prompts", rows, says=["unknown adapter", name, says])
        self.refused("generate", "--adapters", ADAPTERS, "--adapter-memory", "9999", "--use", "sql", "Hi",
                     says=["sql: needs", "there are 9999 (adapter_memory: 9999 bytes)"])
        self.refused("generate", "--adapters", ADAPTERS, "--use", "none", "Hi", says=["unknown adapter 'none'"])

    def test_two_hundred_adapters_take_the_memory_of_eight(self):
        folder, stats = self.folder / "many", self.folder / "stats.json"
        size = (ADAPTERS / "sql" / "adapter_model.safetensors").stat().st_size
        for i in range(200):
            shutil.copytree(folder / "a0" if i else ADAPTERS / "sql", folder / f"a{i}", copy_function=os.link if i else shutil.copy)
        peaks = []
        for count in (1, 200):
            rows = self.rows(*[{"prompt": "Hi", "adapter": f"a{i}", "max_tokens": 2} for i in range(count)])
            answers = self.answers("--adapters", folder, "--adapter-memory", 8 * size, "--max-batch", 8, "--raw", "--logprobs",
                                   "--stats", stats, "--prompts", rows)
            told = json.loads(stats.read_text())
            self.assertEqual(told["adapter_loads"], count)
            self.assertEqual({(a["text"], *a["logprobs"]) for a in answers}, {(answers[0]["text"], *answers[0]["logprobs"])})
            print(f"{count}: peak {told['peak_memory_bytes'] / 1e6:.0f} MB, loads {told['adapter_seconds']:.3f} s", file=sys.stderr)
            peaks.append(told["peak_memory_bytes"])
        self.assertLess(peaks[1] - peaks[0], 16 * size)  # of 200

    def test_weights_in_block_formats_are_not_packed_again(self):
        arguments = ("generate", "--raw", "--max-tokens", 4, "1 2 3 4")
        code, out, err = run(*arguments, "--weights", "q8_0")
        self.assertEqual(code, 0, err)
        self.assertIn("weights: nothing was packed to Q8_0", err)
        self.assertEqual(out, run(*arguments)[1])
        self.assertNotIn("weights:", run(*arguments, "--weights", "q8_0", "--quiet")[2])


class PrefixCache(Case):
    prompt = " ".join(f"{i}, {i + 1}," for i in range(1, 20))  # of some pages, 16 tokens each

    def run_of(self, *options, rows, max_batch=1):
        """(answers, statistics, standard error); the rows run one after the other."""
        stats = self.folder / "stats.json"
        code, out, err = run("generate", "--json", "--logprobs", "--raw", "--max-batch", max_batch, "--stats", stats, *options,
                             "--prompts", self.rows(*rows))
        self.assertEqual(code, 0, err)
        return self.parse(out), json.loads(stats.read_text()), err

    def test_tokens_that_were_found_are_told(self):
        row = {"prompt": self.prompt, "max_tokens": 4}
        rows = [row, row, dict(row, cache_salt="a"), dict(row, cache_salt="a"), dict(row, cache_salt="b"), dict(row, cache_salt=None)]
        answers, stats, err = self.run_of(rows=rows)
        tokens = answers[0]["prompt_tokens"]
        found = tokens - 1  # the last one is computed
        self.assertGreater(found, 32)
        self.assertEqual([answer["cached_tokens"] for answer in answers], [0, found, 0, found, 0, found])
        told = [stats[name] for name in ("prefix_tokens", "cached_tokens", "prefill_tokens", "parkings")]
        self.assertEqual(told, [6 * tokens, 3 * found, 6 * tokens - 3 * found, 0])
        self.assertRegex(err, rf"\ncached +{3 * found}  \({50 * found / tokens:.1f} % of the prompts' tokens\)\n")
        self.assertNotIn("parked", err)

    def test_without_it_nothing_is_found_and_answers_are_the_same(self):
        row = {"prompt": self.prompt, "max_tokens": 4}
        rows = [row, row, dict(row, cache_salt="a"), dict(row, n=2, temperature=1), dict(row, each_adapter=[None, None])]
        answers, stats, err = self.run_of("--no-prefix-cache", rows=rows)
        self.assertEqual([answer["cached_tokens"] for answer in answers[:3]], [0] * 3)
        self.assertEqual([part["cached_tokens"] for part in answers[3]["choices"] + answers[4]["each_adapter"]], [0] * 4)
        self.assertEqual([stats[name] for name in ("prefix_tokens", "cached_tokens", "parkings")], [0] * 3)
        self.assertNotIn("cached", err)
        with_it = self.run_of(rows=rows)[0]
        self.assertEqual([row["hash"] for row in with_it], [row["hash"] for row in answers], "--resume finds them")
        self.assertEqual(len({row["hash"] for row in answers[:3]}), 1)
        for mine, other in zip(with_it[:3], answers[:3], strict=True):
            self.assertEqual(self.said([mine]), self.said([other]))
        for name in ("choices", "each_adapter"):
            self.assertEqual(*([self.said(row[name]) for row in rows if name in row] for rows in (with_it, answers)))

    def test_a_row_is_parked_only_where_rows_start_at_once(self):
        rows = [{"prompt": prompt, "max_tokens": 90} for prompt in (ENDLESS, ENDLESS.removeprefix("1 ") + " 11")]
        options = ("--kv-memory", 10 * 737280)  # pages, of which each row starts with 4 and needs 7
        waiting, stats, err = self.run_of("--admit", "longest", *options, rows=rows, max_batch=2)
        self.assertEqual(stats["parkings"], 0)
        for start in ((), ("--admit", "now"), ("--admit", "now", "--no-prefix-cache")):
            answers, stats, err = self.run_of(*start, *options, rows=rows, max_batch=2)
            self.assertEqual(*(sorted(self.said(each), key=lambda row: row["index"]) for each in (answers, waiting)))
            self.assertGreaterEqual(stats["parkings"], 1)
            self.assertRegex(err, rf"\nparked +{stats['parkings']}  ")

    def test_what_is_refused(self):
        for wrong in ("later", "", "Now"):
            self.refused("generate", f"--admit={wrong}", "Hi", says=[f"--admit: {wrong} not in", "now,longest"])
        for wrong, says in (("", "cache_salt is empty, expected a text or null"), (7, "cache_salt is number, expected a string")):
            self.refused("generate", "--prompts", self.rows({"prompt": "Hi", "cache_salt": wrong}), says=[f"line 1: {says}"])


class UnknownSettings(Case):
    """What a model says and heddle knows nothing of is a warning, with --strict an error."""

    def told(self, model, key):
        arguments = ("generate", "--model", model, "--raw", "--max-tokens", 1, "ab")
        code, _, err = run(*arguments)
        self.assertEqual(code, 0, err)
        self.assertTrue(err.startswith("heddle: running on "), err)
        self.assertEqual(err.count("does not know"), 1 if key else 0, err)
        if not key:
            self.assertEqual(run(*arguments, "--strict")[0], 0)
            return
        file = model if model.is_file() else model / "config.json"
        sentence = f"{file}: {key} is a setting that heddle does not know"
        self.assertIn(f"warning: {sentence}\n", err)
        self.refused(*arguments, "--strict", says=[sentence])
        self.refused(*arguments, "--strict", "--quiet", says=[sentence])

    def test_of_a_gguf_file(self):
        model = pathlib.Path(os.environ["HEDDLE_MODEL"])
        self.told(model, None)
        self.told(gguf_copy.copy(model, self.folder / "same.gguf"), None)
        self.told(gguf_copy.copy(model, self.folder / "more.gguf", ["llama.of.tomorrow", "general.of.tomorrow"]), "llama.of.tomorrow")
        self.told(gguf_copy.copy(model, self.folder / "shown.gguf", ["llama.\33[31m"]), r"llama.\u001b[31m")

    def test_of_a_folder(self):
        config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4, "intermediate_size": 4, "max_position_embeddings": 16,
                  "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 2, "vocab_size": 2}
        layer = "model.layers.0."
        shapes = {name + ".weight": [4, 4] for name in (
            *(f"{layer}self_attn.{part}_proj" for part in "qkvo"), *(f"{layer}mlp.{part}_proj" for part in ("gate", "up", "down")))}
        shapes |= {name + ".weight": [4] for name in ("model.norm", layer + "input_layernorm", layer + "post_attention_layernorm")}
        shapes |= {"model.embed_tokens.weight": [2, 4], "lm_head.weight": [2, 4]}
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 4 * math.prod(shape)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        weights = self.file("model/model.safetensors", struct.pack("<Q", len(text)) + text + bytes(end))
        model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
        self.file("model/tokenizer.json", json.dumps({"added_tokens": [], "model": model}))
        self.file("model/config.json", json.dumps(config))
        self.told(weights.parent, None)
        self.file("model/config.json", json.dumps(dict(config, attention_dropout=0.1, of_tomorrow=7)))
        self.told(weights.parent, "of_tomorrow")


class Speculation(Case):
    """Drafts change no answer; those of a format that allows one token alone are always accepted."""

    FORCED = {"prompt": "Yes or no?", "guided_choice": ["a forced answer of several tokens"], "max_tokens": 24}

    def drafts(self, *arguments):
        stats = self.folder / "stats.json"
        answers = self.answers("--logprobs", "--stats", stats, *arguments)
        return self.said(answers), json.loads(stats.read_text()).get("drafts")

    def test_answers_are_those_without_and_statistics_count_the_drafts(self):
        predicted = {"type": "content", "content": [{"type": "text", "text": "one, "}, {"type": "text", "text": "two"}]}
        rows = self.rows(dict(self.FORCED, speculation=True), {"prompt": "Count to 5.", "max_tokens": 12, "prediction": predicted},
                         dict(self.FORCED, speculation="off"), {"prompt": "Hi", "max_tokens": 3, "speculation": False})
        plain = self.rows(self.FORCED, {"prompt": "Count to 5.", "max_tokens": 12}, self.FORCED, {"prompt": "Hi", "max_tokens": 3})
        want, none = self.drafts("--prompts", plain)
        self.assertIsNone(none)
        forced = 0
        for options in (["--speculate", "ngram"], ["--speculate", "suffix", "--draft-tokens", 3, "--draft-memory", "1M"],
                        ["--speculate", "ngram", "--draft-ngram", "3:3"],
                        ["--speculative-config", json.dumps({"method": "draft_model", "model": os.environ["HEDDLE_MODEL"]})],
                        ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}']):
            got, drafts = self.drafts(*options, "--prompts", rows)
            self.assertEqual([(row["text"], row["token_ids"], row["logprobs"]) for row in got],
                             [(row["text"], row["token_ids"], row["logprobs"]) for row in want])
            self.assertEqual(list(drafts["by_source"]), ["ngram", "suffix", "prediction", "format", "model", "heads", "eagle3"])
            by_source, by_place = drafts["by_source"].values(), drafts["by_place"]
            for key in ("drafted", "accepted"):
                self.assertEqual(sum(counts[key] for counts in by_source), drafts[key])
                self.assertEqual(sum(counts[key] for counts in by_place), drafts[key])
            forced += drafts["by_source"]["format"]["drafted"]
        self.assertGreater(forced, 0)  # what steps cost is measured on a machine that may be busy, so not with each of the options

    def test_a_format_that_forces_tokens_has_drafts_that_are_accepted(self):
        rows = self.rows(self.FORCED)
        code, out, err = run("generate", "--speculate", "ngram", "--prompts", rows)
        self.assertEqual((code, out.strip()), (0, "a forced answer of several tokens"), err)
        drafted, accepted = map(int, re.search(r"^drafted +(\d+)  \((\d+) accepted, ", err, re.MULTILINE).groups())
        self.assertGreater(accepted, 0)
        self.assertLessEqual(accepted, drafted)
        self.assertNotIn("drafted", run("generate", "--prompts", rows)[2])

    def test_wrong_options(self):
        config = ["generate", "Hi", "--speculative-config"]
        works = ["method, num_speculative_tokens, prompt_lookup_min, prompt_lookup_max and model"]
        for given, says in (
                ('{"method": "mtp"}', ['method "mtp" is not supported', '"ngram", "suffix", "draft_model", "medusa" or "eagle3"']),
                ('{"method": "eagle3"}', ["field model is missing"]),
                ('{"method": "ngram", "model": "x"}', ['method "ngram" takes no model']),
                ('{"method": "draft_model", "model": "x", "prompt_lookup_max": 2}', ['method "draft_model" takes no prompt_lookup_max']),
                ('{"method": "ngram", "quantization": "x"}', ['"quantization" is not supported', *works]),
                ('{"method": "suffix", "suffix_decoding_max_cached_requests": 9}', ["suffix_decoding_max_cached_requests", "--draft-memory", *works]),
                ('{"num_speculative_tokens": 3}', ["field method is missing"]),
                ('{"method": "ngram", "num_speculative_tokens": 16}', ["num_speculative_tokens is 16, expected 1 to 15"]),
                ('{"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 2}', ["prompt_lookup_min is 5", "prompt_lookup_max = 2"]),
                ('["ngram"]', ["is array, expected an object of", *works]), ("ngram", ["malformed JSON"])):
            self.refused(*config, given, says=["--speculative-config", *says])
        self.refused(*config, '{"method": "ngram"}', "--speculate", "ngram", says=["--speculative-config", "--speculate", "excludes"])
        self.refused("generate", "Hi", "--speculate", "medusa", says=["--speculate", "medusa", "off,ngram,suffix"])
        self.refused("generate", "Hi", "--draft-tokens", "4", says=["--draft-tokens requires --speculate"])
        self.refused("generate", "Hi", "--speculate", "ngram", "--draft-tokens", "16", says=["--draft-tokens", "0 to 15"])
        for wrong in ("4:2", "0:4", "2", "2:65", "2:4:6", ":4"):
            self.refused("generate", "Hi", "--speculate", "ngram", "--draft-ngram", wrong, says=[f"--draft-ngram {wrong}: expected MIN:MAX", "2:4"])
        self.refused("generate", "Hi", "--draft-memory", "lots", says=["--draft-memory lots", "auto"])
        self.refused("generate", "Hi", "--speculate", "model", says=["draft_model (--draft-model) is empty"])
        self.refused("generate", "Hi", "--speculate", "model", "--draft-model", self.folder / "none", says=["--draft-model", self.folder / "none"])


class WrongInput(Case):
    def test_options(self):
        for wrong in ("0", "-5", "3X", "1.5G", "lots", "99999999999G"):
            self.refused("generate", f"--kv-memory={wrong}", "Hi", says=[f"--kv-memory {wrong}", "auto", "8G"])
        self.refused("generate", "--kv-memory", "100K", "Hi", says=["kv_memory is 102400", "page of 16 tokens", "737280"])
        self.refused("generate", "--weights", "q3", "Hi", says=["weights is 'q3', expected one of q8_0, q5_1, q5_0, q4_1, q4_0, f16, bf16"])
        self.refused("generate", "--activations", "int4", "Hi", says=["activations is 'int4', expected f32 or int8"])
        self.refused("generate", "--kv-type", "f64", "Hi", says=["kv_type is 'f64', expected one of f32, f16, bf16, fp8"])
        self.refused("generate", "--weights", "", "Hi", says=["--weights", "is empty"])
        for option in ("--use", "--model", "--adapters", "--weights", "--seed"):  # of a variable of the shell that was not set
            self.refused("generate", option, "", "Hi", says=[option, "is empty"])
            self.refused("generate", f"{option}=", "Hi", says=[option, "is empty"])
        self.refused("generate", "--min-tokens", "-1", "Hi", says=["--min-tokens", "-1", "0 to 2147483647"])
        self.refused("generate", "--device", "gpu", "Hi", says=["device is 'gpu', expected cpu, cuda or cuda:1"])
        # What the CPU's program lacks, or in one with CUDA code, from which the test hides all devices, the machine.
        for command in (["generate", "Hi"], ["chat"]):
            self.refused(*command, "--device", "cuda:1", says=["cuda:1"], lacks=["this program has no CUDA code", "CUDA devices: 0"])
        self.refused("generate", "--threads", "many", "Hi", says=["--threads", "many"])
        self.refused("generate", "--no-such-option", says=["--no-such-option"])
        self.refused("generate", says=["no prompts"])
        self.refused("generate", "--adapter", "name", "Hi", says=["NAME=DIR", "name"])
        self.refused("generate", "--max-batch", "0", "Hi", says=["--max-batch"])
        self.refused("generate", "--max-context", "9000", "Hi", says=["9000", "8192"])
        self.refused("generate", "--stats", "/no/such/folder/file", "Hi", says=["/no/such/folder/file"])
        self.refused("fly", says=["fly"])
        self.refused(says=["a command is missing"])

    def test_missing_and_broken_models(self):
        self.refused("generate", "--model", "/no/such.gguf", "Hi", says=["/no/such.gguf", "No such file"])
        self.refused("generate", "--model", self.file("empty.gguf", ""), "Hi", says=["empty.gguf"])
        self.refused("generate", "--model", self.file("text.gguf", "hello, world" * 9), "Hi", says=["text.gguf", "GGUF"])
        model = pathlib.Path(os.environ["HEDDLE_MODEL"])
        with model.open("rb") as file:
            head = file.read(3_000_000)
        self.refused("generate", "--model", self.file("cut.gguf", head), "Hi", says=["cut.gguf", 3_000_000])

    def test_adapters(self):
        self.refused("generate", "--adapter", "a=/no/such/folder", "Hi", says=["/no/such/folder"])
        twice = ["--adapter", f"a={ADAPTERS}/slug", "--adapter", f"a={ADAPTERS}/cron"]
        self.refused("generate", *twice, "Hi", says=['"a"', "twice"])
        config = json.loads((ADAPTERS / "slug/adapter_config.json").read_text())
        weights = (ADAPTERS / "slug/adapter_model.safetensors").read_bytes()

        def adapter(config, weights=weights):
            folder = self.file("adapter/adapter_config.json", json.dumps(config)).parent
            self.file("adapter/adapter_model.safetensors", weights)
            return "a=" + str(folder)

        self.refused("generate", "--adapter", adapter(dict(config, use_qalora=True)), "Hi", says=["use_qalora"])
        self.refused("generate", "--adapter", adapter(dict(config, r="x")), "Hi", says=[" r ", "adapter_config.json"])
        self.refused("generate", "--adapter", adapter(dict(config, r=32)), "Hi", says=["32", "64", "lora_A"])
        self.refused("generate", "--adapter", adapter(config, weights[:5000]), "Hi", says=["5000"])
        # An adapter for another model: 32 layers of another width.
        name = "base_model.model.model.layers.0.self_attn.v_proj.lora_"
        header = json.dumps({name + "A.weight": {"dtype": "F16", "shape": [64, 100], "data_offsets": [0, 12800]},
                             name + "B.weight": {"dtype": "F16", "shape": [50, 64], "data_offsets": [12800, 19200]}})
        other = struct.pack("<Q", len(header)) + header.encode() + bytes(19200)
        self.refused("generate", "--adapter", adapter(config, other), "Hi", says=["v_proj", "100", "576"])

    def test_rows(self):
        good = {"prompt": "Hi"}
        for row, words in [
                ("{\"prompt\": ", ["malformed JSON"]),
                ("[1]", ["array", "object"]),
                ({"prompt": 5}, ["prompt", "number", "string"]),
                ({}, ["neither prompt nor messages"]),
                ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, ["both"]),
                ({"messages": []}, ["messages", "empty"]),
                ({"messages": [{"role": "user"}]}, ["messages[0]", "content"]),
                ({"messages": [{"role": 1, "content": "x"}]}, ["messages[0]", "role", "number"]),
                (dict(good, max_tokens=-1), ["max_tokens", "-1"]),
                (dict(good, max_tokens=1.5), ["max_tokens", "1.5", "integer"]),
                (dict(good, temperature="hot"), ["temperature", "hot"]),
                (dict(good, temperature=-1), ["temperature", "-1"]),
                (dict(good, top_p=2), ["top_p", "2"]),
                (dict(good, seed=2**63), ["seed", 2**63]),
                (dict(good, stop=[""]), ["stop", "empty"]),
                (dict(good, stop=[1]), ["stop", "number"]),
                (dict(good, top_p=0), ["top_p", "0"]),
                (dict(good, adapter=3), ["adapter", "number"]),
                ("[" * 5000, ["nested 65 deep", "64"]),
        ]:
            with self.subTest(row=str(row)[:60]):
                self.refused("generate", "--prompts", self.rows(good, row, good), says=["rows.jsonl, line 2", *words])
        self.refused("generate", "--prompts", "/no/such/file", says=["/no/such/file"])
        self.refused("generate", "--prompts", self.folder, says=[self.folder])

    def test_inspect(self):
        code, out, err = run("inspect", os.environ["HEDDLE_MODEL"])
        self.assertEqual((code, err), (0, ""))
        for word in ("llama.block_count = 30", "token_embd.weight  Q8_0 [49152, 576]", "Q4_1: 210 tensors",
                     "KV cache 46080 bytes a token in f32"):
            self.assertIn(word, out)
        stored = os.stat(os.environ["HEDDLE_MODEL"]).st_size
        (weights,) = re.findall(r"\n  weights (\d+) bytes\n", out)
        self.assertLess(abs(int(weights) / stored - 1), 0.1)
        code, out, err = run("inspect", ADAPTERS / "sql")
        self.assertEqual((code, err), (0, ""))
        for word in ("r 12", "bytes of memory", "down_proj  A [4, 1536]  B [576, 4]  f16  scale 2"):
            self.assertIn(word, out)
        self.refused("inspect", "/no/such/path", says=["/no/such/path"])


if __name__ == "__main__":
    main()
