"""`heddle serve` under load and with clients that misbehave: nothing is lost or mixed, and no client waits for a slow one."""
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import tempfile
import threading
import time
import unittest

from serve_case import HEDDLE, Case, Server, events, main
from tiny_model import write_all

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADAPTERS = 200
CLIENTS, REQUESTS = 64, int(os.environ.get("HEDDLE_TEST_REQUESTS", "24000"))
STREAMS, STREAMS_MIB = 1000, 96
IDLE_SECONDS = float(os.environ.get("HEDDLE_TEST_IDLE_SECONDS", "5"))
RECORD = {"soak": {}, "idle": {}}  # what file HEDDLE_TEST_RECORD is written with
ENDLESS = {"prompt": "ab", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}


def request_bytes(path, body, host="localhost"):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data


def open_stream(port, body, receive_bytes=None):
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", port))
    connection.sendall(request_bytes("/v1/completions", {**body, "stream": True}))
    return connection


def wait_until(is_true, seconds=20):
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Load(Case):
    options = ("--max-batch", 64, "--max-waiting", 4096, "--max-connections", 3000, "--stream-buffer", "64K", "--stream-timeout", 3,
               "--kv-memory", "400M")
    num_adapters = ADAPTERS

    def running(self):
        return self.server.metric("vllm:num_requests_running") + self.server.metric("vllm:num_requests_waiting")

    def test_many_clients_lose_and_mix_nothing(self):
        prompts = ["ab", "the loom", "1 2 3"]
        keys = [(f"a{i}", prompt) for i in range(ADAPTERS) for prompt in prompts]
        alone = {key: self.server.complete(*key) for key in keys}
        self.assertEqual(len({alone[f"a{i}", "ab"] for i in range(ADAPTERS)}), ADAPTERS, "the adapters' answers all differ")
        wrong, done = [], [0] * CLIENTS

        def client(number):
            chooser = random.Random(number)
            connection = self.server.connect()
            for _ in range(REQUESTS // CLIENTS):
                key = chooser.choice(keys)
                try:
                    text = self.server.complete_on(connection, *key)
                except Exception as error:  # noqa: BLE001 whatever it is, the test shows it
                    wrong.append((key, repr(error)))
                    return
                if text != alone[key]:
                    wrong.append((key, text))
                done[number] += 1
            connection.close()

        begin = time.monotonic()
        threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        paces, last = [], begin
        while any(thread.is_alive() for thread in threads):
            before = sum(done)
            wait_until(lambda: not any(thread.is_alive() for thread in threads), 10)
            paces.append(round((sum(done) - before) / (time.monotonic() - last), 1))
            last = time.monotonic()
        asked = REQUESTS // CLIENTS * CLIENTS
        RECORD["soak"] |= {
            "requests": asked, "clients": CLIENTS, "adapters": ADAPTERS, "lost": asked - sum(done),
            "mixed": sum(isinstance(what, tuple) for _, what in wrong), "seconds": round(last - begin, 1),
            "peak_mib": round(self.server.peak_bytes() / 2**20), "unit": "requests per second, of every 10 s", "samples": paces}
        self.assertEqual(wrong[:3], [])
        self.assertEqual(sum(done), asked)

    def test_a_thousand_open_streams(self):
        before = self.server.resident_bytes()
        streams = [open_stream(self.server.port, {**ENDLESS, "model": f"a{i % ADAPTERS}", "max_tokens": 40}) for i in range(STREAMS)]
        self.assertTrue(wait_until(lambda: self.server.metric("heddle:connections") >= STREAMS))
        used = (self.server.resident_bytes() - before) / 2**20
        self.assertLess(used, STREAMS_MIB)
        for stream in streams:
            text = b""
            while not text.endswith(b"0\r\n\r\n"):
                piece = stream.recv(65536)
                self.assertTrue(piece)
                text += piece
            self.assertEqual(len(events(text.decode())) > 2 and events(text.decode())[-1], "[DONE]")
            stream.close()

    def pace(self):
        """Seconds of a few short answers, one after the other."""
        begin = time.monotonic()
        for i in range(20):
            self.server.complete(f"a{i}")
        return time.monotonic() - begin

    def is_held_up(self, read, end):
        """Whether answers come late while eight streams are not read but for `read`, until `end` is through with them: each has more
        than the system's buffers hold. Another program may take the processors, so late is what is late in each of five rounds, against the
        pace right after the round."""
        before = self.pace()
        for _ in range(5):
            streams = [open_stream(self.server.port, {**ENDLESS, "logprobs": 20, "n": 6}, 4096) for _ in range(8)]
            self.assertTrue(wait_until(lambda: self.running() == 48))
            paces, stop = [], time.monotonic() + 4
            while time.monotonic() < stop:
                read(streams)
                seconds = self.pace()
                if self.running() < 48:
                    break  # the server has ended some of them meanwhile
                paces.append(seconds)
            end(streams)
            for stream in streams:
                stream.close()
            self.assertTrue(wait_until(lambda: self.running() == 0))
            limit = 5 * max(before, self.pace()) + 0.5
            best = min(paces, default=limit)
            print(f"20 answers take {best:.3f} s, the best of {len(paces)} times; the limit is {limit:.3f} s")
            if best < limit:
                return False
        return True

    def test_dead_readers_hold_up_nobody_and_are_cut_off(self):
        """When they have taken nothing for the time that the server gives them."""

        def end(streams):
            self.assertTrue(wait_until(lambda: self.running() == 0, 40))
            for stream in streams:
                last = b""
                while piece := stream.recv(1 << 20):
                    last = last[-20:] + piece
                self.assertNotIn(b"[DONE]", last[-20:], "the answer was to be cut off")

        before = self.pace()
        self.assertFalse(self.is_held_up(lambda streams: None, end))
        self.assertTrue(wait_until(lambda: self.pace() < 5 * before + 0.5, 60), "nothing of them stays")

    def test_slow_readers_hold_up_nobody(self):
        def read(streams):
            for stream in streams:
                stream.recv(4096)

        self.assertFalse(self.is_held_up(read, lambda streams: None))

    def test_a_client_that_leaves_frees_its_row(self):
        for stream in (True, False):
            connection = socket.create_connection(("127.0.0.1", self.server.port))
            connection.sendall(request_bytes("/v1/completions", {**ENDLESS, "stream": stream, "n": 2}))
            self.assertTrue(wait_until(lambda: self.running() == 2))
            connection.close()
            self.assertTrue(wait_until(lambda: self.running() == 0, 2))
            self.assertTrue(wait_until(lambda: self.server.metric("vllm:kv_cache_usage_perc") == 0, 2))

    def test_adapters_that_are_reloaded_are_never_mixed(self):
        """What is asked for after a load has its weights, and all that is asked for during loads has one's or the other's."""
        of = {f"a{i}": self.server.complete(f"a{i}") for i in (1, 2)}
        self.assertEqual(self.server.admin("/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": "a1"})[0], 200)
        stop, wrong, num_loads = threading.Event(), [], 0

        def load():
            nonlocal num_loads
            now = "a1"
            while not stop.is_set():
                other = "a2" if now == "a1" else "a1"
                status = self.server.admin("/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": other, "load_inplace": True})[0]
                if status != 200:
                    wrong.append(status)
                elif self.server.complete("mine") != of[other]:
                    wrong.append(f"after the load of {other}")
                now = other
                num_loads += 1
                time.sleep(0.002)

        asked = 10_000 * max(REQUESTS, 24000) // 24000
        loader = threading.Thread(target=load)
        loader.start()

        def ask():
            connection = self.server.connect()
            for _ in range(asked // 8):
                text = self.server.complete_on(connection, "mine")
                if text not in of.values():  # of neither: half an adapter, or another's weights
                    wrong.append(text)
            connection.close()

        askers = [threading.Thread(target=ask) for _ in range(8)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        stop.set()
        loader.join()
        RECORD["soak"] |= {"reloads": num_loads, "requests_beside_reloads": asked // 8 * 8, "mixed_by_reloads": len(wrong)}
        self.assertEqual(wrong[:3], [])
        self.assertEqual(self.server.admin("/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": "a1", "load_inplace": True})[0], 200)
        self.assertEqual(self.server.complete("mine"), of["a1"], "what is asked for after a load has its weights")
        self.server.admin("/v1/unload_lora_adapter", {"lora_name": "mine"})


    def test_long_prompts_hold_up_nobody(self):
        """While prompts of megabytes are tokenized, which takes the better part of a second each, a stream goes on."""
        stream = open_stream(self.server.port, {**ENDLESS, "n": 16})  # so that it lasts for seconds
        self.addCleanup(stream.close)
        self.assertIn(b"200 OK", stream.recv(65536))
        long = "the loom " * 300_000
        bodies = [("/v1/completions", {"prompt": 2 * long}, 400), ("/tokenize", {"prompt": long + "x"}, 200),
                  ("/tokenize", {"prompt": long}, 200)]
        seconds = []

        def ask(path, body, wanted):  # without JSON, which would hold up this process
            if self.server.request("POST", path, body)[0] == wanted:
                seconds.append(time.monotonic() - begin)

        askers = [threading.Thread(target=ask, args=(path, json.dumps(body).encode(), wanted)) for path, body, wanted in bodies]
        gaps, begin = [], time.monotonic()
        last = begin
        for asker in askers:
            asker.start()
        while len(seconds) < len(bodies) and any(asker.is_alive() for asker in askers):
            piece = stream.recv(65536)
            gaps.append(time.monotonic() - last)
            last += gaps[-1]
            if piece.endswith(b"0\r\n\r\n"):
                break
        for asker in askers:
            asker.join()
        print(f"{len(gaps)} pieces came in {max(seconds):.2f} s, the longest gap was {max(gaps):.3f} s")
        self.assertEqual(len(seconds), len(bodies))
        self.assertGreater(len(gaps), 50)
        self.assertLess(max(gaps), max(0.3 * max(seconds), 0.1))


class Limits(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def server(self, *options):
        server = Server(self.folder, *options)
        self.addCleanup(server.stop, signal.SIGKILL)
        return server

    def stream(self, server, body, receive_bytes=None):
        stream = open_stream(server.port, body, receive_bytes)
        self.addCleanup(stream.close)
        return stream

    def test_no_room_for_an_adapter_is_507(self):
        server = self.server("--adapter-memory", 200 << 10)
        statuses = []
        for i in range(16):  # on a GPU they take half of what they take on the CPU
            status, _, body = server.admin("/v1/load_lora_adapter", {"lora_name": f"added{i}", "lora_path": "a1"})
            statuses.append(status)
        self.assertEqual((statuses[0], statuses[-1]), (200, 507), body)
        error = json.loads(body)["error"]
        self.assertEqual((error["type"], error["code"]), ("InsufficientStorage", 507))
        self.assertIn("needs", error["message"])
        self.assertEqual(server.post("/v1/completions", {"model": f"added{statuses.count(200)}", "prompt": "x"})[0], 404)
        self.assertTrue(server.complete("added0"))

    def test_no_room_for_the_adapter_of_a_request_is_503(self):
        server = self.server("--adapter-memory", 100)
        status, answer = server.post("/v1/completions", {"model": "a0", "prompt": "x"})
        self.assertEqual((status, answer["error"]["type"], answer["error"]["code"]), (503, "ServiceUnavailableError", 503))
        self.assertRegex(answer["error"]["message"], "^a0: needs [0-9]+ bytes of adapter memory, there are 100 ")
        self.assertTrue(server.complete("base"))

    def test_overload_is_429(self):
        server = self.server("--max-batch", 2, "--max-waiting", 3)
        streams = [self.stream(server, ENDLESS) for _ in range(5)]
        self.assertTrue(wait_until(lambda: server.metric("vllm:num_requests_running") == 2))
        status, headers, body = server.request("POST", "/v1/completions", ENDLESS)
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertIn("--max-waiting", json.loads(body)["error"]["message"])
        self.assertEqual(server.request("POST", "/generate", {"inputs": "x"})[0], 429)
        self.assertEqual(server.request("GET", "/health")[0], 200)
        for stream in streams:
            stream.close()
        self.assertTrue(wait_until(lambda: server.request("POST", "/v1/completions", {**ENDLESS, "max_tokens": 1})[0] == 200, 5))

    def test_sigterm_lets_rows_end(self):
        server = self.server("--drain-timeout", 20)
        stream = self.stream(server, {**ENDLESS, "max_tokens": 1500})
        kept = server.connect()
        self.addCleanup(kept.close)
        kept.connect()
        stream.recv(10)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        text = b""
        if server.process.poll() is None:
            try:
                kept.request("POST", "/v1/completions", json.dumps(ENDLESS), {"Content-Type": "application/json"})
                self.assertIn(kept.getresponse().status, (503,))
            except (ConnectionError, http.client.HTTPException):
                pass  # the row was faster
        while piece := stream.recv(65536):
            text += piece
        self.assertTrue(text.rstrip().endswith(b"0") and b"[DONE]" in text)
        self.assertEqual(server.process.wait(20), 0)

    def test_sigterm_gives_up_after_a_while(self):
        server = self.server("--drain-timeout", 0.2)
        stream = self.stream(server, ENDLESS, 4096)
        stream.recv(10)
        begin = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - begin, 5)

    def test_sighup_reads_the_folders_again(self):
        server = self.server()
        os.rename(self.folder / "adapters/a0", self.folder / "adapters/renamed")
        server.process.send_signal(signal.SIGHUP)
        names = lambda: {m["id"] for m in json.loads(server.request("GET", "/v1/models")[2])["data"]}  # noqa: E731
        self.assertTrue(wait_until(lambda: "renamed" in names() and "a0" not in names(), 5))
        self.assertTrue(server.complete("renamed"))

    def test_idle_costs_nothing(self):
        server = self.server()
        server.complete("a0")
        before = server.processor_seconds()
        time.sleep(IDLE_SECONDS)
        used = server.processor_seconds() - before
        RECORD["idle"] = {"seconds": IDLE_SECONDS, "unit": "percent of a core", "samples": [round(100 * used / IDLE_SECONDS, 4)]}
        print(f"an idle server takes {used / IDLE_SECONDS:.3%} of a core over {IDLE_SECONDS:g} s")
        self.assertLess(used, IDLE_SECONDS * 0.002 + 0.01)  # 0.01: the clock of the system

    def test_adapters_that_are_evicted_for_one_another(self):
        """16 adapters over the memory of 8: the median time to a first token is at most 3 times that of 8."""
        write_all(self.folder, 16)
        server = self.server()
        for i in range(16):
            server.complete(f"a{i}")
        self.assertTrue(wait_until(lambda: server.metric("heddle:adapters_in_memory") == 16))
        bytes_of_one = server.metric("heddle:adapter_bytes") / 16
        server.stop()
        server = self.server("--adapter-memory", int(8 * bytes_of_one), "--max-batch", 8)

        def median(num_adapters):
            times = [[] for _ in range(4)]

            def client(number):
                connection = server.connect()
                for i in range(100):
                    begin = time.monotonic()
                    server.complete_on(connection, f"a{(number * 5 + i) % num_adapters}")
                    times[number].append(time.monotonic() - begin)
                connection.close()

            threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return statistics.median(sum(times, []))

        median(8)
        for _ in range(3):  # another program may take a processor in one of the measurements
            few, many = median(8), median(16)
            if many < 3 * few:
                break
        for name in ("loads", "evictions"):  # a page of metrics has what the engine said after the one before
            self.assertTrue(wait_until(lambda name=name: server.metric(f"heddle:adapter_{name}_total") > 100), name)
        self.assertLessEqual(server.metric("heddle:adapters_in_memory"), 8)
        print(f"median of a short answer: {few * 1e3:.2f} ms with 8 adapters, {many * 1e3:.2f} ms with 16 over 8 places")
        self.assertLess(many, 3 * few)

    def test_systemd_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd is not installed")
        unit = (ROOT / "deploy/heddle.service").read_text()
        self.assertIn("/usr/local/bin/heddle serve ", unit)
        copy = self.folder / "heddle.service"
        copy.write_text(unit.replace("/usr/local/bin/heddle", str(HEDDLE)))
        done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_tls(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.folder / "key.pem", "-out",
                        self.folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       check=True, capture_output=True)
        server = self.server("--tls-cert", self.folder / "cert.pem", "--tls-key", self.folder / "key.pem")
        context = ssl.create_default_context(cafile=self.folder / "cert.pem")
        connection = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=20)
        for stream in (False, True, False):
            body = json.dumps({**ENDLESS, "max_tokens": 5, "stream": stream})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            self.assertTrue(response.read())
        connection.close()
        self.assertNotIn(b"200 OK", server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"))


def write_record(path):
    """What was measured, on which commit and machine."""
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: E731
    changed = git("status", "--porcelain", "--untracked-files=no")
    processor = re.search(r"model name\s*: (.+)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    memory = int(re.search(r"MemTotal:\s*(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1])
    pathlib.Path(path).write_text(json.dumps({
        "what": f"make soak REQUESTS={REQUESTS}: a tiny random model, answers of 16 tokens, each compared with the one computed alone",
        "commit": git("rev-parse", "HEAD") + ("-modified" if changed else ""), "date": time.strftime("%Y-%m-%d"),
        "machine": {"cpu": processor, "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory / 1e6, 1)},
        "records": [{"op": name, **record} for name, record in RECORD.items()]}, indent=1) + "\n")


if __name__ == "__main__":
    if path := os.environ.get("HEDDLE_TEST_RECORD"):
        unittest.addModuleCleanup(write_record, path)
    main()
