#!/usr/bin/env python3
"""Conversations with heddle chat through pipes: what is answered, what wrong lines are answered, what is written where.

  python3 tests/chat_test.py HEDDLE ADAPTERS      (HEDDLE_MODEL names the model)
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HEDDLE, ADAPTERS = None, None
SQL, SLUG, WHY = "SQL: the average price of cars per brand", "Slug: The Quick Brown River!", "Why is the sky blue?"
ALL = ("sql", "slug", "opposite")


def adapters(*names):
    return [word for name in names for word in ("--adapter", f"{name}={ADAPTERS}/{name}")]


def messages(*contents, system=None):
    """A conversation that begins with a user and takes turns."""
    first = [{"role": "system", "content": system}] if system else []
    return first + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def generate(*rows):
    """Texts of the rows that `heddle generate` answers, with 24 tokens where a row does not say it."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps({"max_tokens": 24, **row}) + "\n" for row in rows)
        file.flush()
        done = subprocess.run([HEDDLE, "generate", "--json", *adapters(*ALL), "--prompts", file.name],
                              capture_output=True, text=True, check=True)
    answers = sorted(map(json.loads, done.stdout.splitlines()), key=lambda row: row["index"])
    return [answer["text"] for answer in answers]


class Case(unittest.TestCase):
    def chat(self, *lines, options=(), code=0, end="\n"):
        """(standard output, standard error) of a conversation with all adapters, the base model in use."""
        given = list(map(str, options))
        use = [] if "--use" in given else ["--use", "base"]
        limit = [] if "--max-tokens" in given else ["--max-tokens", "24"]
        done = subprocess.run([HEDDLE, "chat", *adapters(*ALL), *use, *limit, *given], capture_output=True,
                              input="".join(line + end for line in lines).encode())
        out, err = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, code, err)
        self.assertNotIn("\033", out + err)  # no colours, no line editing
        return out, err

    def answers(self, *lines, **settings):
        """Standard output of a conversation about which nothing is to be said but that answers were cut off."""
        out, err = self.chat(*lines, **settings)
        self.assertEqual([line for line in err.splitlines() if not re.match(r"\((\w+: )?cut off after \d+ tokens", line)], [])
        return out


class Answers(Case):
    def test_they_are_those_of_generate_one_after_another(self):
        (first,) = generate({"messages": messages(WHY)})
        (second,) = generate({"messages": messages(WHY, first, "Why?")})
        self.assertEqual(self.answers(WHY, "", "  ", "Why?"), f"{first}\n{second}\n")

    def test_an_adapter_answers_from_when_it_is_chosen(self):
        (sql,) = generate({"messages": messages(SQL), "adapter": "sql"})
        (slug,) = generate({"messages": messages(SQL, sql, SLUG), "adapter": "slug"})
        (base,) = generate({"messages": messages(SQL, sql, SLUG, slug, WHY)})
        self.assertEqual(sql, "SELECT brand, AVG(price) FROM cars GROUP BY brand;")
        out = self.answers(SQL, "/adapter slug", SLUG, "/adapter base", WHY, options=["--use", "sql"])
        self.assertEqual(out, f"{sql}\n{slug}\n{base}\n")

    def test_the_only_adapter_is_used_and_several_ask_for_a_choice(self):
        run = [HEDDLE, "chat", "--max-tokens", "24"]
        done = subprocess.run([*run, *adapters("slug")], input=SLUG, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "the-quick-brown-river\n", ""))
        for use, words in ([], ("--use", "sql", "slug", "base")), (["--use", "nobody"], ("nobody", "sql", "base")):
            done = subprocess.run([*run, *adapters("sql", "slug"), *use], input=SLUG, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))
            for word in words:
                self.assertIn(word, done.stderr)

    def test_the_system_message_of_the_options_and_of_the_conversation(self):
        pirate, poet = "You are a pirate.", "You are a poet."
        (first,) = generate({"messages": messages(WHY, system=pirate)})
        (second,) = generate({"messages": messages(WHY, first, "Who are you?", system=poet)})
        (third,) = generate({"messages": messages(WHY, first, "Who are you?", second, "And now?")})
        out, err = self.chat("/system", WHY, f"/system   {poet} ", "Who are you?", "/system -", "And now?", "/system",
                             options=["--system", pirate])
        self.assertEqual(out, f"{first}\n{second}\n{third}\n")
        self.assertEqual(err.splitlines()[0], pirate)
        self.assertIn("no system message", err.splitlines()[-1])

    def test_reset_forgets_the_conversation_and_its_seeds_and_nothing_else(self):
        options = ["--system", "You are brief.", "--use", "opposite", "--temperature", "1.5", "--seed", "5"]
        once = self.answers("Opposites: hot", WHY, options=options)
        twice = self.answers("Opposites: hot", WHY, "/reset", "Opposites: hot", WHY, options=options)
        self.assertEqual(twice, once * 2)

    def test_each_answer_draws_with_a_seed_of_its_own(self):
        drawn = {"temperature": 1.2, "top_k": 50, "top_p": 0.95, "min_p": 0.01}
        (first,) = generate({"messages": messages(WHY), "seed": 7, **drawn})
        (second,) = generate({"messages": messages(WHY, first, WHY), "seed": 8, **drawn})
        options = [word for name, value in drawn.items() for word in ("--" + name.replace("_", "-"), value)]
        self.assertEqual(self.answers(WHY, WHY, options=[*options, "--seed", 7]), f"{first}\n{second}\n")

    def test_a_retry_takes_the_place_of_the_answer(self):
        (base,) = generate({"messages": messages("Opposites: hot")})
        (other,) = generate({"messages": messages("Opposites: hot"), "adapter": "opposite"})
        (after,) = generate({"messages": messages("Opposites: hot", other, "Opposites: big"), "adapter": "opposite"})
        out = self.answers("Opposites: hot", "/adapter opposite", "/retry", "Opposites: big")
        self.assertEqual(out, f"{base}\n{other}\n{after}\n")

    def test_stop_strings_and_the_length_of_answers(self):
        out = self.answers("Opposites: hot, big, fast", options=["--use", "opposite", "--stop", ", SLOW"])
        self.assertEqual(out, "COLD, SMALL\n")
        out, err = self.chat("Opposites: hot, big, fast", options=["--use", "opposite", "--max-tokens", 2])
        self.assertEqual((out, err), ("COLD\n", "(cut off after 2 tokens, --max-tokens)\n"))


