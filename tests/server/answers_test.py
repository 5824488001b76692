"""What answers of `heddle serve` count, sort and place: usage, the best of several, log-probabilities and where tokens stand in the text."""
import itertools
import json

from serve_case import Case, events, main

TEXT = {"prompt": "hello", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
PROMPT = "hé€ 😀x"  # characters of 1, 2, 3, 1, 4 and 1 bytes, each byte a token
CONTEXT = 2048  # max_position_embeddings of the model


def pairs(text):
    """JSON in which objects are lists of pairs: two equal keys are two."""
    return json.loads(text, object_pairs_hook=list)


class Answers(Case):
    def text(self, **fields):
        status, answer = self.server.post("/v1/completions", {**TEXT, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def chat(self, **fields):
        status, answer = self.server.post("/v1/chat/completions", {**CHAT, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def chunks(self, path, body):
        status, _, text = self.server.request("POST", path, {**body, "stream": True})
        self.assertEqual(status, 200, text)
        messages = events(text)
        self.assertEqual(messages[-1], "[DONE]")
        return [json.loads(message) for message in messages[:-1]]

    def assert_usage(self, usage, prompt, answer):
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]), (prompt, answer, prompt + answer))

    def test_usage_counts_a_prompt_once_and_every_answer(self):
        self.assert_usage(self.text()["usage"], 5, 6)
        self.assert_usage(self.text(n=3, temperature=1)["usage"], 5, 18)
        self.assert_usage(self.text(n=2, best_of=5, temperature=1)["usage"], 5, 30)
        self.assert_usage(self.text(prompt=["ab", "cdef", "g"])["usage"], 7, 18)
        self.assert_usage(self.text(prompt=["ab", "cdef"], n=3, temperature=1)["usage"], 6, 36)
        self.assert_usage(self.text(prompt=["ab", "cdef"], n=1, best_of=2, temperature=1)["usage"], 6, 24)
        prompt = len(self.chat(return_token_ids=True)["choices"][0]["prompt_token_ids"])
        self.assert_usage(self.chat(n=4, temperature=1)["usage"], prompt, 24)
        self.assert_usage(self.text(max_tokens=0, echo=True)["usage"], 5, 0)
        self.assert_usage(self.text(prompt="xxhello", truncate_prompt_tokens=4)["usage"], 4, 6)
        for path, body, prompt in (("/v1/completions", {**TEXT, "prompt": ["ab", "cdef"]}, 6), ("/v1/chat/completions", CHAT, prompt)):
            usual = {**body, "n": 3, "temperature": 1, "stream_options": {"include_usage": True}}
            chunks = self.chunks(path, usual)
            self.assert_usage(chunks[-1]["usage"], prompt, 36 if path == "/v1/completions" else 18)
            self.assertEqual([chunk["usage"] for chunk in chunks[:-1]], [None] * (len(chunks) - 1))

    def test_an_end_token_and_a_stop_string_count_as_drawn(self):
        ids = self.text(max_tokens=12, return_token_ids=True)["choices"][0]["token_ids"]
        place = next(i for i in range(3, 12) if ids[i] not in ids[:i])
        answer = self.text(max_tokens=12, stop_token_ids=[ids[place]], return_token_ids=True)
        self.assertEqual(answer["usage"]["completion_tokens"], len(answer["choices"][0]["token_ids"]))
        self.assertIn(len(answer["choices"][0]["token_ids"]), (place, place + 1))

    def ranked(self, answer):
        """The choices by the mean of their tokens' log-probabilities, the largest first; equal ones as they were drawn."""
        def mean(choice):
            logprobs = choice["logprobs"]["token_logprobs"]
            return sum(logprobs) / max(len(logprobs), 1)

        return sorted(answer["choices"], key=mean, reverse=True)

    def test_best_of_are_the_most_likely_ones_in_their_order(self):
        ends = list(range(30, 62))  # a third of the bytes end an answer, so that lengths differ
        for fields in ({}, {"stop_token_ids": ends, "max_tokens": 24}):
            drawn = {"temperature": 1, "seed": 11, "logprobs": 0, "prompt": ["ab", "cdef"], **fields}
            every = self.text(n=8, **drawn)["choices"]
            if fields:
                self.assertGreater(len({len(choice["logprobs"]["tokens"]) for choice in every}), 3, "lengths differ")
            best = self.text(n=3, best_of=8, **drawn)["choices"]
            self.assertEqual([choice["index"] for choice in best], list(range(6)))
            wanted = [choice for first in (0, 8) for choice in self.ranked({"choices": every[first:first + 8]})[:3]]
            self.assertEqual([c["text"] for c in best], [c["text"] for c in wanted])
            self.assertEqual([c["logprobs"]["token_logprobs"] for c in best], [c["logprobs"]["token_logprobs"] for c in wanted])
            in_order = self.text(n=8, best_of=8, **drawn)["choices"]
            self.assertEqual([c["text"] for c in in_order], [c["text"] for c in every], "as many as there are keep their order")

    def test_best_of_lorax(self):
        parameters = {"max_new_tokens": 6, "do_sample": True, "temperature": 1.0, "seed": 5, "ignore_eos_token": True, "details": True}

        def generate(**more):
            return self.server.post("/generate", {"inputs": "hello", "parameters": {**parameters, **more}})[1]

        alone = [generate(seed=5 + i) for i in range(5)]
        likely = [sum(token["logprob"] for token in answer["details"]["tokens"]) for answer in alone]
        best = likely.index(max(likely))
        answer = generate(best_of=5)
        self.assertEqual(answer["generated_text"], alone[best]["generated_text"])
        others = [other["generated_text"] for other in answer["details"]["best_of_sequences"]]
        self.assertEqual(others, [a["generated_text"] for i, a in enumerate(alone) if i != best])

    def test_as_many_log_probabilities_as_asked_for(self):
        for count in (0, 1, 2, 5, 20):
            content = self.chat(logprobs=True, top_logprobs=count)["choices"][0]["logprobs"]["content"]
            for token in content:
                tops = token["top_logprobs"]
                self.assertEqual(len(tops), count)
                self.assertEqual([t["logprob"] for t in tops], sorted((t["logprob"] for t in tops), reverse=True))
                if count:
                    self.assertEqual((tops[0]["token"], tops[0]["logprob"]), (token["token"], token["logprob"]), "the greedy token")
            for token in self.chat(logprobs=True, top_logprobs=count, temperature=5, seed=3)["choices"][0]["logprobs"]["content"]:
                self.assertEqual(len(token["top_logprobs"]), count, "those, whatever was drawn")

    def test_as_many_of_the_answer_as_asked_for_beside_those_of_the_prompt(self):
        for of_answer, of_prompt in ((2, 5), (5, 2), (0, 3)):
            choice = self.chat(logprobs=True, top_logprobs=of_answer, prompt_logprobs=of_prompt)["choices"][0]
            self.assertEqual([len(token["top_logprobs"]) for token in choice["logprobs"]["content"]], [of_answer] * 6)
            self.assertTrue(all(of_prompt <= len(place) <= of_prompt + 1 for place in choice["prompt_logprobs"][1:]))
            body = {**TEXT, "logprobs": of_answer, "prompt_logprobs": of_prompt, "echo": True}
            choice = dict(dict(pairs(self.server.request("POST", "/v1/completions", body)[2]))["choices"][0])
            for top in dict(choice["logprobs"])["top_logprobs"][1:]:
                self.assertIn(len(top), (of_answer, of_answer + 1))
            self.assertTrue(all(of_prompt <= len(place) <= of_prompt + 1 for place in choice["prompt_logprobs"][1:]))

    def test_entries_of_what_ends_before_the_end(self):
        """The token that ends an answer is none of it, and leaves the entries of the others in their places."""
        whole = self.text(max_tokens=12, logprobs=3, return_token_ids=True)["choices"][0]
        ids = whole["token_ids"]
        place = next(i for i in range(1, 12) if ids[i] not in ids[:i])
        cut = self.text(max_tokens=12, logprobs=3, stop_token_ids=[ids[place]], return_token_ids=True)["choices"][0]
        self.assertEqual(cut["token_ids"], ids[:place])
        for name, values in cut["logprobs"].items():
            self.assertEqual(values, whole["logprobs"][name][:place], name)

    def test_rows_that_have_ended_do_not_run(self):
        body = {**TEXT, "prompt": ["x" * (CONTEXT - 1), "y"], "max_tokens": 1900, "stream": True, "return_token_ids": True}
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        seen = b""
        while b'"finish_reason":"length"' not in seen:
            seen += response.read1(65536)
        running = self.server.metric("vllm:num_requests_running")
        self.assertEqual(seen.count(b'"finish_reason":"length"'), 1, "the other one still runs")
        self.assertEqual(running, 1)

    def test_a_refused_request_has_no_latency(self):
        counted = ("vllm:time_to_first_token_seconds_count", "vllm:e2e_request_latency_seconds_count")
        self.text()
        before = [self.server.metric(name) for name in counted]
        self.assertEqual(self.server.post("/v1/completions", {**TEXT, "temperature": -1})[0], 400)
        self.assertEqual(self.server.request("GET", "/v1/models")[0], 200)
        self.assertEqual([self.server.metric(name) for name in counted], before)
        self.text()
        self.assertEqual([self.server.metric(name) for name in counted], [count + 1 for count in before])

    def test_routes_of_lorax_stream_by_their_names(self):
        for path, stream, kind in (("/generate", True, "application/json"), ("/generate", False, "application/json"),
                                   ("/generate_stream", False, "text/event-stream"), ("/", True, "text/event-stream"),
                                   ("/", False, "application/json")):
            body = {"inputs": "hello", "stream": stream, "parameters": {"max_new_tokens": 2}}
            status, headers, _ = self.server.request("POST", path, body)
            self.assertEqual((status, headers["Content-Type"].split(";")[0]), (200, kind), (path, stream))

    def test_a_message_that_goes_on_keeps_its_spaces(self):
        for content in ("so", "so ", " so", "so\n ", "hello", "hello "):
            messages = [*CHAT["messages"], {"role": "assistant", "content": content}]
            answer = self.chat(messages=messages, add_generation_prompt=False, continue_final_message=True, return_token_ids=True)
            prompt = self.server.post("/detokenize", {"tokens": answer["choices"][0]["prompt_token_ids"]})[1]["prompt"]
            self.assertEqual(prompt, "<|user|>hello<|end|><|assistant|>" + content)

    def test_entries_of_a_completion(self):
        """The most likely ones, and what was drawn where it is none of them, as in vLLM."""
        for count, temperature in itertools.product((0, 1, 3, 20), (0, 5)):
            body = {**TEXT, "logprobs": count, "temperature": temperature, "seed": 4, "max_tokens": 20}
            lists = dict(dict(dict(pairs(self.server.request("POST", "/v1/completions", body)[2]))["choices"][0])["logprobs"])
            beyond = 0
            for token, logprob, top in zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"], strict=True):
                self.assertIn((token, logprob), [tuple(entry) for entry in top])
                likely = sum(value >= logprob for _, value in top)
                self.assertIn(len(top), (count, count + 1), (token, top))
                self.assertEqual(len(top) == count + 1, likely == count + 1, "one more where it is less likely than all of them")
                beyond += len(top) > count
            if temperature == 0:
                self.assertEqual(beyond, 20 if count == 0 else 0)
            elif count < 20:
                self.assertGreater(beyond, 0, "of hot draws some are none of the most likely")

    def test_where_tokens_stand(self):
        """Characters before each token: a byte that does not begin a character stands where the next one begins."""
        encoded = PROMPT.encode()
        begun = [len([b for b in encoded[:i] if b & 0xC0 != 0x80]) for i in range(len(encoded))]
        choice = self.text(prompt=PROMPT, echo=True, logprobs=0)["choices"][0]
        lists = choice["logprobs"]
        self.assertEqual(len(lists["tokens"]), len(encoded) + 6)
        self.assertEqual(lists["text_offset"][:len(encoded)], begun)
        self.assertEqual(lists["text_offset"][len(encoded)], len(PROMPT), "the answer begins after the prompt")
        scored = self.text(prompt=PROMPT, echo=True, logprobs=0, max_tokens=0)["choices"][0]
        self.assertEqual(scored["text"], PROMPT)
        self.assertEqual(scored["logprobs"]["text_offset"], begun)
        self.assertEqual(self.text(prompt=PROMPT, logprobs=0)["choices"][0]["logprobs"]["text_offset"][0], 0, "an answer alone begins at 0")

    def test_offsets_are_places_in_the_text(self):
        allowed = [i for i in range(94) if chr(33 + i).isalnum()]  # ASCII, of which each token is a character
        body = {**TEXT, "prompt": ["ab", "é"], "n": 2, "temperature": 1, "seed": 2, "allowed_token_ids": allowed, "logprobs": 2}
        whole = self.text(**body)["choices"]
        for choice in whole:
            self.assertEqual([choice["text"][at] for at in choice["logprobs"]["text_offset"]], choice["logprobs"]["tokens"])
        for choice in self.text(**{**body, "prompt": "aé", "echo": True})["choices"]:
            for at, token in list(zip(choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"], strict=True))[3:]:
                self.assertEqual(choice["text"][at], token)
        parts = {i: {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []} for i in range(4)}
        for chunk in self.chunks("/v1/completions", body):
            for choice in chunk["choices"]:
                for name, values in (choice["logprobs"] or {}).items():
                    parts[choice["index"]][name] += values
        self.assertEqual([parts[i] for i in range(4)], [choice["logprobs"] for choice in whole], "streams place them as whole answers do")

    def test_log_probabilities_of_prompts(self):
        answer = self.text(max_tokens=4, return_token_ids=True, logprobs=0)["choices"][0]
        whole = [ord(c) - 33 for c in "hello"] + answer["token_ids"]
        for count in (0, 1, 3):
            body = {**TEXT, "prompt": whole, "max_tokens": 1, "prompt_logprobs": count}
            scored = dict(dict(pairs(self.server.request("POST", "/v1/completions", body)[2]))["choices"][0])["prompt_logprobs"]
            self.assertEqual(len(scored), len(whole))
            self.assertIsNone(scored[0])
            for place in range(1, len(whole)):
                entries = {int(id): dict(entry) for id, entry in scored[place]}
                self.assertEqual(len(entries), len(scored[place]))
                self.assertIn(whole[place], entries)
                ranks = sorted(entry["rank"] for entry in entries.values() if entry["rank"] is not None and entry["rank"] <= count)
                self.assertEqual(ranks, list(range(1, count + 1)))
                self.assertLessEqual(len(entries), count + 1)
                own = entries[whole[place]]["logprob"]
                most = sorted((entry["logprob"] for id, entry in entries.items() if id != whole[place]), reverse=True)
                self.assertEqual(len(entries) == count + 1, len(most) == count, "one more where the prompt's is none of them")
                if place >= 5:  # what was drawn greedily
                    self.assertAlmostEqual(own, answer["logprobs"]["token_logprobs"][place - 5], places=3)
                    self.assertTrue(all(other <= own for other in most))
        echoed = self.text(prompt="hello", echo=True, logprobs=0, max_tokens=1)["choices"][0]["logprobs"]["token_logprobs"]
        scored = self.text(prompt="hello", prompt_logprobs=0, max_tokens=1)["choices"][0]["prompt_logprobs"]
        self.assertIsNone(echoed[0])
        self.assertEqual(echoed[1:5], [next(iter(place.values()))["logprob"] for place in scored[1:]])

    def test_echo(self):
        plain = self.text(n=2, temperature=1, seed=1, prompt=["ab", "cé"])["choices"]
        echoed = self.text(n=2, temperature=1, seed=1, prompt=["ab", "cé"], echo=True)["choices"]
        self.assertEqual([c["text"] for c in echoed], [prompt + c["text"] for c, prompt in zip(plain, ["ab", "ab", "cé", "cé"], strict=True)])
        streamed = [""] * 4
        for chunk in self.chunks("/v1/completions", {**TEXT, "n": 2, "temperature": 1, "seed": 1, "prompt": ["ab", "cé"], "echo": True}):
            for choice in chunk["choices"]:
                streamed[choice["index"]] += choice["text"]
        self.assertEqual(streamed, [c["text"] for c in echoed])

    def test_the_context_to_its_last_token(self):
        for prompt, most in ((CONTEXT - 1, 1), (CONTEXT - 3, 3)):
            answer = self.text(prompt="x" * prompt, max_tokens=most)
            self.assert_usage(answer["usage"], prompt, most)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        for prompt in (CONTEXT, CONTEXT + 1):
            status, answer = self.server.post("/v1/completions", {**TEXT, "prompt": "x" * prompt, "max_tokens": 1})
            self.assertEqual(status, 400)
            self.assertIn(f"{prompt} tokens", answer["error"]["message"])
        kept = self.text(prompt="y" * 9 + "x" * (CONTEXT - 1), truncate_prompt_tokens=CONTEXT - 1, max_tokens=1)
        self.assert_usage(kept["usage"], CONTEXT - 1, 1)

    def test_adapters_of_one_request_in_any_order(self):
        """Samples and prompts of one request share what they compute; another adapter's concurrent request shares nothing with it."""
        alone = {name: self.text(model=name, prompt="loom" * 20)["choices"][0]["text"] for name in ("base", "a0", "a1")}
        self.assertEqual(len(set(alone.values())), 3)
        for name in ("a0", "base", "a1", "base", "a0", "a0", "base"):
            answer = self.text(model=name, prompt=["loom" * 20, "loom" * 20], n=2, temperature=0)
            self.assertEqual([c["text"] for c in answer["choices"]], [alone[name]] * 4, name)


if __name__ == "__main__":
    main()
