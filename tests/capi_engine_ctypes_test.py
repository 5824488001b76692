#!/usr/bin/env python3
"""The C interface of the engine from another language: through ctypes, with the model and the example adapters.

tests/capi_engine_ctypes_test.py LIBHEDDLE_C_ENGINE ADAPTERS    the model is that of HEDDLE_MODEL
"""

import ctypes
import json
import os
import pathlib
import sys
import threading
import unittest
from ctypes import POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p, pointer

INVALID_ARGUMENT = 1
UNKNOWN_ADAPTER = 3  # of a request
NONE, STOP, LENGTH, ERROR, CANCELLED = range(5)


class String(Structure):
    _fields_ = [("data", c_char_p), ("size", c_size_t)]


class Speculation(Structure):
    _fields_ = [("method", String), ("max_drafts", c_int32), ("min_ngram", c_int32), ("max_ngram", c_int32), ("memory", c_int64), ("draft_model", String)]


class DraftCounts(Structure):
    _fields_ = [("drafted", c_int64), ("accepted", c_int64)]


class Options(Structure):
    _fields_ = [("device", String)] + [(name, c_int32) for name in ("max_batch", "num_threads", "page_size", "prefill_chunk")] + [
        ("max_context", c_int64), ("kv_memory", c_int64), ("prefix_cache", c_bool), ("kv_host_memory", c_int64), ("kv_cache_dir", String), ("kv_disk_memory", c_int64), ("kv_disk_salted", c_bool), ("admit", String), ("fairness", String), ("kv_type", String), ("weights", String), ("activations", String), ("speculation", Speculation), ("adapter_dir", String),
        ("adapter_memory", c_int64), ("adapter_host_memory", c_int64), ("max_batch_adapters", c_int64),
        ("max_batch_adapter_bytes", c_int64), ("generation_config", String), ("on_load", c_void_p), ("user_data", c_void_p),
        ("strict", c_bool), ("on_warning", c_void_p)]


class Message(Structure):
    _fields_ = [("role", String), ("content", String)]


class TokenBias(Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Adapter(Structure):
    _fields_ = [("name", String), ("scale", c_float)]


class Merge(Structure):
    _fields_ = [("method", c_int32), ("density", c_double), ("majority_sign", c_int32), ("seed", c_int64)]


class Variant(Structure):
    _fields_ = [("adapters", POINTER(Adapter)), ("num_adapters", c_size_t), ("seed_offset", c_int64)]


class AdapterSwitch(Structure):
    _fields_ = [("position", c_int64), ("token", c_int64)]


class Event(Structure):
    _fields_ = [("request", c_int64), ("text", String), ("finish_reason", c_int32), ("answer", String),
                ("token_ids", POINTER(c_int32)), ("logprobs", POINTER(c_float)), ("num_tokens", c_size_t),
                ("top_token_ids", POINTER(c_int32)), ("top_logprobs", POINTER(c_float)), ("num_top_logprobs", c_size_t),
                ("prompt_logprobs", POINTER(c_float)), ("num_prompt_logprobs", c_size_t),
                ("prompt_top_token_ids", POINTER(c_int32)), ("prompt_top_logprobs", POINTER(c_float)), ("num_prompt_top_logprobs", c_size_t),
                ("values", POINTER(c_float)), ("num_values", c_size_t), ("labels", POINTER(String)),
                ("prompt_tokens", c_int64), ("cached_tokens", c_int64), ("stop", String), ("stop_token", c_int32), ("wait_seconds", c_double), ("drafts", DraftCounts), ("prediction", DraftCounts), ("error", String), ("error_code", c_int32),
                ("adapter_digest", String),
                ("adapter_switches", POINTER(AdapterSwitch)), ("num_adapter_switches", c_size_t), ("earlier_digests", String)]


class DraftStats(Structure):
    _fields_ = [("by_place", DraftCounts * 15), ("by_source", DraftCounts * 7)]


class Stats(Structure):
    _fields_ = [("prefill_seconds", c_double), ("decode_seconds", c_double), ("lora_seconds", c_double), ("prefill_tokens", c_int64),
                ("decode_tokens", c_int64), ("generated_tokens", c_int64), ("prefill_steps", c_int64), ("decode_steps", c_int64),
                ("wait_seconds", c_double), ("device_seconds", c_double), ("device_gap_seconds", c_double), ("graphs", c_int64),
                ("graph_seconds", c_double), ("adapter_uses", c_int64), ("adapter_loads", c_int64), ("adapter_reads", c_int64),
                ("adapter_seconds", c_double)] + [(name, c_int64) for name in (
                    "adapter_evictions", "prefix_tokens", "cached_tokens", "host_tokens", "disk_tokens", "parkings")] + [
                        ("drafts", DraftCounts), ("draft_stats", DraftStats)]


class Load(Structure):
    _fields_ = [(name, c_int64) for name in ("num_waiting", "num_running", "num_pages", "num_free_pages", "num_cached_pages", "num_host_pages", "num_disk_pages", "num_parked",
                                             "num_adapters", "adapter_bytes")]


CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Event))


