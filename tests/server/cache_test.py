"""The prefix cache of `heddle serve`: what is counted and told of it, salts, the reset, and rows that are parked for lack of pages; pages that outlive the process.

Prompts are random, so that no test finds what another one has left; a token is a byte, a page has 16.
"""
import json
import pathlib
import random
import string
import tempfile
import unittest

from serve_case import DEVICE, Case, Server, events, main

TEXT = {"max_tokens": 3, "temperature": 0, "ignore_eos": True}
RESET = "/reset_prefix_cache"
ON_CPU = DEVICE == "cpu"
FOUND = 39 if ON_CPU else 32  # of 40 tokens: on a GPU those of whole pages
PAGE_BYTES = 16 * 2 * 2 * 2 * 16 * 4  # tokens, layers, keys and values, heads, elements, bytes of f32


def prompt_of(num_tokens):
    return "".join(random.choices(string.ascii_letters, k=num_tokens))


class Cache(Case):
    options = ("--served-model-name", "tiny")

    def usage(self, path="/v1/completions", **fields):
        """(tokens of the prompt, those of them that were found)"""
        status, answer = self.server.post(path, {**TEXT, **fields})
        self.assertEqual(status, 200, answer)
        return self.counts(answer["usage"])

    def streamed(self, path="/v1/completions", **fields):
        body = {**TEXT, **fields, "stream": True, "stream_options": {"include_usage": True}}
        status, _, text = self.server.request("POST", path, body)
        self.assertEqual(status, 200, text)
        return self.counts(json.loads(events(text)[-2])["usage"])

    @staticmethod
    def counts(usage):
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def test_tokens_that_were_found_are_told(self):
        prompt = prompt_of(40)
        self.assertEqual(self.usage(prompt=prompt), (40, 0))
        self.assertEqual(self.usage(prompt=prompt), (40, FOUND), "all but the last token, which is computed")
        self.assertEqual(self.streamed(prompt=prompt), (40, FOUND))
        self.assertEqual(self.usage(prompt=prompt[:20] + prompt_of(20)), (40, 20 if ON_CPU else 16))
        self.assertEqual(self.usage(prompt=prompt[:32]), (32, 31 if ON_CPU else 16), "the last token gives the logits")
        self.assertEqual(self.usage(prompt=prompt, model="a1"), (40, 0), "keys and values of another adapter")
        messages = [{"role": "user", "content": prompt}]
        tokens, found = self.usage("/v1/chat/completions", messages=messages)
        self.assertEqual((tokens, found), (43, 0))  # <|user|>, <|end|> and <|assistant|> besides
        self.assertEqual(self.usage("/v1/chat/completions", messages=messages), (43, FOUND + 3 * ON_CPU))
        self.assertEqual(self.streamed("/v1/chat/completions", messages=messages), (43, FOUND + 3 * ON_CPU))

    def test_a_prompt_of_several_answers_counts_once(self):
        first, second = prompt_of(40), prompt_of(40)
        self.assertEqual(self.usage(prompt=first, n=3, temperature=1)[0], 40)
        self.assertEqual(self.usage(prompt=first, n=3, temperature=1), (40, FOUND))
        self.assertEqual(self.streamed(prompt=first, n=3, temperature=1), (40, FOUND))
        self.assertEqual(self.usage(prompt=first, n=1, best_of=3, temperature=1), (40, FOUND))
        self.assertEqual(self.usage(prompt=second), (40, 0))
        self.assertEqual(self.usage(prompt=[first, second], n=2, temperature=1), (80, 2 * FOUND))

    def test_nothing_is_found_under_another_salt(self):
        prompt = prompt_of(40)
        for salt, found in ((None, 0), (None, FOUND), ("a", 0), ("a", FOUND), ("b", 0), (None, FOUND)):
            self.assertEqual(self.usage(prompt=prompt, cache_salt=salt), (40, found), salt)
        messages = [{"role": "user", "content": prompt_of(40)}]
        for salt, found in (("a", 0), ("a", FOUND + 3 * ON_CPU), ("b", 0)):
            self.assertEqual(self.usage("/v1/chat/completions", messages=messages, cache_salt=salt), (43, found), salt)

    def test_answers_do_not_depend_on_it(self):
        body = {**TEXT, "prompt": prompt_of(50), "max_tokens": 20, "logprobs": 3}
        answers = [self.server.post("/v1/completions", {**body, **salt})[1]["choices"] for salt in ({}, {}, {"cache_salt": "a"}, {})]
        self.assertEqual(answers, answers[:1] * 4)

    def test_a_salt_is_a_text_that_is_not_empty(self):
        messages = [{"role": "user", "content": "a"}]
        for path, body in (("/v1/completions", {**TEXT, "prompt": "a"}), ("/v1/chat/completions", {**TEXT, "messages": messages})):
            for wrong, says in (("", "request: cache_salt is empty, expected a text or null"),
                                (7, "request: cache_salt is number, expected a string")):
                for stream in (False, True):
                    status, answer = self.server.post(path, {**body, "cache_salt": wrong, "stream": stream})
                    self.assertEqual((status, answer["error"]["message"]), (400, says))
            for right in (None, "a", "é" * 512):
                status, headers, _ = self.server.request("POST", path, {**body, "cache_salt": right})
                self.assertEqual((status, headers.get("X-Heddle-Ignored")), (200, None))
        lorax = lambda salt: self.server.post(  # noqa: E731
            "/generate", {"inputs": "a", "parameters": {"cache_salt": salt, "max_new_tokens": 2}})
        self.assertEqual([lorax(salt)[0] for salt in ("a", None)], [200, 200])
        self.assertEqual(lorax("")[1]["error"], "parameters: cache_salt is empty, expected a text or null")
        status, answer = self.server.post("/v1/completions", {**TEXT, "prompt": "a", "return_cached_tokens_details": True})
        self.assertEqual((status, answer["error"]["param"]), (400, "return_cached_tokens_details"))

    def test_a_reset_needs_the_admin_key_and_nothing_else(self):
        status, headers, text = self.server.admin(RESET, None)
        self.assertEqual((status, text, headers["Content-Length"]), (200, "", "0"))
        for path, body in ((RESET + "?reset_running_requests=false", None), (RESET + "/", {}), (RESET, b"")):
            self.assertEqual(self.server.admin(path, body)[::2], (200, ""))
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            self.assertEqual(self.server.request("POST", RESET, None, headers)[0], 401)
        status, headers, _ = self.server.admin(RESET, None, "GET")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertRegex(self.server.log.read_text(), rf"route={RESET} .*outcome=admin")
        self.assertIn(f'heddle:requests_total{{model_name="tiny",route="{RESET}",status="200"}}', self.server.request("GET", "/metrics")[2])

    def test_a_reset_forgets_all(self):
        prompt = prompt_of(40)
        self.assertEqual([self.usage(prompt=prompt) for _ in range(2)], [(40, 0), (40, FOUND)])
        self.assertGreater(self.pages()["cached"], 0)
        self.assertEqual(self.server.admin(RESET, None)[0], 200)
        self.assertEqual(self.pages()["cached"], 0)
        self.assertEqual([self.usage(prompt=prompt) for _ in range(2)], [(40, 0), (40, FOUND)])

    def pages(self):
        metric = self.server.metric
        return {state: metric(f'heddle:kv_pages{{model_name="tiny",state="{state}"}}') for state in ("in_use", "cached", "free")}

    def test_metrics_and_the_state_of_the_page(self):
        metric, prompt = self.server.metric, prompt_of(40)
        names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total")
        before = [metric(name) for name in names]
        for _ in range(2):
            self.usage(prompt=prompt)
        self.assertEqual([metric(name) - old for name, old in zip(names, before, strict=True)], [80, FOUND, 0])
        pages, state = self.pages(), json.loads(self.server.request("GET", "/state")[2])
        self.assertEqual([state[name] for name in ("prefix_tokens", "cached_tokens", "parkings", "num_parked")],
                         [*(metric(name) for name in names), metric("heddle:rows_parked")])
        self.assertEqual((state["num_cached_pages"], state["num_free_pages"]), (pages["cached"], pages["cached"] + pages["free"]))
        self.assertGreaterEqual(pages["cached"], 2)

    def test_pages_are_in_use_cached_or_free(self):
        text = self.server.request("GET", "/metrics")[2]
        self.assertIn('enable_prefix_caching="True"', text)
        state = json.loads(self.server.request("GET", "/state")[2])
        self.assertEqual(sum(self.pages().values()), state["num_pages"])
        self.assertEqual((self.pages()["in_use"], self.server.metric("heddle:rows_parked")), (0, 0))


