#!/usr/bin/env python3
"""Nothing that a row or an option says is ignored: which adapter answers, unknown fields, what is checked before the first token."""
import json
import os
import shutil

from program_case import ADAPTERS, Case, adapters, main, run

QUESTION = "Opposites: hot, big, fast"
OPPOSITE = "COLD, SMALL, SLOW"


class WhichAdapter(Case):
    def test_the_only_adapter_answers_a_prompt_of_the_command_line(self):
        code, out, err = run("generate", *adapters("opposite"), QUESTION)
        self.assertEqual((code, out), (0, OPPOSITE + "\n"), err)
        (row,) = self.answers(*adapters("opposite"), QUESTION)
        self.assertEqual(row["adapter"], "opposite")

    def test_among_several_one_is_chosen(self):
        both = adapters("slug", "opposite")
        self.refused("generate", *both, QUESTION, says=["--use", "slug, opposite, base"])
        (row,) = self.answers(*both, "--use", "opposite", QUESTION)
        self.assertEqual((row["adapter"], row["text"]), ("opposite", OPPOSITE))
        self.refused("generate", *both, "--use", "nobody", QUESTION, says=["nobody", "slug, opposite, base"])

    def test_base_is_the_model_without_adapters(self):
        (plain,) = self.answers(QUESTION, "--max-tokens", 8)
        (base,) = self.answers(*adapters("opposite"), "--use", "base", QUESTION, "--max-tokens", 8)
        self.assertEqual((base["adapter"], base["token_ids"]), (None, plain["token_ids"]))
        self.assertNotEqual(base["text"], OPPOSITE)
        self.refused("generate", "--adapter", f"base={ADAPTERS}/slug", "Hi", says=["base"])

    def test_rows_name_adapters_as_openai_clients_do(self):
        name = os.path.basename(os.environ["HEDDLE_MODEL"])
        rows = [{"prompt": QUESTION, **names, "max_tokens": 6} for names in
                ({"model": "opposite"}, {"model": "base"}, {"model": name}, {"adapter": "base"}, {}, {"adapter": None},
                 {"model": "opposite", "adapter": "opposite"})]
        answers = self.answers(*adapters("opposite"), "--prompts", self.rows(*rows))
        self.assertEqual([a["adapter"] for a in answers], ["opposite", None, None, None, None, None, "opposite"])
        answers = self.answers(*adapters("opposite"), "--use", "opposite", "--prompts", self.rows(*rows))
        self.assertEqual([a["adapter"] for a in answers], ["opposite", None, None, None, "opposite", "opposite", "opposite"])
        for row, words in [({"model": "gpt-9"}, ["gpt-9", "opposite", name.removesuffix(".gguf")]),
                           ({"model": "base", "adapter": "opposite"}, ["model", "adapter", "one of them"]),
                           ({"adapter": "oposite"}, ["oposite", "opposite, base"])]:
            self.refused("generate", *adapters("opposite"), "--prompts", self.rows({"prompt": "Hi"}, {"prompt": "Hi", **row}),
                         says=["line 2", *words])

    def test_an_adapter_for_another_model(self):
        folder = self.folder / "adapter"
        shutil.copytree(ADAPTERS / "opposite", folder)
        config = json.loads((folder / "adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"], "HuggingFaceTB/SmolLM2-135M-Instruct")
        config["base_model_name_or_path"] = "/models/Qwen3-8B/"
        (folder / "adapter_config.json").write_text(json.dumps(config))
        wanted = ["warning", "opposite", "Qwen3-8B", "SmolLM2-135M"]
        code, out, err = run("generate", "--adapter", f"opposite={folder}", QUESTION)
        self.assertEqual((code, out), (0, OPPOSITE + "\n"))
        for word in wanted:
            self.assertIn(word, err)
        self.refused("generate", "--strict", "--adapter", f"opposite={folder}", QUESTION, says=wanted[1:])
        code, out, err = run("generate", "--strict", *adapters("opposite"), QUESTION)
        self.assertEqual((code, out), (0, OPPOSITE + "\n"))
        self.assertNotIn("warning", err)

    def test_an_adapter_that_no_row_uses_is_told(self):
        rows = self.rows({"prompt": "Hi", "max_tokens": 2, "adapter": "slug"}, {"prompt": "Hi", "max_tokens": 2})
        for stdin, source in ((None, rows), (rows.read_text(), "-")):
            code, _, err = run("generate", "--json", *adapters("slug", "cron"), "--prompts", source, stdin=stdin)
            self.assertEqual(code, 0, err)
            self.assertIn("note: no row uses adapter cron\n", err)
            self.assertNotIn("adapter slug", err)


