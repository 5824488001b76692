"""Tenants that share `heddle serve`: keys with names and weights, a burst of one of them and another one's request, how much of the line one
may take, and what log, metrics and the page say of it, without keys.
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import HEDDLE, Case, main  # noqa: E402

KEYS = {"reports": "sesame-of-reports", "chat": "sesame-of-chat", "key-3": "sesame-without-a-name"}
TEXT = {"prompt": "ab", "temperature": 0, "ignore_eos": True}


def key_file():
    return f"reports {KEYS['reports']}\nchat {KEYS['chat']} 2\n{KEYS['key-3']}\n"


class SharesCase(Case):
    def ask(self, holder, **fields):
        """(status, answer, seconds)"""
        begin = time.monotonic()
        headers = {"Authorization": f"Bearer {KEYS[holder]}"} if holder else {}
        status, answer = self.server.post("/v1/completions", {**TEXT, **fields}, headers=headers)
        return status, answer, time.monotonic() - begin

    def labelled(self, metric):
        """{(tenant, kind): value}; kind is empty where the metric has none"""
        found = {}
        for line in self.server.request("GET", "/metrics")[2].splitlines():
            if line.startswith(metric + "{"):
                labels = dict(pair.split("=", 1) for pair in line[len(metric) + 1:line.rindex("}")].split(","))
                key = labels["tenant"].strip('"'), labels.get("kind", '""').strip('"')
                found[key] = float(line.rsplit(" ", 1)[1])
        return found

    def order_of_ends(self, burst, late):
        """The place of the late request among the ends of a burst of 24 before it."""
        ended = []
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            def run(name, asked):
                status, answer, _ = self.ask(**asked)
                self.assertEqual(status, 200, answer)
                ended.append(name)
            jobs = [pool.submit(run, "burst", burst) for _ in range(24)]
            deadline = time.monotonic() + 20
            while self.server.metric("vllm:num_requests_waiting") < 16 and time.monotonic() < deadline:
                time.sleep(0.005)
            self.assertLess(len(ended), 8, "the burst is still to come")
            jobs.append(pool.submit(run, "late", late))
            for job in jobs:
                job.result()
        return ended.index("late")


class Priorities(SharesCase):
    options = ("--max-batch", "1")

    def test_a_burst_of_larger_priority_waits(self):
        for burst, late, most in (({"priority": 1}, {}, 4), ({}, {"priority": -1}, 4)):
            burst, late = {"max_tokens": 200, **burst}, {"max_tokens": 2, **late}
            place = self.order_of_ends({"holder": None, **burst}, {"holder": None, **late})
            self.assertLess(place, 8 + most, "of 24, of which fewer than 8 had ended")
        place = self.order_of_ends({"holder": None, "max_tokens": 200}, {"holder": None, "max_tokens": 2, "priority": 1})
        self.assertGreaterEqual(place, 22, "it waits for all of the burst, of which the last may be told a moment later")

    def test_no_bit_depends_on_it(self):
        fields = {"max_tokens": 20, "temperature": 1, "seed": 3, "logprobs": 3}
        want = self.ask(None, **fields)[1]["choices"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(self.ask, None, priority=i % 3 - 1, **fields) for i in range(24)]
            for job in jobs:
                self.assertEqual(job.result()[1]["choices"], want)


class ByKey(SharesCase):
    options = ("--fairness", "key", "--max-batch", "1", "--max-waiting", "60")
    keys = key_file()

    def test_a_burst_of_one_key_holds_up_another_by_a_few(self):
        place = self.order_of_ends({"holder": "reports", "max_tokens": 200}, {"holder": "chat", "max_tokens": 2})
        self.assertLess(place, 12, "of 24")

    def test_one_key_takes_half_of_the_line(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            # Four of these are more than half of the line, and three take the engine far longer than a client takes to ask.
            jobs = [pool.submit(self.ask, "reports", prompt=["a"] * 8, max_tokens=200) for _ in range(16)]
            others = []
            while not all(job.done() for job in jobs):
                others.append(self.ask("chat", max_tokens=1)[0])
            answers = [job.result() for job in jobs]
        statuses = {status for status, _, _ in answers}
        self.assertEqual(statuses, {200, 429})
        message = next(answer["error"]["message"] for status, answer, _ in answers if status == 429)
        self.assertIn("too many requests of this key are waiting", message)
        self.assertNotIn("sesame", message)
        self.assertEqual(set(others), {200}, "who has nothing in the line finds a place")
        status, answer, _ = self.ask("chat", prompt=["a"] * 60)
        self.assertEqual(status, 429, "a request of many answers takes no more than many requests")
        self.assertEqual(self.ask("chat", prompt=["a"] * 30, max_tokens=1)[0], 200)

    def test_log_metrics_and_page_have_names_and_no_keys(self):
        for holder in KEYS:
            self.assertEqual(self.ask(holder, max_tokens=3)[0], 200)
        tokens = self.labelled("heddle:tenant_tokens_total")
        for holder in KEYS:
            self.assertGreaterEqual(tokens[(holder, "prompt")], 2)
            self.assertGreaterEqual(tokens[(holder, "answer")], 3)
            self.assertEqual(self.labelled("heddle:tenant_requests_waiting")[(holder, "")], 0)
            self.assertEqual(self.labelled("heddle:tenant_requests_running")[(holder, "")], 0)
        headers = {"x-api-key": KEYS["chat"]}
        state = json.loads(self.server.request("GET", "/state", headers=headers)[2])
        told = {tenant["name"]: tenant for tenant in state["tenants"]}
        self.assertEqual({name: tenant["weight"] for name, tenant in told.items()}, {"reports": 1, "chat": 2, "key-3": 1})
        self.assertGreaterEqual(told["chat"]["answer_tokens"], 3)
        log = self.server.log.read_text()
        for holder in KEYS:
            self.assertIn(f"key={holder}", log)
        for text in (log, json.dumps(state), self.server.request("GET", "/metrics")[2]):
            self.assertNotIn("sesame", text)


class ByAdapter(SharesCase):
    options = ("--fairness", "adapter", "--adapter-weight", "a1=4", "--max-batch", "1", "--max-waiting", "60")

    def test_a_burst_of_one_adapter_holds_up_another_by_a_few(self):
        late = {"holder": None, "model": "a1", "max_tokens": 2}
        self.assertLess(self.order_of_ends({"holder": None, "model": "a0", "max_tokens": 200}, late), 12, "of 24")
        tokens = self.labelled("heddle:tenant_tokens_total")
        self.assertEqual((tokens[("a0", "answer")], tokens[("a1", "answer")]), (24 * 200, 2))
        state = json.loads(self.server.request("GET", "/state")[2])
        self.assertEqual({t["name"]: t["weight"] for t in state["tenants"]}, {"a0": 1, "a1": 4})


class Off(SharesCase):
    options = ("--max-batch", "1", "--max-waiting", "60")
    keys = key_file()

    def test_requests_are_served_as_they_come(self):
        place = self.order_of_ends({"holder": "reports", "max_tokens": 200}, {"holder": "chat", "max_tokens": 2})
        self.assertGreater(place, 20, "after the burst of 24, but for how fast clients read")
        self.assertEqual(self.labelled("heddle:tenant_tokens_total"), {})
        state = json.loads(self.server.request("GET", "/state", headers={"x-api-key": KEYS["chat"]})[2])
        self.assertEqual(state["tenants"], [])
        self.assertIn("key=reports", self.server.log.read_text())


class Wrong(unittest.TestCase):
    def test_what_has_no_effect_is_refused_before_the_model_is_read(self):
        for options, sentence in ((("--fairness", "key"), "there are no keys to share by"),
                                  (("--adapter-weight", "a=2"), "adapters do not share the engine"),
                                  (("--fairness", "adapter", "--adapter-weight", "a=0"), "expected a number from 0.001 to 1000"),
                                  (("--fairness", "adapter", "--adapter-weight", "a"), "expected NAME=WEIGHT"),
                                  (("--fairness", "all"), "--fairness")):
            with self.subTest(options=options):
                ended = subprocess.run([HEDDLE, "serve", "--model", "/none", *options], capture_output=True, text=True, timeout=60)
                self.assertEqual(ended.returncode, 2)
                self.assertIn(sentence, ended.stderr)


if __name__ == "__main__":
    main()