class Without(Case):
    options = ("--served-model-name", "tiny", "--no-prefix-cache")

    def test_nothing_is_looked_for_and_nothing_found(self):
        body = {**TEXT, "prompt": prompt_of(40)}
        for _ in range(2):
            answer = self.server.post("/v1/completions", body)[1]
            self.assertEqual(answer["usage"]["prompt_tokens_details"], {"cached_tokens": 0})
        for name in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"):
            self.assertEqual(self.server.metric(name), 0)
        self.assertIn('enable_prefix_caching="False"', self.server.request("GET", "/metrics")[2])
        self.assertEqual(self.server.admin(RESET, None)[0], 200)


class Parked(unittest.TestCase):
    """Answers for which there are too few pages at once: two of 14 pages each where there are 16."""

    def answers(self, *options):
        """(tokens of both answers, times that one of them was parked)"""
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, "--kv-memory", 16 * PAGE_BYTES, "--max-batch", 2, *options, device="cpu")
            try:
                body = {"prompt": ["the loom weaves", "warp and weft it"], "max_tokens": 200, "temperature": 0, "ignore_eos": True,
                        "return_token_ids": True}
                status, answer = server.post("/v1/completions", body)
                self.assertEqual(status, 200, answer)
                self.assertEqual(server.metric("heddle:rows_parked"), 0, "all have ended")
                tokens = [choice["token_ids"] for choice in answer["choices"]]
                self.assertEqual([len(ids) for ids in tokens], [200, 200])
                return tokens, server.metric("vllm:num_preemptions_total")
            finally:
                server.stop()

    def test_a_row_is_parked_only_where_rows_start_at_once(self):
        waits, none = self.answers("--admit", "longest")
        self.assertEqual(none, 0)
        for options in ((), ("--no-prefix-cache",), ("--admit", "now")):
            tokens, parkings = self.answers(*options)
            self.assertEqual(tokens, waits, options)
            self.assertGreaterEqual(parkings, 1, options)


class Restarted(unittest.TestCase):
    """Pages that outlive the process, on the CPU."""

    def test_a_restarted_server_is_warm(self):
        with tempfile.TemporaryDirectory() as folder:
            pages = pathlib.Path(folder) / "pages"
            body = {**TEXT, "prompt": prompt_of(40), "return_token_ids": True, "logprobs": 0}
            answers = []
            for found in (0, 32):
                server = Server(folder, "--kv-cache-dir", pages, "--kv-disk-memory", "64M", device="cpu")
                try:
                    for again in (found, 39):  # the end of the prompt fills no page, and stays in memory
                        status, answer = server.post("/v1/completions", body)
                        self.assertEqual(status, 200, answer)
                        self.assertEqual(answer["usage"]["prompt_tokens_details"], {"cached_tokens": again})
                        answers.append(answer["choices"])
                    self.assertEqual(server.metric("heddle:prefix_cache_disk_hits_total"), found)
                finally:
                    server.stop()
            for choices in answers:
                self.assertEqual(choices, answers[0])
            self.assertEqual(pages.stat().st_mode & 0o777, 0o700)
            for file in pages.iterdir():
                self.assertEqual(file.stat().st_mode & 0o777, 0o600, file)


if __name__ == "__main__":
    main()