class Fields(Case):
    def test_an_unknown_field_is_an_error_with_the_one_that_was_meant(self):
        good = {"prompt": "Hi"}
        for row, words in [
                (dict(good, temprature=1), ['"temprature"', "temperature"]),
                (dict(good, max_token=1), ['"max_token"', "max_tokens"]),
                (dict(good, Adapter="x"), ['"Adapter"', "adapter"]),
                (dict(good, custom_ids="x"), ['"custom_ids"', "custom_id"]),
                (dict(good, **{"x" * 5000: 1}), ["xxx...", "unknown field"]),
                ({"messages": [{"role": "user", "content": "x", "roll": 1}]}, ["messages[0]", '"roll"', "role"]),
                ('{"prompt": "a", "prompt": "b"}', ['"prompt"', "twice"]),
                ('{"prompt": "a", "metadata": {"x": 1, "x": 2}}', ['"x"', "twice"]),
        ]:
            with self.subTest(row=str(row)[:60]):
                self.refused("generate", "--prompts", self.rows(good, good, row), says=["rows.jsonl, line 3", *words])

    def test_fields_of_conversations_reach_the_template_and_the_hash(self):
        row = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 1}
        rows = [row, dict(row, add_generation_prompt=False), dict(row, tools=[]), dict(row, chat_template_kwargs={"a": 1}),
                {"messages": [dict(row["messages"][0], name="Ann")], "max_tokens": 1}, parts]
        answers = self.answers("--prompts", self.rows(*rows))
        self.assertEqual(len({answer["hash"] for answer in answers}), len(rows))
        whole, without = answers[0]["prompt_tokens"], answers[1]["prompt_tokens"]
        self.assertGreater(whole, without)
        self.assertEqual([answer["prompt_tokens"] for answer in answers[2:]], [whole] * 4)
        for field in ("tools", "documents"):  # the model's template reads neither
            self.refused("generate", "--prompts", self.rows(dict(row, **{field: [{"a": 1}]})),
                         says=["rows.jsonl, line 1", f"has no place for {field}"])

    def test_ids_are_echoed_as_they_are(self):
        row = {"prompt": "Hi", "max_tokens": 1}
        rows = [dict(row, id="é\n1", custom_id="c", metadata={"b": [1.5, None], "a": {"z": 1}}), dict(row, id=7), row]
        first, second, third = self.answers("--prompts", self.rows(*rows))
        self.assertEqual(list(first)[:4], ["index", "id", "custom_id", "metadata"])
        self.assertEqual((first["id"], first["custom_id"]), ("é\n1", "c"))
        self.assertEqual(json.dumps(first["metadata"]), json.dumps(rows[0]["metadata"]))
        self.assertEqual((second["id"], third["id"]), (7, None))
        self.assertNotIn("metadata", second)

    def test_options_are_the_defaults_of_rows(self):
        sampled = ["--temperature", 1.5, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.01, "--seed", 3, "--max-tokens", 6]
        row = {"prompt": "Tell me a story."}
        own = dict(row, temperature=1.5, top_k=50, top_p=0.95, min_p=0.01, seed=3, max_tokens=6)
        (by_option,) = self.answers(*sampled, "--prompts", self.rows(row))
        (by_field,) = self.answers("--prompts", self.rows(own))
        (by_prompt,) = self.answers(*sampled, row["prompt"])
        self.assertEqual(by_option["token_ids"], by_field["token_ids"])
        self.assertEqual(by_prompt["token_ids"], by_field["token_ids"])
        self.assertEqual(by_option["hash"], by_field["hash"])
        (greedy,) = self.answers(*sampled, "--prompts", self.rows(dict(row, temperature=0)))
        self.assertNotEqual(greedy["token_ids"], by_field["token_ids"])
        (stopped,) = self.answers(*adapters("opposite"), "--stop", ", SLOW", "--stop", "nothing", QUESTION)
        self.assertEqual((stopped["text"], stopped["finish_reason"]), ("COLD, SMALL", "stop"))

    def test_a_system_message(self):
        text = "You speak like a pirate."
        asked = {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "Hi"}], "max_tokens": 8}
        (wanted,) = self.answers("--prompts", self.rows(asked))
        plain, own = {"prompt": "Hi", "max_tokens": 8}, dict(asked)
        for answer in self.answers("--system", text, "--prompts", self.rows(plain)) + \
                self.answers("--system", text, "Hi", "--max-tokens", 8) + \
                self.answers("--system", "Be short.", "--prompts", self.rows(own)):
            self.assertEqual(answer["token_ids"], wanted["token_ids"])
            self.assertEqual(answer["hash"], wanted["hash"])
        self.refused("generate", "--raw", "--system", text, "Hi", says=["--system", "--raw"])

    def test_options_have_bounds(self):
        for option, value in [("--temperature", "-1"), ("--top-p", "0"), ("--top-p", "1.1"), ("--min-p", "2"), ("--top-k", "-1"),
                              ("--max-tokens", "-1"), ("--hold", "0"), ("--seed", "x"), ("--temperature", "nan")]:
            with self.subTest(option=option, value=value):
                self.refused("generate", f"{option}={value}", "Hi", says=[option])

    def test_options_that_would_do_nothing(self):
        self.refused("generate", "--logprobs", "Hi", says=["--logprobs", "--json"])
        self.refused("generate", "--json", "--hold", 5, "Hi", says=["--hold", "--ordered"])

    def test_short_options(self):
        code, out, err = run("generate", "-m", os.environ["HEDDLE_MODEL"], "-t", 1, "Hi", "--max-tokens", 1, "-q")
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(out.strip())


