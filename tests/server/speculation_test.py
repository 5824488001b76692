"""Drafts in a server: what requests say of them, what usage and metrics count. No answer depends on any of it."""
import json
import unittest

from serve_case import Case, main

FORCED = "a forced answer of several tokens"
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
TEXT = {"prompt": "ab", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
PREDICTION = {"type": "content", "content": "one two"}
PARTS = {"type": "content", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}
ROUTES = (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT))
COUNTS = ("accepted_prediction_tokens", "rejected_prediction_tokens")
IGNORED = "X-Heddle-Ignored"
LEFT_OUT = "has a prediction, which is left out"


class Requests(Case):
    def told(self, path, body):
        status, headers, text = self.server.request("POST", path, body)
        self.assertEqual(status, 200, text)
        return {name.lower(): value for name, value in headers.items()}.get(IGNORED.lower()), json.loads(text)

    def tokens(self, path, body):
        return self.told(path, body)[1]["choices"][0]["token_ids"]

    def refused(self, path, body, param, says):
        for stream in (False, True):
            status, answer = self.server.post(path, {**body, "stream": stream})
            self.assertEqual((status, answer["error"]["type"], answer["error"]["param"]), (400, "BadRequestError", param), answer)
            self.assertIn(says, answer["error"]["message"])

    def check_wrong_fields(self):
        for path, body in ROUTES:
            for wrong in ("eagle3", 3, {}, []):
                self.refused(path, {**body, "speculation": wrong}, "speculation", 'expected true, false, "off", "ngram" or "suffix"')
            for wrong, param, says in (
                    ("x", "prediction", "prediction is string, expected an object"),
                    ({"content": "x"}, "prediction.type", "prediction.type is missing"),
                    ({"type": "content"}, "prediction.content", "prediction.content is missing"),
                    ({"type": "text", "content": "x"}, "prediction.type", 'prediction.type is not "content"'),
                    ({"type": "content", "content": 3}, "prediction.content", "prediction.content is number"),
                    ({"type": "content", "content": [{"type": "image_url", "text": "x"}]}, "prediction.content[0].type", 'is not "text"'),
                    ({"type": "content", "content": [{"type": "text"}]}, "prediction.content[0].text", "is missing"),
                    ({**PREDICTION, "contents": 3}, "prediction", 'unknown field "contents"; did you mean "content"?')):
                self.refused(path, {**body, "prediction": wrong}, param, says)
            self.refused(path, {**body, "prediction": {"type": "content", "content": "x" * (256 << 10)}}, "prediction", "at most 262144")


