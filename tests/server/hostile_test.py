"""What a stranger may send to `heddle serve`: it is refused, the server lives, and nothing leaks."""
import json
import os
import pathlib
import random
import resource
import socket
import subprocess
import tempfile
import unittest

from serve_case import ADMIN_KEY, CANARY, HEDDLE, Case, main
from tiny_model import write_model

COMPLETE = {"model": "a0", "prompt": "ab", "max_tokens": 2}
PATHS = ["..", "../secret.txt", "../model", "/etc", "/etc/passwd", "a0/../../secret.txt", "./..", "a0\0", "\0", "", ".", "/", "%2e%2e",
         "%2e%2e%2fmodel", "..%2fmodel", "link-out", "link-to-file", "a-fifo", "folder-with-fifo", "folder-with-link", "a-device",
         "x" * 5000, "a0/adapter_config.json", "nothing", "\ud800"]


def post(path, body, *headers):
    data = body if isinstance(body, bytes) else body.encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Hostile(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.adapters = cls.server.folder / "adapters"
        (cls.adapters / "link-out").symlink_to(cls.server.folder / "model")
        (cls.adapters / "link-to-file").symlink_to(cls.server.folder / "secret.txt")
        os.mkfifo(cls.adapters / "a-fifo")
        (cls.adapters / "a-device").symlink_to("/dev/zero")
        for name in ("folder-with-fifo", "folder-with-link"):
            (cls.adapters / name).mkdir()
            (cls.adapters / name / "adapter_config.json").write_bytes((cls.adapters / "a0/adapter_config.json").read_bytes())
        os.mkfifo(cls.adapters / "folder-with-fifo/adapter_model.safetensors")
        (cls.adapters / "folder-with-link/adapter_model.safetensors").symlink_to(cls.server.folder / "secret.txt")

    def refused(self, status, text, low=400):
        self.assertTrue(low <= status < 500, (status, text[:300]))
        self.assertNotIn(CANARY, text)
        self.assertNotIn(str(self.server.folder), text)

    def test_names_and_paths(self):
        for path in PATHS:
            with self.subTest(path=path):
                for fields in ({"model": path}, {"adapter_id": path}, {"lora": [{"name": path}]}):
                    if path in ("", "a0") and "lora" not in fields:
                        continue
                    status, _, text = self.server.request("POST", "/v1/completions", {**COMPLETE, "model": "", **fields})
                    self.refused(status, text)
                for load in ({"lora_name": "new", "lora_path": path}, {"lora_name": path, "lora_path": path}):
                    status, _, text = self.server.admin("/v1/load_lora_adapter", load)
                    self.refused(status, text)
                status, _, text = self.server.admin("/v1/unload_lora_adapter", {"lora_name": path})
                if not path.startswith("folder-with"):  # the names of folders are known, whatever is in them
                    self.refused(status, text)
                status, _, text = self.server.request("POST", "/generate", {"inputs": "x", "parameters": {"adapter_id": path}})
                if path:
                    self.refused(status, text)
        for path in ("/v1/models/..", "/v1/models/%2e%2e", "/v1/models/%00", "/../secret.txt", "/page/../../secret.txt",
                     "/page/%2e%2e/secret.txt", "//etc/passwd", "/v1/models/a0%2f..%2f..%2fsecret.txt", "/page/link-out", "/" + "a" * 9000):
            answer = self.server.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            self.assertRegex(answer[:12], rb"^HTTP/1.1 4", path)
            self.assertNotIn(CANARY.encode(), answer)
        self.assert_alive()

    def test_nothing_leaks(self):
        for path in ("/", "/metrics", "/info", "/version", "/v1/models", "/health", "/v1/models/a0"):
            status, headers, text = self.server.request("GET", path)
            for secret in (CANARY, ADMIN_KEY, str(self.server.folder)):
                self.assertNotIn(secret, text + str(headers), path)

    def test_hosts_and_origins(self):
        def status(*headers):
            answer = self.server.raw(("GET /v1/models HTTP/1.1\r\n" + "".join(h + "\r\n" for h in headers) + "Connection: close\r\n\r\n").encode())
            return int(answer.split()[1])

        for host in ("localhost", "localhost:1", "127.0.0.1", "127.0.0.1:8000", "[::1]:80", "10.1.2.3"):
            self.assertEqual(status(f"Host: {host}"), 200, host)
        for host in ("evil.example", "localhost.evil.example", "evil.example:8000", "[evil]", "127.0.0.1.evil.example"):
            self.assertEqual(status(f"Host: {host}"), 403, host)
        self.assertEqual((status(), status("Host: ")), (400, 400))
        self.assertEqual(status("Host: localhost", "Origin: http://localhost"), 200)
        for origin in ("http://evil.example", "null", "http://localhost.evil.example", "localhost"):
            self.assertEqual(status("Host: localhost", f"Origin: {origin}"), 403, origin)
        headers = self.server.request("GET", "/v1/models")[1]
        self.assertFalse([name for name in headers if name.lower().startswith("access-control")])

    def test_content_types(self):
        body = json.dumps(COMPLETE).encode()
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            status = self.server.request("POST", "/v1/completions", body, {"Content-Type": kind})[0]
            self.assertEqual(status, 415, kind)
        for path in ("/v1/chat/completions", "/generate", "/tokenize", "/detokenize", "/"):
            self.assertEqual(self.server.request("POST", path, body, {"Content-Type": "text/plain"})[0], 415, path)
        self.assertEqual(self.server.request("POST", "/v1/completions", body, {"Content-Type": "application/json; charset=utf-8"})[0], 200)

    def test_what_is_no_http(self):
        wrong = [b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\x01 HTTP/1.1\r\n\r\n", b"\xff\xfe\xfd\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n", b"GET / HTTP/1.1\r\nA\0: x\r\n\r\n",
                 b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                 b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                 b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500]
        chunked = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        wrong += [chunked + tail for tail in (b"zz\r\n", b"-1\r\nx\r\n", b"ffffffffffffffffff\r\n", b"5\r\nabc\r\n0\r\n\r\n", b"1;" + b"x" * 40000)]
        for data in wrong:
            answer = self.server.raw(data)
            self.assertTrue(answer == b"" or answer[:12] in (b"HTTP/1.1 505", *(b"HTTP/1.1 4%02d" % i for i in range(100))), (data[:80], answer[:200]))
        good = chunked + b"".join(b"%x\r\n%s\r\n" % (1, bytes([c])) for c in json.dumps(COMPLETE).encode()) + b"0\r\n\r\n"
        self.assertRegex(self.server.raw(good)[:15], rb"^HTTP/1.1 200")
        self.assert_alive()

    def test_sizes(self):
        many = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(5000)) + b"\r\n"
        self.assertRegex(self.server.raw(many)[:12], rb"^HTTP/1.1 431")
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.assertRegex(self.server.raw(head + b"Content-Length: %d\r\n\r\n" % (1 << 30))[:12], rb"^HTTP/1.1 413")
        before = self.server.resident_bytes()
        status = self.server.request("POST", "/v1/completions", b"[" * (9 << 20))[0]
        self.assertEqual(status, 413)
        self.assertLess(self.server.resident_bytes() - before, 64 << 20)
        pieces = head + b"Transfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b"x" * (1 << 20) + b"\r\n") * 12
        self.assertNotIn(b" 200 ", self.server.raw(pieces)[:15])
        self.assert_alive()

    def test_what_is_no_json(self):
        deep = 100_000
        bodies = [b"", b"{", b"{}x", b"nul", b"\xff", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b'{"prompt":"a","prompt":"b"}',
                  b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep, b'{"messages":' + b"[" * deep + b"]" * deep + b"}",
                  b'{"max_tokens": 1e999}', b'{"max_tokens": 99999999999999999999999}', b"NaN", b'{"temperature": NaN}', b'"' + b"\\" * 99]
        for path in ("/v1/chat/completions", "/v1/completions", "/generate", "/tokenize", "/detokenize", "/"):
            for body in bodies:
                status, _, text = self.server.request("POST", path, body)
                self.assertTrue(400 <= status < 500, (path, body[:40], status))
                text.encode()  # valid UTF-8
        self.assert_alive()

    def test_values_of_wrong_types(self):
        fields = ("prompt", "model", "max_tokens", "temperature", "top_p", "n", "stop", "seed", "stream", "stream_options", "logit_bias",
                  "top_k", "min_p", "stop_token_ids", "allowed_token_ids", "bad_words", "truncate_prompt_tokens", "prompt_logprobs", "echo",
                  "add_special_tokens", "request_id", "return_token_ids", "logprobs", "lora", "adapter_id", "best_of", "ignore_eos")
        values = [[], {}, [[]], [{}], {"a": {}}, "text", -5, 1e300, -1e300, True, "", [None], [-1], {"-1": 1}, {"1": "x"}, [1e300]]
        random.seed(5)
        for field in fields:
            for value in values:
                status, _, text = self.server.request("POST", "/v1/completions", {**COMPLETE, field: value})
                self.assertIn(status, (200, 400, 404), (field, value, text[:200]))
        for field in ("messages", "chat_template_kwargs", "documents", "add_generation_prompt", "continue_final_message"):
            for value in values:
                body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, field: value}
                status, _, text = self.server.request("POST", "/v1/chat/completions", body)
                self.assertIn(status, (200, 400), (field, value, text[:200]))
        self.assert_alive()

    def test_pipelined_requests_are_answered_in_order(self):
        bodies = [json.dumps({**COMPLETE, "request_id": f"r{i}"}) for i in range(4)]
        answer = self.server.raw(b"".join(post("/v1/completions", b) for b in bodies)).decode()
        self.assertEqual([answer.find(f'"cmpl-r{i}"') >= 0 for i in range(4)], [True] * 4)
        self.assertEqual(sorted(answer.find(f'"cmpl-r{i}"') for i in range(4)), [answer.find(f'"cmpl-r{i}"') for i in range(4)])

    def test_random_requests(self):
        """Valid requests with a few bytes changed, removed or repeated, with a seed that a failure shows."""
        seed = int(os.environ.get("HEDDLE_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
        chooser = random.Random(seed)
        valid = [post("/v1/completions", json.dumps(COMPLETE)), post("/generate", json.dumps({"inputs": "x"}), "Connection: close"),
                 b"GET /v1/models/a0 HTTP/1.1\r\nHost: localhost\r\n\r\n", post("/v1/chat/completions", json.dumps(
                     {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stream": True}))]
        for _ in range(150):
            data = bytearray(chooser.choice(valid))
            for _ in range(chooser.randint(1, 6)):
                place = chooser.randrange(len(data))
                what = chooser.randrange(3)
                if what == 0:
                    data[place] = chooser.randrange(256)
                elif what == 1:
                    del data[place:place + chooser.randint(1, 8)]
                else:
                    data[place:place] = data[place:place + chooser.randint(1, 30)] * chooser.randint(1, 3)
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.sendall(bytes(data))
                connection.shutdown(1)
                connection.settimeout(10)
                answer = b""
                try:
                    while piece := connection.recv(65536):
                        answer += piece
                except ConnectionResetError:
                    pass
            self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1."), (seed, bytes(data)))
        self.assert_alive()


class Start(unittest.TestCase):
    """What the program says when it cannot start."""

    def fails(self, *options, words):
        done = subprocess.run([HEDDLE, "serve", *map(str, options)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_errors_at_start(self):
        with tempfile.TemporaryDirectory() as folder:
            write_model(pathlib.Path(folder) / "m")
            model = ("--model", pathlib.Path(folder) / "m")
            self.fails(*model, "--host", "example.org", words=["--host example.org"])
            self.fails(*model, "--host", "203.0.113.1", words=["203.0.113.1"])
            self.fails(*model, "--tls-cert", "/nothing", "--tls-key", "/nothing", words=["--tls-cert /nothing"])
            self.fails(*model, "--api-key-file", "/dev/null", words=["holds no key"])
            self.fails(*model, "--tls-cert", "x", words=["--tls-key"])
            config = pathlib.Path(folder) / "config.toml"
            for text, words in (("prot = 1\n", ["line 1", '"prot"', '"port"']), ("[serve]\nport = 1\n", ["section"]), ("port = 99999\n", ["--port"])):
                config.write_text(text)
                self.fails(*model, "--config", config, words=words)
            self.fails(*model, "--config", "/nothing", words=["--config /nothing"])
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            self.fails(*model, "--max-connections", min(hard + 1, 999999), words=["file descriptors", "ulimit"])


if __name__ == "__main__":
    main()