class CheckedBeforeTheFirstToken(Case):
    def test_a_wrong_row_at_the_end_of_a_file_stops_everything(self):
        good = {"prompt": "Hi", "max_tokens": 1}
        for bad, words in [({"prompt": "Hi", "adapter": "nobody"}, ["nobody"]),
                           ({"prompt": "loom " * 9000}, ["8192"]),
                           ("{", ["malformed JSON"])]:
            rows = self.rows(*[good] * 50, bad)
            self.refused("generate", "--json", "--prompts", rows, says=["line 51", *words])
            with rows.open() as file:
                self.refused_from(file, words)
            *answers, failed = self.answers("--keep-going", "--prompts", rows, code=1)
            self.assertEqual([a["error"] for a in answers], [None] * 50)
            self.assertEqual(failed["finish_reason"], "error")
            for word in words:
                self.assertIn(word, failed["error"])

    def refused_from(self, file, words):
        """A regular file is checked whole under the name of standard input, too."""
        process = self.start("generate", "--json", "--prompts", "/dev/stdin", stdin=file, stdout=-1, stderr=-1)
        out, err = process.communicate()
        self.assertEqual((process.returncode, out), (2, ""), err)
        for word in ["standard input, line 51", *words]:
            self.assertIn(word, err)

    def test_a_prompt_of_the_command_line_that_is_too_long(self):
        self.refused("generate", "Hi", "loom " * 9000, says=["prompt 1", "8192"])
        first, second = self.answers("--keep-going", "--max-tokens", 1, "Hi", "loom " * 9000, code=1)
        self.assertEqual((first["error"], second["finish_reason"]), (None, "error"))


if __name__ == "__main__":
    main()
