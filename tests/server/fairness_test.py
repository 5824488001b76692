"""A hostile client and a neighbour's stream: the tokens of the neighbour come no more than 50 ms later, at the 99th percentile, than with
honest requests of as many tokens. Each attack and its honest counterpart run in turns on one server, with one neighbour.

  python3 tests/server/fairness_test.py HEDDLE [TEST...]

Another program may take the processors, so what is late is what is late in each of a few rounds.
"""
import dataclasses
import json
import multiprocessing
import os
import pathlib
import socket
import tempfile
import threading
import time

from serve_case import ADMIN_KEY, Case, Server, main
from tiny_model import TINY, write_all

WORDS = 20_000  # tokens that the model has besides bytes: a list of all of them is as long as real ones
SECONDS = float(os.environ.get("HEDDLE_TEST_ATTACK_SECONDS", "0.35"))  # of an attack, and of its counterpart
ROUNDS, ALLOWED = 4, 0.050
NEIGHBOUR = {"model": "a0", "prompt": "ab", "max_tokens": 1900, "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}
PLAIN = {"model": "a1", "prompt": "ab", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
CHAT = {"model": "a1", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 4, "temperature": 0}
# A template that does not read documents refuses them.
SHOWS_DOCUMENTS = "{{ documents | length }}{{ messages[0].content }}"
COMPLETE, CHATS = "/v1/completions", "/v1/chat/completions"
LONG = "x" * 1500  # tokens of the largest prompt here, within the context


def request_bytes(path, body, *headers, method="POST"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def connect(port, receive_bytes=None):
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    return connection


def exchange(port, data):
    """Sends a request whose answer closes the connection; returns the status."""
    with connect(port) as connection:
        try:
            connection.sendall(data)
            head = connection.recv(16)
            while connection.recv(1 << 20):
                pass
        except (ConnectionResetError, BrokenPipeError):  # it was refused before it was read
            return 0
        return int(head[9:12])


def follow(port, pipe, stop):
    """The neighbour, in a process of its own: when each piece of its streams came, and from when to when each stream went."""
    came = []
    while not stop.is_set():
        with connect(port) as connection:
            connection.sendall(request_bytes(COMPLETE, NEIGHBOUR, "Connection: close"))
            last = None
            while not stop.is_set() and (piece := connection.recv(65536)):
                now = time.monotonic()
                if last is not None and b"[DONE]" not in piece:
                    came.append((now, now - last))
                last = now
    pipe.send(came)


@dataclasses.dataclass
class Attack:
    """Bytes that are sent over and over, each time on a connection of its own, and as honest a request of as many tokens."""
    name: str
    hostile: bytes
    honest: bytes
    statuses: tuple = (200,)
    clients: int = 2


def completion(**fields):
    return request_bytes(COMPLETE, {**PLAIN, **fields}, "Connection: close")


def chat(**fields):
    return request_bytes(CHATS, {**CHAT, **fields}, "Connection: close")


def pairs(size):
    return {"a": "x" * (size - 8)}


def attacks():
    many = list(range(WORDS + 250, -1, -1))
    plain, talk, longest = completion(), chat(), completion(prompt=LONG)
    near = ["x" * i + "y" * (1024 - i) for i in range(1008, 1024)]  # of which the answer and the words of bad_words have long beginnings
    yield Attack("request_id", completion(request_id="r" * 256, stream=True), completion(stream=True))
    yield Attack("stop_token_ids", completion(stop_token_ids=many[:4096], min_tokens=4), plain)
    yield Attack("allowed_token_ids", completion(allowed_token_ids=many * 10), plain)
    yield Attack("logit_bias", completion(logit_bias={str(i): 1 for i in many[:1024]}), plain)
    yield Attack("bad_words", completion(bad_words=[f"{i:03}" + "x" * 1021 for i in range(256)]), plain)
    yield Attack("stop", completion(stop=near), plain)
    yield Attack("penalties", completion(prompt=LONG, repetition_penalty=1.2, presence_penalty=1), longest)
    yield Attack("logprobs", completion(n=16, logprobs=20), completion(n=16))
    yield Attack("prompt_logprobs", completion(prompt=LONG, prompt_logprobs=20, max_tokens=1), completion(prompt=LONG, max_tokens=1))
    yield Attack("echo", completion(prompt=LONG, echo=True, logprobs=20, n=8), completion(prompt=LONG, n=8))
    yield Attack("prompts", completion(prompt=["ab"] * 128, max_tokens=1), completion(max_tokens=1, n=16))
    yield Attack("metadata", completion(metadata=pairs(65536)), plain)
    yield Attack("chat_template_kwargs", chat(chat_template_kwargs={f"v{i}": "x" for i in range(5000)}), talk)
    yield Attack("documents", chat(documents=[{"text": "x" * 100}] * 1024, chat_template=SHOWS_DOCUMENTS), talk)
    yield Attack("messages", chat(messages=[{"role": "user", "content": "a"}] * 100), completion(prompt="x" * 1700))
    yield Attack("a long text", completion(prompt="ab " * 2_500_000), plain, (400,))
    yield Attack("a long text that is cut", completion(prompt="ab " * 2_500_000, truncate_prompt_tokens=2), plain)
    yield Attack("one word of megabytes", completion(prompt="x" * 7_000_000), plain, (400,))
    yield Attack("many tokens", completion(prompt=[1] * 2_000_000), plain, (400,))
    yield Attack("many fields", completion(**{f"f{i}": 1 for i in range(200_000)}), plain, (400,))
    yield Attack("many lists", completion(metadata=[[]] * 2_000_000), plain, (400,))
    yield Attack("/tokenize", request_bytes("/tokenize", {"prompt": "ab " * 1_000_000, "return_token_strs": True}, "Connection: close"), plain)
    yield Attack("/detokenize", request_bytes("/detokenize", {"tokens": [97] * 262_144}, "Connection: close"), plain)
    scrape = request_bytes("/metrics", b"", "Connection: close", method="GET")
    yield Attack("/metrics", scrape, plain, clients=4)
    yield Attack("/v1/models", request_bytes("/v1/models", b"", "Connection: close", method="GET"), plain, clients=4)
    load = {"lora_name": "new", "lora_path": "a2", "load_inplace": True}
    key = f"Authorization: Bearer {ADMIN_KEY}"
    yield Attack("loads", request_bytes("/v1/load_lora_adapter", load, "Connection: close", key), plain, clients=1)
    yield Attack("loads of nothing", request_bytes("/v1/load_lora_adapter", {**load, "lora_path": "none"}, "Connection: close", key), plain, (400,))


class Fairness(Case):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        write_all(folder, 4, dataclasses.replace(TINY, words=WORDS))
        cls.server = Server(folder, "--max-batch", 24, "--kv-memory", "200M", "--allow-request-templates")
        cls.addClassCleanup(cls.server.stop)
        cls.port = cls.server.port

    def setUp(self):
        context = multiprocessing.get_context("fork")
        self.stop, (self.pipe, pipe) = context.Event(), context.Pipe()
        self.neighbour = context.Process(target=follow, args=(self.port, pipe, self.stop), daemon=True)
        self.neighbour.start()
        time.sleep(0.3)
        self.windows = []  # (attack, whether it is hostile, begin, end)

    def late(self):
        """{attack: (p99 of the neighbour's gaps during it, and during its counterpart)}, and ends the neighbour."""
        self.stop.set()
        came = self.pipe.recv()
        self.neighbour.join()
        found = {}
        for name, is_hostile, begin, end in self.windows:
            gaps = sorted(gap for now, gap in came if begin <= now <= end + 0.5 and now - gap <= end)
            self.assertGreater(len(gaps), 0, f"{name}: the neighbour has got no token")
            found.setdefault(name, {})[is_hostile] = gaps[-1 - len(gaps) // 100]
        return {name: (both[True], both[False]) for name, both in found.items()}

    def window(self, name, is_hostile, run):
        begin = time.monotonic()
        run(begin + SECONDS)
        self.windows.append((name, is_hostile, begin, time.monotonic()))

    def repeat(self, data, statuses, clients, until):
        wrong = []

        def client():
            while True:
                status = exchange(self.port, data)
                if status not in (*statuses, 0):
                    wrong.append(status)
                if time.monotonic() > until:
                    return

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong[:3], [], data[:300])

    def judge(self, run):
        """run(those to run) until none of them is late in this round; None: all."""
        late = None
        for _ in range(ROUNDS):
            run(late)
            found = self.late()
            late = {name: both for name, both in found.items() if both[0] > both[1] + ALLOWED}
            for name, (hostile, honest) in found.items():
                print(f"{name}: {hostile * 1e3:.1f} ms during it, {honest * 1e3:.1f} ms during honest requests" + ("  LATE" if name in late else ""))
            if not late:
                return
            self.setUp()
        self.fail(f"late in each of {ROUNDS} rounds: {late}")

    def test_fields_and_bodies(self):
        table = list(attacks())

        def run(names):
            for attack in table:
                if names is None or attack.name in names:
                    self.window(attack.name, True, lambda until: self.repeat(attack.hostile, attack.statuses, attack.clients, until))
                    self.window(attack.name, False, lambda until: self.repeat(attack.honest, (200,), attack.clients, until))

        self.judge(run)
        self.assert_alive()

    # What connections may do, each with what an honest client does instead.

    def slow_readers(self, until):
        body = request_bytes(COMPLETE, {**PLAIN, "max_tokens": 1900, "stream": True, "logprobs": 20, "n": 2})
        connections = [connect(self.port, 4096) for _ in range(4)]
        for connection in connections:
            connection.sendall(body)
        time.sleep(max(0, until - time.monotonic()))
        for connection in connections:
            connection.close()

    def fast_readers(self, until):
        body = completion(max_tokens=200, stream=True, n=2)
        self.repeat(body, (200,), 4, until)

    def unfinished_bodies(self, until):
        connections = [connect(self.port) for _ in range(40)]
        for connection in connections:
            connection.sendall(request_bytes(COMPLETE, b"x" * (7 << 20))[:6 << 20])
        time.sleep(max(0, until - time.monotonic()))
        for connection in connections:
            connection.close()

    def trickled_heads(self, until):
        connections = [connect(self.port) for _ in range(100)]
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"b" * 10_000
        place = 0
        while time.monotonic() < until:
            for connection in connections:
                connection.sendall(head[place:place + 1])
            place += 1
        for connection in connections:
            connection.close()

    def many_connections(self, until):
        while time.monotonic() < until:
            connections = [connect(self.port) for _ in range(100)]
            for connection in connections:
                connection.close()

    def pipelined(self, until):
        data = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
        while time.monotonic() < until:
            exchange(self.port, data + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    def cancelled(self, until):
        data = completion(max_tokens=1000)
        while time.monotonic() < until:
            for _ in range(50):
                with connect(self.port) as connection:
                    connection.sendall(data)

    def honest(self, until):
        self.repeat(completion(), (200,), 2, until)

    def test_connections(self):
        table = [("slow readers", self.slow_readers, self.fast_readers), ("unfinished bodies", self.unfinished_bodies, self.honest),
                 ("trickled heads", self.trickled_heads, self.honest), ("many connections", self.many_connections, self.honest),
                 ("pipelined requests", self.pipelined, self.honest), ("cancelled requests", self.cancelled, self.honest)]

        def run(names):
            for name, hostile, honest in table:
                if names is None or name in names:
                    self.window(name, True, hostile)
                    self.window(name, False, honest)

        self.judge(run)
        self.assert_alive()

    def tearDown(self):
        self.stop.set()
        if self.neighbour.is_alive():
            self.neighbour.join(5)


if __name__ == "__main__":
    main()