class WithDrafts(Requests):
    options = ("--served-model-name", "tiny", "--speculate", "ngram", "--draft-tokens", "4")

    def test_no_answer_depends_on_the_fields(self):
        for path, body in ROUTES:
            want = self.tokens(path, {**body, "speculation": "off"})
            self.assertEqual(len(want), 40)
            for fields in ({}, {"speculation": True}, {"speculation": False}, {"speculation": "ngram"}, {"prediction": PREDICTION},
                           {"prediction": PARTS, "speculation": False}, {"speculation": None, "prediction": None}):
                self.assertEqual(self.tokens(path, {**body, **fields}), want, fields)

    def test_usage_counts_a_prediction_where_there_is_one(self):
        for path, body in ROUTES:
            for prediction in (PREDICTION, PARTS):
                usage = self.told(path, {**body, "prediction": prediction})[1]["usage"]
                details = usage["completion_tokens_details"]
                self.assertEqual(tuple(details), COUNTS)
                self.assertTrue(all(isinstance(details[name], int) and details[name] >= 0 for name in COUNTS), details)
                self.assertLessEqual(details[COUNTS[0]], usage["completion_tokens"])
                _, _, text = self.server.request("POST", path, {**body, "prediction": prediction, "stream": True,
                                                                "stream_options": {"include_usage": True}})
                last = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")][-1]
                self.assertEqual(tuple(last["usage"]["completion_tokens_details"]), COUNTS)
            self.assertNotIn("completion_tokens_details", self.told(path, body)[1]["usage"])

    def test_responses_and_messages_take_the_fields(self):
        body = {"input": "hello", "max_output_tokens": 8, "temperature": 0}
        plain = self.told("/v1/responses", body)[1]
        told = self.told("/v1/responses", {**body, "prediction": PREDICTION, "speculation": "ngram"})[1]
        self.assertEqual(told["output"][0]["content"], plain["output"][0]["content"])
        self.assertEqual(list(plain["usage"]["output_tokens_details"]), ["reasoning_tokens"])
        self.assertEqual(list(told["usage"]["output_tokens_details"]), ["reasoning_tokens", *COUNTS])
        self.refused("/v1/responses", {**body, "speculation": "suffix"}, "speculation", '"suffix", but this server has "ngram" alone')
        message = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
        self.assertEqual(self.told("/v1/messages", {**message, "prediction": PREDICTION})[1]["content"],
                         self.told("/v1/messages", {**message, "speculation": False})[1]["content"])

    def test_wrong_fields(self):
        self.check_wrong_fields()
        for path, body in ROUTES:
            self.refused(path, {**body, "speculation": "suffix"}, "speculation", 'but this server has "ngram" alone (--speculate)')

    def test_metrics_count_drafts_by_source_place_and_adapter(self):
        """A format that allows one token alone has drafts that are accepted, whatever the model."""
        own = 'heddle:draft_tokens_total{kind="%s",model_name="tiny",source="%s"}'
        of_adapter = 'heddle:adapter_draft_tokens_total{adapter="%s",kind="%s",model_name="tiny"}'
        metric = self.server.metric
        before = {kind: metric(own % (kind, "format")) for kind in ("drafted", "accepted")}
        answer = self.told("/v1/completions", {**TEXT, "model": "a0", "ignore_eos": False, "guided_choice": [FORCED]})[1]
        self.assertEqual(answer["choices"][0]["text"], FORCED)
        drafted, accepted = (metric(own % (kind, "format")) - before[kind] for kind in ("drafted", "accepted"))
        self.assertGreater(accepted, 0)
        self.assertLessEqual(accepted, drafted)
        self.assertEqual(metric(of_adapter % ("a0", "accepted")), accepted)
        self.assertEqual(metric(of_adapter % ("a0", "drafted")), drafted)
        text = self.server.request("GET", "/metrics")[2]
        for kind, total in (("drafted", "vllm:spec_decode_num_draft_tokens_total"), ("accepted", "vllm:spec_decode_num_accepted_tokens_total")):
            whole = metric(total + '{model_name="tiny"}')
            self.assertEqual(sum(metric(own % (kind, source)) for source in ("ngram", "suffix", "prediction", "format")), whole)
            places = [line for line in text.splitlines() if line.startswith(f'heddle:draft_tokens_by_place_total{{kind="{kind}"')]
            self.assertEqual(sum(float(line.split()[-1]) for line in places), whole)
        self.assertEqual(metric('vllm:spec_decode_num_drafts_total{model_name="tiny"}'),
                         metric('heddle:draft_tokens_by_place_total{kind="drafted",model_name="tiny",place="0"}'))
        self.assertEqual(metric('vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="tiny",position="0"}'),
                         metric('heddle:draft_tokens_by_place_total{kind="accepted",model_name="tiny",place="0"}'))


class WithoutDrafts(Requests):
    options = ("--served-model-name", "tiny")

    def test_a_prediction_is_a_hint_and_the_log_says_once_that_it_is_left_out(self):
        self.assertNotIn(LEFT_OUT, self.server.log.read_text())
        for path, body in ROUTES:
            ignored, answer = self.told(path, {**body, "prediction": PARTS})
            self.assertEqual(ignored, "prediction")
            self.assertEqual(answer["usage"]["completion_tokens_details"], dict.fromkeys(COUNTS, 0))
            self.assertEqual(answer["choices"][0]["token_ids"], self.tokens(path, body))
        self.server.log_line(LEFT_OUT)
        self.assertEqual(self.server.log.read_text().count(LEFT_OUT), 1)

    def test_a_method_is_refused_and_true_is_what_the_server_has(self):
        for path, body in ROUTES:
            for method in ("ngram", "suffix"):
                self.refused(path, {**body, "speculation": method}, "speculation", "but this server has none (--speculate)")
            self.assertEqual(self.told(path, {**body, "speculation": True})[0], "speculation")
            for off in (False, "off"):
                self.assertIsNone(self.told(path, {**body, "speculation": off})[0])

    def test_wrong_fields_and_no_metrics(self):
        self.check_wrong_fields()
        text = self.server.request("GET", "/metrics")[2]
        self.assertIn("vllm:generation_tokens_total", text)
        for name in ("spec_decode", "draft_tokens"):
            self.assertNotIn(name, text)


class OfVllm(Requests):
    options = ("--served-model-name", "tiny", "--speculative-config", '{"method": "suffix", "num_speculative_tokens": 5}')

    def test_the_option_of_vllm_is_the_same(self):
        want = self.tokens("/v1/completions", {**TEXT, "speculation": "off"})
        for method in ("ngram", "suffix", True):
            self.assertEqual(self.tokens("/v1/completions", {**TEXT, "speculation": method}), want)
        self.assertIn("vllm:spec_decode_num_drafts_total", self.server.request("GET", "/metrics")[2])


if __name__ == "__main__":
    main()