class Lines(Case):
    def test_two_slashes_send_one_and_backslashes_join_lines(self):
        slash, joined, kept = generate({"prompt": "/etc"}, {"prompt": "One\ntwo"}, {"prompt": "C:\\"})
        self.assertEqual(self.answers("//etc"), slash + "\n")
        self.assertEqual(self.answers("One\\", "two"), joined + "\n")
        self.assertEqual(self.answers("C:\\\\"), kept + "\n")
        self.assertEqual(self.answers("One\\", "two", end="\r\n"), joined + "\n")

    def test_the_last_line_needs_no_end(self):
        (want,) = generate({"prompt": "Opposites: hot", "adapter": "opposite"})
        self.assertEqual(self.answers("Opposites: hot", options=["--use", "opposite"], end=""), want + "\n")

    def test_nothing_after_quit_is_read(self):
        self.assertEqual(self.chat("/quit", WHY), ("", ""))

    def test_help_lists_what_there_is(self):
        out, err = self.chat("/help")
        self.assertEqual(out, "")
        for command in ("/adapter [NAME]", "/compare [NAMES] PROMPT", "/system [TEXT]", "/retry", "/reset", "/help", "/quit"):
            self.assertIn("\n" + command, "\n" + err)

    def test_the_list_of_adapters_marks_the_one_in_use(self):
        out, err = self.chat("/adapter", "/adapter slug", "/adapter")
        self.assertEqual(out, "")
        first, second = err.splitlines()[:4], err.splitlines()[4:]
        self.assertEqual([line.split()[:2] for line in first], [["*", "base"], ["sql", f"{ADAPTERS}/sql"],
                                                                ["slug", f"{ADAPTERS}/slug"],
                                                                ["opposite", f"{ADAPTERS}/opposite"]])
        self.assertEqual([line.split()[0] for line in second], ["base", "sql", "*", "opposite"])

    def test_wrong_lines_are_told_and_cost_nothing_else(self):
        for line, words in [("/adaptor sql", ["/adaptor", "did you mean /adapter?"]),
                            ("/comp", ["did you mean /compare?"]),
                            ("/etc/passwd", ["/etc/passwd", "/help", "with two"]),
                            ("/adapter sqll", ['"sqll"', "base, sql, slug, opposite"]),
                            ("/compare sql,shell x", ['"shell"', "base, sql, slug, opposite"]),
                            ("/compare", ["/compare", "PROMPT"]),
                            ("/compare sql,slug", ["/compare", "PROMPT"]),
                            ("/reset all", ["/reset takes no argument"]),
                            ("/retry", ["nothing was asked"])]:
            with self.subTest(line=line):
                out, err = self.chat(line, "Opposites: hot", options=["--use", "opposite"], code=1)
                self.assertEqual((out, err.count("\n"), err.startswith("heddle: ")), ("COLD\n", 1, True), err)
                for word in words:
                    self.assertIn(word, err)

    def test_a_message_that_does_not_fit_is_left_out(self):
        options = ["--use", "opposite", "--max-context", 64]
        (want,) = self.answers("Opposites: hot", options=options).splitlines()
        out, err = self.chat("loom " * 100, "Opposites: hot", options=options, code=1)
        self.assertEqual(out, want + "\n")
        self.assertRegex(err, r"^heddle: the prompt has 1\d\d tokens, the context holds 64 with the answer; the message is not kept\n$")
        # A conversation that has grown too long goes on after /reset.
        out, err = self.chat(*["Opposites: hot"] * 4, "/reset", "Opposites: hot", options=options, code=1)
        self.assertEqual(out.splitlines()[0::len(out.splitlines()) - 1], [want, want])
        self.assertIn("context holds 64 with the answer; the message is not kept, /reset makes room\n", err)
        out, err = self.chat(WHY, options=["--max-context", 50, "--max-tokens", 100])
        self.assertRegex(err, r"^\(cut off after \d+ tokens: the context is full; /reset makes room\)\n$")

    def test_timings_are_wanted_and_go_to_standard_error(self):
        out, err = self.chat("Opposites: hot", options=["--use", "opposite", "--timings"])
        self.assertEqual(out, "COLD\n")
        self.assertRegex(err, r"^\(\d+ prompt tokens, 0 of them cached, [1-9]\d* tokens, [\d.]+ s, [\d.]+ tokens/s\)\n$")

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([HEDDLE, "chat", "--max-tokens", "2"], input=b"Hi\n", stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write answers", done.stderr)


class Turns(Case):
    """Ten questions one after another, and what of each prompt was computed."""

    questions = [f"What is the {nth} thing to know about {topic}?" for nth, topic in zip(
        ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
        ("a loom", "wool", "linen", "silk", "dyes", "a shuttle", "knots", "carpets", "felt", "lace"), strict=True)]

    def turns(self, *options):
        """(standard output, [(tokens of the prompt, those of them that were cached, tokens that were drawn and computed)])"""
        out, err = self.chat(*self.questions, options=["--timings", *options])
        counts = re.findall(r"(\(cut off .*\n)?\((\d+) prompt tokens, (\d+) of them cached, (\d+) tokens", err)
        self.assertEqual(len(counts), 10, err)
        # The last token of an answer that was cut off was drawn, and never computed; so was the end token of any other.
        return out, [(int(prompt), int(cached), int(drawn) - bool(cut_off)) for cut_off, prompt, cached, drawn in counts]

    def test_each_computes_its_new_tokens(self):
        for options in ([], ["--use", "opposite"], ["--page-size", 4]):
            with self.subTest(options=options):
                _, counts = self.turns(*options)
                self.assertEqual(counts[0][1], 0)
                for turn, ((before, _, drawn), (prompt, cached, _)) in enumerate(zip(counts, counts[1:]), 2):
                    self.assertEqual(cached, before + drawn, f"turn {turn} of {counts}")
                prompt, cached, _ = counts[9]
                self.assertGreater(cached, 4 * (prompt - cached), "most of the conversation")

    def test_the_answers_do_not_depend_on_it(self):
        out, counts = self.turns("--no-prefix-cache")
        self.assertEqual([cached for _, cached, _ in counts], [0] * 10)
        self.assertEqual(self.turns()[0], out)


class Comparisons(Case):
    def test_all_answer_under_their_names_as_generate_has_it(self):
        want = generate(*[{"prompt": SLUG, "adapter": name} for name in (None, *ALL)])
        out = self.answers(f"/compare {SLUG}")
        self.assertEqual(out, "".join(f"[{name}]\n{text}\n" for name, text in zip(("base", *ALL), want)))

    def test_those_that_are_named_answer_in_that_order_once(self):
        slug, base = generate({"prompt": SLUG, "adapter": "slug"}, {"prompt": SLUG})
        self.assertEqual(self.answers(f"/compare slug,base,slug {SLUG}"), f"[slug]\n{slug}\n[base]\n{base}\n")

    def test_a_comma_in_a_prompt_is_no_list(self):
        (want,) = generate({"prompt": "sql, what is it?", "adapter": "sql"})
        done = subprocess.run([HEDDLE, "chat", *adapters("sql"), "--max-tokens", "24"], capture_output=True, text=True,
                              input="/compare sql, what is it?\n")
        self.assertTrue(done.stdout.endswith(f"[sql]\n{want}\n"), done.stdout)
        self.assertTrue(done.stdout.startswith("[base]\n"))

    def test_it_sees_the_conversation_and_leaves_it_as_it_was(self):
        (first,) = generate({"messages": messages(SQL), "adapter": "sql"})
        sql, slug = generate(*[{"messages": messages(SQL, first, SLUG), "adapter": name} for name in ("sql", "slug")])
        (last,) = generate({"messages": messages(SQL, first, WHY), "adapter": "sql"})
        out = self.answers(SQL, f"/compare sql,slug {SLUG}", WHY, options=["--use", "sql"])
        self.assertEqual(out, f"{first}\n[sql]\n{sql}\n[slug]\n{slug}\n{last}\n")


if __name__ == "__main__":
    HEDDLE, ADAPTERS = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1])