class Format(Structure):
    _fields_ = [("kind", c_int32), ("source", String), ("choices", POINTER(String)), ("num_choices", c_size_t)]


class Thinking(Structure):
    _fields_ = [("max_tokens", c_int64), ("begin", String), ("end", String)]


class WantedValues(Structure):
    _fields_ = [("kind", c_int32), ("pooling", String), ("normalize", c_int32), ("dimensions", c_int64), ("activates", c_bool),
                ("token_ids", POINTER(c_int32)), ("num_token_ids", c_size_t)]


class Request(Structure):
    _fields_ = [("messages", POINTER(Message)), ("num_messages", c_size_t), ("messages_json", String), ("text", String),
                ("token_ids", POINTER(c_int32)), ("num_token_ids", c_size_t), ("adapter", String), ("max_tokens", c_int64),
                ("temperature", c_float), ("top_k", c_int32), ("top_p", c_float), ("min_p", c_float), ("seed", c_int64),
                ("stop", POINTER(String)), ("num_stop", c_size_t), ("ignore_end", c_bool), ("tools_json", String),
                ("documents_json", String), ("template_kwargs_json", String), ("add_generation_prompt", c_bool),
                ("repetition_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float),
                ("logit_bias", POINTER(TokenBias)), ("num_logit_bias", c_size_t), ("min_tokens", c_int64),
                ("stop_token_ids", POINTER(c_int32)), ("num_stop_token_ids", c_size_t),
                ("bad_words", POINTER(String)), ("num_bad_words", c_size_t),
                ("allowed_token_ids", POINTER(c_int32)), ("num_allowed_token_ids", c_size_t), ("include_stop", c_bool),
                ("skip_special_tokens", c_bool), ("truncate_prompt_tokens", c_int64), ("continue_final_message", c_bool),
                ("add_special_tokens", c_int32), ("top_logprobs", c_int32), ("prompt_logprobs", c_bool),
                ("adapters", POINTER(Adapter)), ("num_adapters", c_size_t), ("merge", Merge), ("cache_salt", String), ("tenant", String), ("tenant_weight", c_double), ("priority", c_int64), ("speculation", String), ("prediction", String), ("format", Format), ("thinking", Thinking), ("values", WantedValues),
                ("on_event", CALLBACK), ("user_data", c_void_p)]


def string(text):
    data = text.encode()
    return String(data, len(data))


def open_library(path):
    library = ctypes.CDLL(path)
    library.heddle_engine_last_error.restype = c_char_p
    arguments = {
        "options_init": [POINTER(Options)], "request_init": [POINTER(Request)],
        "apply_defaults": [c_void_p, POINTER(Request)],
        "create": [POINTER(c_void_p), String, POINTER(Options)], "destroy": [c_void_p],
        "add_adapter": [c_void_p, String, String, c_bool], "switch_adapter": [c_void_p, String, String],
        "keep_versions": [c_void_p, String, c_int32], "roll_back_adapter": [c_void_p, String, c_int64, c_bool], "remove_adapter": [c_void_p, String],
        "submit_each": [c_void_p, POINTER(Request), POINTER(Variant), c_size_t, POINTER(c_int64)],
        "submit": [c_void_p, POINTER(Request), POINTER(c_int64)], "cancel": [c_void_p, c_int64, POINTER(c_bool)],
        "get_load": [c_void_p, POINTER(Load)], "get_stats": [c_void_p, POINTER(Stats)], "reset_prefix_cache": [c_void_p],
        "poll": [c_void_p, c_int64, POINTER(POINTER(Event))], "event_destroy": [POINTER(Event)],
    }
    for name, types in arguments.items():
        getattr(library, f"heddle_engine_{name}").argtypes = types
    return library


def taken(event):
    """What stays of an event."""
    text = lambda s: ctypes.string_at(s.data, s.size).decode() if s.size else ""
    return dict(request=event.request, text=text(event.text), reason=event.finish_reason, answer=text(event.answer),
                token_ids=event.token_ids[:event.num_tokens], logprobs=event.logprobs[:event.num_tokens], error=text(event.error),
                switches=[(each.position, each.token) for each in event.adapter_switches[:event.num_adapter_switches]],
                drafts=(event.drafts.drafted, event.drafts.accepted), prediction=(event.prediction.drafted, event.prediction.accepted),
                values=event.values[:event.num_values], has_labels=bool(event.labels),
                code=event.error_code, prompt_tokens=event.prompt_tokens, cached_tokens=event.cached_tokens)


class CEngine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        options = Options()
        LIBRARY.heddle_engine_options_init(options)
        options.max_context = 256
        cls.engine = c_void_p()
        cls.check(cls, LIBRARY.heddle_engine_create(cls.engine, string(os.environ["HEDDLE_MODEL"]), options))
        for name in ("opposite", "slug"):
            cls.check(cls, LIBRARY.heddle_engine_add_adapter(cls.engine, string(name), string(str(ADAPTERS / name)), False))

    @classmethod
    def tearDownClass(cls):
        LIBRARY.heddle_engine_destroy(cls.engine)

    def check(self, status):
        assert status == 0, LIBRARY.heddle_engine_last_error().decode()

    def request(self, prompt, adapter, max_tokens):
        request = Request()
        LIBRARY.heddle_engine_request_init(request)
        request.messages = (Message * 1)(Message(string("user"), string(prompt)))
        request.num_messages = 1
        request.adapter, request.max_tokens = string(adapter), max_tokens
        return request

    def submit(self, prompt, adapter="", max_tokens=32, on_event=None):
        request, id = self.request(prompt, adapter, max_tokens), c_int64()
        if on_event:
            request.on_event = on_event
        self.check(LIBRARY.heddle_engine_submit(self.engine, request, id))
        return id.value

    def poll(self, count):
        """The last events of so many requests, by request, and the text of all."""
        ended, texts = {}, {}
        while len(ended) < count:
            event = POINTER(Event)()
            self.check(LIBRARY.heddle_engine_poll(self.engine, -1, event))
            news = taken(event.contents)
            LIBRARY.heddle_engine_event_destroy(event)
            texts[news["request"]] = texts.get(news["request"], "") + news["text"]
            if news["reason"] != NONE:
                ended[news["request"]] = news
        for id, news in ended.items():
            self.assertEqual(texts[id], news["answer"])
        return ended

    def test_rows_of_one_batch_have_adapters_of_their_own(self):
        rows = [("Opposites: hot, big, fast", "opposite"), ("Slug: The Quick Brown River!", "slug"), ("What is a loom?", "")]
        ids = [self.submit(prompt, adapter, 16) for prompt, adapter in rows]
        ended = self.poll(len(rows))
        answers = [ended[id] for id in ids]
        self.assertEqual([a["answer"] for a in answers[:2]], ["COLD, SMALL, SLOW", "the-quick-brown-river"])
        self.assertEqual([a["reason"] for a in answers], [STOP, STOP, LENGTH])
        self.assertEqual(len(answers[2]["token_ids"]), 16)
        self.assertTrue(all(p <= 0 for a in answers for p in a["logprobs"]))

    def test_one_prompt_through_several_adapters(self):
        prompt, ids = "Opposites: hot, big, fast", (c_int64 * 2)()
        lists = [Adapter(string("opposite"), 1), Adapter(string("slug"), 1)]
        variants = (Variant * 2)(*(Variant(pointer(adapter), 1, 0) for adapter in lists))
        self.check(LIBRARY.heddle_engine_submit_each(self.engine, self.request(prompt, "", 8), variants, 2, ids))
        alone = [self.submit(prompt, name, 8) for name in ("opposite", "slug")]
        ended = self.poll(4)
        for id, want in zip(ids, alone):
            self.assertEqual((ended[id]["answer"], ended[id]["logprobs"]), (ended[want]["answer"], ended[want]["logprobs"]))
        self.assertEqual(ended[ids[0]]["answer"], "COLD, SMALL, SLOW")

    def test_a_callback_gets_what_poll_gets(self):
        polled = self.poll(1) if self.submit("Opposites: hot, big, fast", "opposite") >= 0 else {}
        events, done = [], threading.Event()

        def on_event(_, event):
            events.append(taken(event.contents))
            if events[-1]["reason"] != NONE:
                done.set()

        callback = CALLBACK(on_event)
        self.submit("Opposites: hot, big, fast", "opposite", on_event=callback)
        self.assertTrue(done.wait(60))
        (want,) = polled.values()
        self.assertEqual(events[-1]["token_ids"], want["token_ids"])
        self.assertEqual(events[-1]["logprobs"], want["logprobs"])
        self.assertEqual("".join(e["text"] for e in events), want["answer"])
        self.assertGreater(len(events), 2)

    def test_numbers_in_place_of_an_answer(self):
        def values(kind, **fields):
            request, id = self.request("The loom is old.", "", 2), c_int64()
            request.values.kind = kind
            for name, value in fields.items():
                setattr(request.values, name, value)
            self.check(LIBRARY.heddle_engine_submit(self.engine, request, id))
            return self.poll(1)[id.value]

        embedding = values(1, pooling=string("mean"), dimensions=32)
        self.assertEqual((embedding["reason"], embedding["token_ids"], embedding["has_labels"]), (STOP, [], False))
        self.assertEqual(len(embedding["values"]), 32)
        self.assertAlmostEqual(sum(x * x for x in embedding["values"]), 1, places=5)
        longer = values(1, pooling=string("mean"), dimensions=32, normalize=0)["values"]
        self.assertAlmostEqual(longer[3] / longer[0], embedding["values"][3] / embedding["values"][0], places=3)
        ids = (c_int32 * 2)(5, 6)
        scores = values(3, token_ids=ids, num_token_ids=2)["values"]
        self.assertEqual((len(scores), max(scores) < 0), (2, True))
        classes = values(2)
        self.assertEqual((classes["reason"], classes["code"]), (ERROR, 2))
        self.assertIn("score head", classes["error"])

    def test_a_prompt_is_found_in_the_cache_until_a_reset(self):
        prompt, load = " ".join(["The loom is old."] * 12), Load()

        def cached(salt):
            request, id = self.request(prompt, "", 2), c_int64()
            request.cache_salt = string(salt)
            self.check(LIBRARY.heddle_engine_submit(self.engine, request, id))
            ended = self.poll(1)[id.value]
            self.assertGreater(ended["prompt_tokens"], 40)
            return ended["cached_tokens"], ended["prompt_tokens"] - 1

        self.assertEqual(cached("a")[0], 0)
        found, want = cached("a")
        self.assertEqual(found, want)
        self.assertEqual(cached("b")[0], 0)
        self.check(LIBRARY.heddle_engine_reset_prefix_cache(self.engine))
        self.check(LIBRARY.heddle_engine_get_load(self.engine, load))
        self.assertEqual((load.num_cached_pages, load.num_free_pages), (0, load.num_pages))
        self.assertEqual(cached("a")[0], 0)

    def test_an_answer_has_its_format(self):
        choices = (String * 2)(string("teal"), string("ochre"))
        formats = {"choice": Format(4, String(), choices, 2), "regex": Format(3, string("[0-9]{3}"), None, 0),
                   "json": Format(2, string('{"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false}'), None, 0)}
        ids = {}
        for name, given in formats.items():
            request, id = self.request("Which one?", "", 64), c_int64()
            request.format = given
            self.check(LIBRARY.heddle_engine_submit(self.engine, request, id))
            ids[name] = id.value
        ended = self.poll(len(ids))
        self.assertEqual({ended[id]["reason"] for id in ids.values()}, {STOP})
        self.assertIn(ended[ids["choice"]]["answer"], ("teal", "ochre"))
        self.assertRegex(ended[ids["regex"]]["answer"], r"\A[0-9]{3}\Z")
        self.assertIn(json.loads(ended[ids["json"]]["answer"]), ({"n": 1}, {"n": 2}))

    def test_drafts_are_counted_and_change_no_answer(self):
        """A format that allows one token alone has drafts that are accepted."""
        options, shared, stats = Options(), self.engine, Stats()
        LIBRARY.heddle_engine_options_init(options)
        options.max_context = 256
        options.speculation = Speculation(string("ngram"), 4, 2, 3, 0)
        self.engine = c_void_p()
        self.check(LIBRARY.heddle_engine_create(self.engine, string(os.environ["HEDDLE_MODEL"]), options))
        drafting = self.engine
        self.addCleanup(LIBRARY.heddle_engine_destroy, drafting)

        def answer(engine, speculation="", prediction=""):
            self.engine = engine
            request, id = self.request("Which one?", "", 32), c_int64()
            choices = (String * 1)(string("a forced answer of several tokens"))
            request.format = Format(4, String(), choices, 1)
            request.speculation, request.prediction = string(speculation), string(prediction)
            self.check(LIBRARY.heddle_engine_submit(engine, request, id))
            return self.poll(1)[id.value]

        want, without = answer(shared), answer(drafting, "off")
        self.assertEqual((want["drafts"], without["drafts"]), ((0, 0), (0, 0)))
        for got in (without, answer(drafting), answer(drafting, "ngram", "a forced answer")):
            self.assertEqual([got[name] for name in ("answer", "token_ids", "logprobs")], [want[name] for name in ("answer", "token_ids", "logprobs")])
        self.check(LIBRARY.heddle_engine_get_stats(drafting, stats))
        self.assertGreater(stats.drafts.accepted, 0)
        self.assertGreater(stats.draft_stats.by_source[3].accepted, 0)
        for key in ("drafted", "accepted"):
            for counts in (stats.draft_stats.by_place, stats.draft_stats.by_source):
                self.assertEqual(sum(getattr(each, key) for each in counts), getattr(stats.drafts, key))
        self.assertGreater(answer(drafting)["drafts"][1], 0)
        wrong = answer(drafting, "eagle9")
        self.assertEqual((wrong["reason"], wrong["code"]), (ERROR, 1))
        self.assertIn("speculation is 'eagle9', expected off, ngram, suffix", wrong["error"])
        options.speculation.method = string("headless")
        self.assertEqual(LIBRARY.heddle_engine_create(c_void_p(), string(os.environ["HEDDLE_MODEL"]), options), INVALID_ARGUMENT)
        self.assertIn("speculation is 'headless', expected off, ngram, suffix", LIBRARY.heddle_engine_last_error().decode())

    def test_cancelled_and_refused(self):
        long, wrong = self.submit("What is a loom?", "", 200), self.submit("Hi", "nobody")
        was = c_bool()
        self.check(LIBRARY.heddle_engine_cancel(self.engine, long, was))
        self.assertTrue(was.value)
        ended = self.poll(2)
        self.assertEqual((ended[long]["reason"], ended[long]["code"]), (CANCELLED, 0))
        got = [ended[wrong][name] for name in ("reason", "error", "code")]
        self.assertEqual(got, [ERROR, 'unknown adapter "nobody"', UNKNOWN_ADAPTER])

    def test_adapters_are_found_in_a_folder(self):
        prompt, names = "Opposites: hot, big, fast", ("opposite", "slug", "../adapters/sql")
        wanted = [self.submit(prompt, name) for name in names[:2]]
        added = self.poll(2)
        options = Options()
        LIBRARY.heddle_engine_options_init(options)
        options.max_context, options.adapter_dir, options.adapter_memory = 256, string(str(ADAPTERS)), 4 << 20
        self.engine = c_void_p()  # besides that of the class
        self.check(LIBRARY.heddle_engine_create(self.engine, string(os.environ["HEDDLE_MODEL"]), options))
        try:
            ids = [self.submit(prompt, name) for name in names]
            found = self.poll(3)
        finally:
            LIBRARY.heddle_engine_destroy(self.engine)
            del self.engine
        for got, want in zip(ids, wanted):
            self.assertEqual((found[got]["token_ids"], found[got]["logprobs"]), (added[want]["token_ids"], added[want]["logprobs"]))
        self.assertIn("holds a '/'", found[ids[2]]["error"])

    def test_adapters_are_replaced_and_removed_while_rows_run(self):
        slug = str(ADAPTERS / "slug")
        self.check(LIBRARY.heddle_engine_add_adapter(self.engine, string("mine"), string(str(ADAPTERS / "opposite")), False))
        old = self.submit("Opposites: hot, big, fast", "mine")
        self.check(LIBRARY.heddle_engine_add_adapter(self.engine, string("mine"), string(slug), True))
        new = self.submit("Slug: The Quick Brown River!", "mine")
        self.check(LIBRARY.heddle_engine_remove_adapter(self.engine, string("mine")))
        ended = self.poll(2)
        self.assertEqual(ended[old]["answer"], "COLD, SMALL, SLOW")
        self.assertEqual(ended[new]["answer"], "the-quick-brown-river")
        self.assertEqual(LIBRARY.heddle_engine_remove_adapter(self.engine, string("mine")), INVALID_ARGUMENT)
        self.assertEqual(LIBRARY.heddle_engine_last_error(), b'unknown adapter "mine"')

    def test_a_model_that_is_not_there(self):
        engine = c_void_p()
        self.assertEqual(LIBRARY.heddle_engine_create(engine, string("/nonexistent.gguf"), None), INVALID_ARGUMENT)
        self.assertIn(b"/nonexistent.gguf", LIBRARY.heddle_engine_last_error())
        self.assertIsNone(engine.value)


if __name__ == "__main__":
    ADAPTERS = pathlib.Path(sys.argv.pop())
    LIBRARY = open_library(sys.argv.pop(1))
    unittest.main()
