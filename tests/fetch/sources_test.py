"""`heddle serve` with adapters from a hub of this machine: how requests name them, what tokens open, how large the cache grows, and that nothing
waits for a download but who asked for it.

  python3 tests/fetch/sources_test.py HEDDLE
"""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
import serve_case
from local_hub import LocalHub
from serve_case import HEDDLE, Server, main
from tiny_model import TINY, write_adapter

TOKEN, OTHER_TOKEN = "hf_of-a-request", "hf_of-another-request"
WEIGHTS = "adapter_model.safetensors"


class Case(serve_case.Case):
    """A server of its own for each class, whose hub has acme/sql (the files of a0), acme/cron (a1) and other/sql (a2)."""

    sources = ()
    environment = {}

    @classmethod
    def setUpClass(cls):
        cls.hub = cls.enterClassContext(LocalHub())
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.cache = folder / "cache"
        cls.enterClassContext(serve_environment(HF_ENDPOINT=cls.hub.url, **cls.environment))
        allowed = [word for pattern in ("acme/*", "big/*") for word in ("--adapter-source-allow", pattern)]
        cls.server = Server(folder, "--adapter-source", "hub", *allowed, "--adapter-cache", cls.cache, *cls.sources)
        cls.addClassCleanup(cls.server.stop)
        cls.folders = folder / "adapters"

    def setUp(self):
        self.hub.heal()
        for number, name in enumerate(("acme/sql", "acme/cron", "other/sql")):
            self.hub.put_folder(name, self.folders / f"a{number}")

    def answer(self, model, status=200, **fields):
        """The tokens of a greedy answer; of another status the message."""
        body = {"model": model, "prompt": "ab", "max_tokens": 16, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
        got, answer = self.server.post("/v1/completions", body)
        self.assertEqual(got, status, answer)
        return answer["error"]["message"] if status != 200 else tuple(answer["choices"][0]["token_ids"])

    def local(self, number):
        return self.answer(f"a{number}")

    def put_big(self, name, seed=7, size=2_000_000):
        """An adapter of about this many bytes."""
        with tempfile.TemporaryDirectory() as folder:
            write_adapter(folder, seed, dataclasses.replace(TINY, rank=size // 8192))
            return self.hub.put_folder(name, pathlib.Path(folder))

    def cards(self):
        """What /v1/models has of adapters of the hub, by their names."""
        cards = json.loads(self.server.request("GET", "/v1/models")[2])["data"]
        return {card["id"]: card for card in cards if "/" in card["id"]}

    def cached(self):
        return sorted(path.name for path in (self.cache / "adapters").iterdir())


class serve_environment:
    """Variables of the servers that are started within."""

    def __init__(self, **variables):
        self.variables = variables

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.variables}
        os.environ.update(self.variables)

    def __exit__(self, *_):
        for name, value in self.before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Names(Case):
    def test_an_adapter_of_the_hub_by_its_name_in_all_apis(self):
        expected = self.local(0)
        self.assertNotEqual(expected, self.local(1))
        self.assertEqual(self.answer("acme/sql"), expected)
        self.assertEqual(self.answer("acme/sql", adapter_source="hub"), expected)
        self.assertEqual(self.answer("model", adapter_id="acme/sql"), expected)
        self.assertEqual(self.answer("model", lora=[{"name": "acme/sql"}]), expected)
        commit = self.hub.repositories["acme/sql"].commit
        self.assertEqual(self.answer(f"acme/sql@{commit}"), expected)
        self.assertEqual([name for name in self.cached() if name.startswith("hub:acme%2Fsql@")], [f"hub:acme%2Fsql@{commit}"])

        def generate(adapter, **more):
            status, answer = self.server.post("/generate", {"inputs": "ab", "parameters": {"adapter_id": adapter, "max_new_tokens": 8, **more}})
            self.assertEqual(status, 200, answer)
            return answer["generated_text"]
        self.assertEqual(generate("acme/sql", adapter_source="hub"), generate("a0"))
        status, counted = self.server.post("/tokenize", {"model": "acme/sql", "prompt": "ab"})
        self.assertEqual((status, counted["count"]), (200, 2))
        for path, body in (("/tokenize", {"prompt": "ab"}), ("/tokenize", {"inputs": "ab"}), ("/detokenize", {"tokens": [1]}),
                           ("/embed", {"inputs": "ab"}), ("/v1/embeddings", {"input": "ab"})):
            which = {"adapter_id": "acme/sql", "adapter_source": "hub"}
            status, answer = self.server.post(path, {**body, **({"parameters": which} if "inputs" in body else which)})
            self.assertEqual(status, 200, (path, answer))
        status, whole = self.server.post("/v1/chat/completions", {"model": "acme/sql", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 4})
        self.assertEqual((status, whole["model"]), (200, "acme/sql"))
        self.assertEqual(len(self.hub.asked(kind="large", method="GET")), 1)

    def test_those_in_memory_are_listed_with_their_receipts(self):
        name = f"acme/sql@{self.hub.put_folder('acme/sql', self.folders / 'a0')}"
        for model in ("acme/sql", name):
            self.assertEqual(self.answer(model), self.local(0))
            card = self.cards()[model]
            self.assertEqual((card["parent"], card["lora"]["pinned"], card["lora"]["state"]), ("model", False, "in memory"))
            of_files = json.loads(self.server.request("GET", "/v1/models/a0")[2])["lora"]["receipt"]
            status, _, shown = self.server.request("GET", f"/v1/models/{model}")
            self.assertEqual((status, json.loads(shown)["lora"]["receipt"]), (200, of_files))
        self.assertNotIn("acme/listed", self.cards())
        for absent in ("acme/listed", "acme/sql@v9"):
            self.assertEqual(self.server.request("GET", f"/v1/models/{absent}")[0], 404)

    def test_lists_of_adapters_from_here_and_there(self):
        mixed = self.answer("model", lora=[{"name": "acme/sql", "scale": 0.5}, {"name": "a1", "scale": 0.25}])
        self.assertEqual(mixed, self.answer("model", lora=[{"name": "a0", "scale": 0.5}, {"name": "a1", "scale": 0.25}]))

    def test_what_may_not_be_fetched(self):
        self.assertIn("does not exist", self.answer("other/sql", status=404))
        self.assertIn("--adapter-source-allow", self.answer("other/sql", status=403, adapter_source="hub"))
        for name in ("acme/../other/sql", "acme/..", "acme/%2e%2e", "/etc/passwd", "acme/sql/more", "acme/sql@../x", "acme/sql\u0000", "acme/sql?x=1"):
            got, answer = self.server.post("/v1/completions", {"model": name, "prompt": "ab", "adapter_source": "hub"})
            self.assertIn(got, (400, 403), (name, answer))
        self.assertEqual(self.hub.asked(), [])
        self.assertIn('adapter_source is', self.answer("acme/sql", status=400, adapter_source="pbase"))
        self.assertIn("is no source of this server", self.answer("acme/sql", status=400, adapter_source="s3"))
        self.assertIn("takes no tokens", self.answer("acme/sql", status=400, api_token=TOKEN))
        self.assertIn("does not exist", self.answer("acme/sql", status=404, adapter_source="local"))

    def test_what_the_hub_does_not_have(self):
        self.answer("acme/none", status=403)
        self.assertIn("does not have it", self.answer("acme/sql@v9", status=404))
        self.hub.put("acme/pickle", {"adapter_config.json": b"{}", "adapter_model.bin": b"\x80"})
        self.assertIn("a pickle", self.answer("acme/pickle", status=404))
        self.assert_alive()

    def test_contents_that_are_not_the_announced_ones(self):
        before = self.cached()
        for number, (fault, value) in enumerate((("other", {WEIGHTS}), ("more", {WEIGHTS}), ("other", {"adapter_config.json"}))):
            name = f"acme/wrong{number}"
            self.hub.put_folder(name, self.folders / "a0")
            setattr(self.hub.faults, fault, value)
            self.answer(name, status=502)
            self.hub.heal()
            self.assertEqual(self.cached(), before)
        self.hub.faults.redirect[WEIGHTS] = "file:///etc/passwd"
        self.hub.put_folder("acme/elsewhere", self.folders / "a0")
        self.assertIn("which is not fetched", self.answer("acme/elsewhere", status=400))
        self.assert_alive()

    def test_an_adapter_that_is_none_of_this_model(self):
        config = json.loads((self.folders / "a0" / "adapter_config.json").read_text())
        self.hub.put("acme/odd", {"adapter_config.json": json.dumps({**config, "peft_type": "LOHA"}).encode(),
                                  WEIGHTS: (self.folders / "a0" / WEIGHTS).read_bytes()})
        message = self.answer("acme/odd", status=400)
        self.assertIn("LOHA", message)
        self.assertNotIn(str(self.cache), message)

    def test_a_load_by_the_admin(self):
        body = {"lora_name": "loaded", "lora_path": "acme/cron", "adapter_source": "hub"}
        status, _, text = self.server.admin("/v1/load_lora_adapter", body)
        self.assertEqual(status, 200, text)
        self.assertEqual(self.answer("loaded"), self.local(1))
        status, _, text = self.server.admin("/v1/load_lora_adapter", {**body, "lora_name": "other", "lora_path": "other/sql"})
        self.assertEqual(status, 403, text)
        self.assertEqual(self.server.admin("/v1/unload_lora_adapter", {"lora_name": "loaded"})[0], 200)


class Versions(Case):
    sources = ("--adapter-refresh", "0")

    def test_a_branch_that_moves_is_followed_and_commits_stay(self):
        first = self.hub.put_folder("acme/moving", self.folders / "a0")
        self.assertEqual(self.answer("acme/moving"), self.local(0))
        digest = self.cards()["acme/moving"]["lora"]["digest"]
        self.hub.put_folder("acme/moving", self.folders / "a1")
        self.assertEqual(self.answer("acme/moving"), self.local(1))
        self.assertNotEqual(self.cards()["acme/moving"]["lora"]["digest"], digest)
        self.assertEqual(self.answer(f"acme/moving@{first}", status=404).count(first), 1)  # this hub forgets what was

    def test_a_hub_that_is_away_leaves_what_is_there(self):
        self.assertEqual(self.answer("acme/sql"), self.local(0))
        self.hub.faults.status = 503
        self.assertEqual(self.answer("acme/sql"), self.local(0))
        self.answer("acme/new", status=503)
        self.assertIn("the version in the cache serves on", self.server.log.read_text())

    def test_what_the_hub_takes_back_is_gone(self):
        self.hub.put_folder("acme/withdrawn", self.folders / "a0")
        self.answer("acme/withdrawn")
        del self.hub.repositories["acme/withdrawn"]
        self.answer("acme/withdrawn", status=403)


class Tokens(Case):
    sources = ("--allow-request-tokens",)
    environment = {"HF_TOKEN": "hf_of-the-server"}

    def test_a_request_opens_what_is_private_for_itself_alone(self):
        self.hub.put_folder("acme/private", self.folders / "a0", token=TOKEN)
        self.answer("acme/private", status=403)
        self.assertEqual(self.answer("acme/private", api_token=TOKEN), self.local(0))
        self.answer("acme/private", status=403)
        self.answer("acme/private", status=403, api_token=OTHER_TOKEN)
        status, answer = self.server.post("/generate", {"inputs": "ab", "parameters": {
            "adapter_id": "acme/private", "adapter_source": "hub", "api_token": TOKEN, "max_new_tokens": 1}})
        self.assertEqual(status, 200, answer)
        given = {headers.get("Authorization") for kind, *_, headers in self.hub.asked(kind="hub")}
        self.assertEqual(given, {"Bearer hf_of-the-server", f"Bearer {TOKEN}", f"Bearer {OTHER_TOKEN}"})
        self.assertEqual({headers.get("Authorization") for *_, headers in self.hub.asked(kind="large")}, {None})
        self.assertNotIn("acme/private", self.cards())
        self.assertEqual(self.server.request("GET", "/v1/models/acme/private")[0], 404)
        log = self.server.log.read_text() + "".join(map(str, self.cache.rglob("*")))
        for token in ("hf_of-the-server", TOKEN, OTHER_TOKEN, "signature"):
            self.assertNotIn(token, log)

    def test_tokens_that_are_none(self):
        self.assertIn("is no token", self.answer("acme/sql", status=400, api_token="a b\r\nHost: x"))
        self.assertIn("no adapter of the request is fetched", self.answer("a0", status=400, api_token=TOKEN))

    def test_the_servers_own_token(self):
        self.hub.put_folder("acme/ours", self.folders / "a1", token="hf_of-the-server")
        self.assertEqual(self.answer("acme/ours"), self.local(1))
        self.assertIn("acme/ours", self.cards())


class Room(Case):
    sources = ("--adapter-cache-size", "5M")

    def cache_bytes(self):
        return sum(path.stat().st_size for path in self.cache.rglob("*") if path.is_file())

    def failures(self):
        text = self.server.request("GET", "/metrics")[2]
        return float(re.search(r'^heddle:adapter_downloads_total\{.*outcome="failed".*\} (\S+)$', text, re.MULTILINE)[1])

    def test_the_cache_stays_within_its_bound(self):
        for number in range(6):
            self.put_big(f"big/{number}", seed=number)
        for number in (0, 1, 2, 1, 3, 4, 5, 1, 0):
            self.assertEqual(len(self.answer(f"big/{number}")), 16)
            self.assertLessEqual(self.cache_bytes(), 5 << 20)
        self.assertEqual([name.split("@")[0] for name in self.cached()], ["hub:big%2F0", "hub:big%2F1"])
        self.assertLessEqual(self.server.metric("heddle:adapter_cache_bytes"), 5 << 20)

    def test_an_adapter_that_never_fits(self):
        self.put_big("big/stays")
        self.answer("big/stays")
        self.hub.heal()
        self.put_big("big/huge", size=6_000_000)
        self.assertIn("the cache of adapters may have 5242880", self.answer("big/huge", status=507))
        self.assertEqual(self.hub.asked(kind="large"), [])
        self.assertTrue(any(name.startswith("hub:big%2Fstays") for name in self.cached()))

    def test_what_is_left_of_failures_counts_and_goes(self):
        before = self.failures()
        for number in range(4):
            self.put_big(f"big/cut{number}", seed=number)
            self.hub.faults.cut[WEIGHTS] = 0
            self.hub.faults.no_range = True
            self.answer(f"big/cut{number}", status=503)
            self.assertLessEqual(self.cache_bytes(), 5 << 20)
        self.hub.heal()
        self.assertEqual(len(self.answer("big/cut3")), 16)
        self.assertEqual(self.failures(), before + 4)

    def test_adapters_of_running_requests_stay(self):
        self.put_big("big/held", seed=20)
        self.put_big("big/next", seed=21)
        self.put_big("big/third", seed=22)
        expected = self.answer("big/held")
        body = {"model": "big/held", "prompt": "ab", "max_tokens": 1900, "n": 8, "temperature": 1, "ignore_eos": True, "stream": True}
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.readline()
        self.answer("big/next")
        self.answer("big/third")
        self.assertGreater(self.server.metric("vllm:num_requests_running"), 0)
        self.assertTrue(any(name.startswith("hub:big%2Fheld") for name in self.cached()))
        response.read()
        self.assertEqual(self.answer("big/held"), expected)


class Waits(Case):
    sources = ("--download-wait", "1.5")

    def test_two_requests_at_once_are_one_download(self):
        self.put_big("big/both", size=200_000)
        self.hub.faults.seconds = 0.05
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            answers = set(threads.map(lambda _: self.answer("big/both"), range(8)))
        self.assertEqual(len(answers), 1)
        self.assertEqual(len(self.hub.asked(kind="large", method="GET")), 1)
        self.assertEqual(len(self.hub.asked(text="/api/models/")), 1)

    def test_a_download_that_takes_long_goes_on_without_the_request(self):
        self.put_big("big/slow", size=100_000)
        self.hub.faults.seconds = 2.5
        begin = time.monotonic()
        self.assertIn("is still being fetched", self.answer("big/slow", status=503))
        self.assertLess(time.monotonic() - begin, 2.4)
        deadline = time.monotonic() + 20
        while not any(name.startswith("hub:big%2Fslow") for name in self.cached()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertEqual(len(self.answer("big/slow")), 16)

    def test_no_step_waits_for_a_download(self):
        expected = {number: self.local(number) for number in range(2)}
        for number in range(4):
            self.put_big(f"big/hung{number}", seed=number)
        self.hub.faults.seconds = 1
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            hung = [threads.submit(self.server.post, "/v1/completions", {"model": f"big/hung{number}", "prompt": "ab", "max_tokens": 1})
                    for number in range(4)]
            while self.server.metric("heddle:adapter_downloads_in_flight") < 4:
                time.sleep(0.01)
            longest, count, begin = 0, 0, time.monotonic()
            while time.monotonic() - begin < 0.8:
                start = time.monotonic()
                self.assertEqual(self.local(count % 2), expected[count % 2])
                longest, count = max(longest, time.monotonic() - start), count + 1
            self.assertEqual(self.server.metric("heddle:adapter_downloads_in_flight"), 4)
            self.assertLess(longest, 0.5)
            self.assertGreater(count, 3)
            self.assertLessEqual({future.result()[0] for future in hung}, {200, 503})
        self.hub.heal()
        while self.server.metric("heddle:adapter_downloads_in_flight") > 0:
            time.sleep(0.01)

    def test_a_cut_download_goes_on_where_it_was(self):
        self.hub.put_folder("acme/cut", self.folders / "a0")
        size = len(self.hub.repositories["acme/cut"].files[WEIGHTS])
        self.hub.faults.cut[WEIGHTS] = size // 2
        self.assertEqual(self.answer("acme/cut"), self.local(0))
        ranges = [headers.get("Range") for *_, headers in self.hub.asked(kind="large", method="GET")]
        self.assertEqual(ranges[:2], [None, f"bytes={size // 2}-"])


class Restarts(Case):
    def test_a_later_server_finds_what_is_there_without_the_hub(self):
        self.assertEqual(self.answer("acme/sql"), self.local(0))
        self.assertEqual(self.server.stop(), 0)
        self.hub.faults.status = 503
        (self.cache / "adapters" / "hub:acme%2Fcron@link").symlink_to("/etc")
        again = Server(self.server.folder, "--adapter-source", "hub", "--adapter-source-allow", "*", "--adapter-cache", self.cache)
        self.addCleanup(again.stop)
        listed = lambda: [card["id"] for card in json.loads(again.request("GET", "/v1/models")[2])["data"]]  # noqa: E731
        self.assertNotIn("acme/sql", listed(), "nothing of it is in memory yet")
        self.assertEqual(again.complete("acme/sql"), again.complete("a0"))
        self.assertIn("acme/sql", listed())
        self.assertIn(again.post("/v1/completions", {"model": "acme/cron@link", "prompt": "ab"})[0], (400, 404, 503))
        self.refused("--adapter-source", "hub", "--adapter-source-allow", "*", "--adapter-cache", self.cache, says="another program has this cache")

    def refused(self, *options, says):
        done = subprocess.run([HEDDLE, "serve", "--model", self.server.folder / "model", "--port", "0", *map(str, options)],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(says, done.stderr)

    def test_options_that_do_not_go_together(self):
        cache = ("--adapter-cache", self.server.folder / "other")
        self.refused("--adapter-source", "hub", *cache, says="needs --adapter-source-allow")
        self.refused("--adapter-source", "hub", "--adapter-source-allow", "*", says="needs --adapter-cache")
        self.refused(*cache, says="--adapter-source is missing")
        self.refused("--adapter-source", "ftp", "--adapter-source-allow", "*", *cache, says="ftp")
        with serve_environment(HF_ENDPOINT="ftp://hub"):
            self.refused("--adapter-source", "hub", "--adapter-source-allow", "*", *cache, says="HF_ENDPOINT")
        linked = self.server.folder / "linked"
        linked.mkdir(exist_ok=True)
        if not (linked / "adapters").is_symlink():
            (linked / "adapters").symlink_to("/tmp")
        self.refused("--adapter-source", "hub", "--adapter-source-allow", "*", "--adapter-cache", linked, says="is a link or no folder")

    def test_without_the_option_nothing_is_fetched(self):
        plain = Server(self.server.folder / "plain")
        self.addCleanup(plain.stop)
        for fields, says in (({"adapter_source": "hub"}, "this server fetches no adapters"), ({"api_token": TOKEN}, "this server fetches no adapters")):
            status, answer = plain.post("/v1/completions", {"model": "acme/sql", "prompt": "ab", **fields})
            self.assertEqual(status, 400)
            self.assertIn(says, answer["error"]["message"])
        self.assertEqual(plain.post("/v1/completions", {"model": "acme/sql", "prompt": "ab"})[0], 404)


if __name__ == "__main__":
    main()
