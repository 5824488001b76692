"""What the tests of `heddle serve` share: a server on a tiny random model, and clients of the standard library.

  python3 tests/server/X_test.py HEDDLE [TEST...]

HEDDLE_TEST_DEVICE says where the model runs: cpu, the default, or cuda.
"""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from tiny_model import write_all

HEDDLE = pathlib.Path(sys.argv[1]).resolve()
DEVICE = os.environ.get("HEDDLE_TEST_DEVICE", "cpu")
ADMIN_KEY = "an-admin-key-of-the-tests"
CANARY = "canary-5f1c9e"  # in the environment and next to the root: in no response


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])


class Server:
    """The program as a child, on a port of its own."""

    def __init__(self, folder, *options, num_adapters=4, device=DEVICE, has_admin=True):
        self.folder = pathlib.Path(folder)
        if not (self.folder / "model").exists():
            write_all(self.folder, num_adapters)
            (self.folder / "secret.txt").write_text(CANARY)
        (self.folder / "admin.txt").write_text(ADMIN_KEY + "\n")
        if device != "cpu" and "--kv-memory" not in options:
            options = (*options, "--kv-memory", "400M")  # half of a GPU's memory would be too much to share with others
        if has_admin:
            options = ("--admin-key-file", self.folder / "admin.txt", *options)
        self.log = self.folder / f"log_{device}.txt"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [HEDDLE, "serve", "--model", self.folder / "model", "--lora-root", self.folder / "adapters", "--port", "0",
                 "--threads", "2", "--device", device, *map(str, options)],
                stderr=log, stdout=log, cwd="/", env={**os.environ, "HEDDLE_TEST_CANARY": CANARY})
        deadline = time.monotonic() + 60
        while not (found := re.search(r"listening on (https?)://\S+:(\d+)", self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server does not start: {self.log.read_text()}")
            time.sleep(0.02)
        self.port = int(found[2])

    def stop(self, sign=signal.SIGTERM):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        return self.process.wait(timeout=60)

    def resident_bytes(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) * 1024

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_line(self, pattern):
        """The first line of the log that matches, which is written after the response; the test fails where none comes."""
        deadline = time.monotonic() + 10
        while not (found := re.search(rf"^.*{pattern}.*$", self.log.read_text(), re.MULTILINE)):
            if time.monotonic() > deadline:
                raise AssertionError(f"no line matches {pattern}: {self.log.read_text()}")
            time.sleep(0.01)
        return found[0]

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def raw(self, data, timeout=20):
        """All that comes back for these bytes until the server closes, or is silent for a second."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            connection.settimeout(1.0)
            answer = b""
            try:
                while piece := connection.recv(65536):
                    answer += piece
            except (TimeoutError, ConnectionResetError):
                pass
            return answer

    def request(self, method, path, body=None, headers=None, connection=None):
        """(status, headers, body as text)"""
        own = connection or self.connect()
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        send = {"Content-Type": "application/json", **(headers or {})} if data is not None else headers or {}
        try:
            own.request(method, path, data, send)
            response = own.getresponse()
            return response.status, dict(response.getheaders()), response.read().decode("utf-8", "surrogateescape")
        finally:
            if connection is None:
                own.close()

    def post(self, path, body, **more):
        """(status, the answer parsed)"""
        status, _, text = self.request("POST", path, body, **more)
        return status, json.loads(text)

    def admin(self, path, body, method="POST"):
        return self.request(method, path, body, {"Authorization": f"Bearer {ADMIN_KEY}"})

    def complete(self, model, prompt="ab"):
        """The tokens of the greedy answer, 16."""
        return self.complete_on(None, model, prompt)

    def complete_on(self, connection, model, prompt="ab"):
        body = {"model": model, "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True}
        status, answer = self.post("/v1/completions", body, connection=connection)
        assert status == 200, (status, answer)
        return tuple(answer["choices"][0]["token_ids"])

    def metric(self, name):
        """The first value of a metric without regard to its labels."""
        text = self.request("GET", "/metrics")[2]
        values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if re.match(re.escape(name) + r"[{ ]", line)]
        return float(values[0])


class Case(unittest.TestCase):
    """Tests of one server that all of them share."""

    options = ()
    num_adapters = 4
    keys = None  # the text of the server's --api-key-file

    @classmethod
    def write_models(cls, folder):
        """Where they are others than Server writes."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.write_models(pathlib.Path(temporary.name))
        options = list(cls.options)
        if cls.keys is not None:
            keys = pathlib.Path(temporary.name) / "keys"
            keys.write_text(cls.keys)
            options += ["--api-key-file", keys]
        cls.server = Server(temporary.name, *options, num_adapters=cls.num_adapters)
        cls.addClassCleanup(cls.server.stop)

    def assert_alive(self):
        self.assertIsNone(self.server.process.poll(), self.server.log.read_text()[-2000:])
        self.assertEqual(self.server.request("GET", "/health")[0], 200)


def events(text):
    """The messages of a stream of server-sent events."""
    return [line.removeprefix("data:").strip() for line in text.split("\n") if line.startswith("data:")]


class ConversationCase(Case):
    """What the tests of APIs that become chat completions share."""

    def chat(self, messages, **fields):
        body = {"messages": messages, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **fields}
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        return answer

    def named_events(self, path, body, headers=None):
        """The events of a stream, each of which has its type as its name, too."""
        status, headers, text = self.server.request("POST", path, body, headers)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"), text)
        names = [line.removeprefix("event: ") for line in text.split("\n") if line.startswith("event: ")]
        told = [json.loads(message) for message in events(text)]
        self.assertEqual(names, [event["type"] for event in told])
        return told
