"""Who may ask what of `heddle serve`: every route with every kind of key, adapters outside of --lora-root, what is left of a request that
was refused, and the limits of the listener at their exact values."""
import itertools
import json
import pathlib
import re
import select
import shutil
import socket
import tempfile
import time
import unittest

from serve_case import ADMIN_KEY, Case, Server, main
from tiny_model import write_adapter

API_KEYS = ("a-key-of-the-tests", "another-key-of-the-tests")
COMPLETE = {"prompt": "x", "max_tokens": 1, "temperature": 0}
SOURCE = pathlib.Path(__file__).parents[2] / "apps/heddle-serve/routes/route.cpp"
HEADER_BYTES = 16 << 10  # of a request's head, kHeaderBytes of http/connection.cpp

# Whom each route answers: anybody, who has one of either kind of keys, or who has an admin key. Those of names in the path have NAME.
OPEN, KEY, ADMIN = "open", "key", "admin"
ROUTES = {
    ("POST", "/v1/chat/completions"): KEY,
    ("POST", "/v1/completions"): KEY,
    ("POST", "/chat/completions"): KEY,
    ("POST", "/completions"): KEY,
    ("POST", "/generate"): KEY,
    ("POST", "/generate_stream"): KEY,
    ("POST", "/"): KEY,
    ("POST", "/tokenize"): KEY,
    ("POST", "/detokenize"): KEY,
    ("POST", "/v1/embeddings"): KEY,
    ("POST", "/embeddings"): KEY,
    ("POST", "/embed"): KEY,
    ("POST", "/v1/classify"): KEY,
    ("POST", "/classify"): KEY,
    ("POST", "/v1/score"): KEY,
    ("POST", "/score"): KEY,
    ("POST", "/rerank"): KEY,
    ("POST", "/v1/rerank"): KEY,
    ("POST", "/v2/rerank"): KEY,
    ("POST", "/v1/decisions"): KEY,
    ("POST", "/v1/responses"): KEY,
    ("POST", "/responses"): KEY,
    ("GET", "/v1/responses/NAME"): KEY,
    ("DELETE", "/v1/responses/NAME"): KEY,
    ("POST", "/v1/messages"): KEY,
    ("POST", "/v1/messages/count_tokens"): KEY,
    ("GET", "/v1/models"): KEY,
    ("GET", "/v1/models/NAME"): KEY,
    ("GET", "/models"): KEY,
    ("GET", "/state"): KEY,
    ("GET", "/examples/NAME"): KEY,
    ("GET", "/info"): KEY,
    ("POST", "/v1/load_lora_adapter"): ADMIN,
    ("POST", "/load_lora_adapter"): ADMIN,
    ("POST", "/load_lora_adapter_from_tensors"): ADMIN,
    ("POST", "/v1/loras"): ADMIN,
    ("POST", "/v1/unload_lora_adapter"): ADMIN,
    ("POST", "/unload_lora_adapter"): ADMIN,
    ("DELETE", "/v1/loras/NAME"): ADMIN,
    ("GET", "/v1/loras"): ADMIN,
    ("GET", "/lora-adapters"): ADMIN,
    ("POST", "/lora-adapters"): ADMIN,
    ("POST", "/reset_prefix_cache"): ADMIN,
    ("GET", "/health"): OPEN,
    ("GET", "/startup"): OPEN,
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/ping"): OPEN,
    ("GET", "/metrics"): OPEN,
    ("GET", "/version"): OPEN,
    ("GET", "/"): OPEN,
    ("GET", "/page/NAME"): OPEN,
}
# The key that a request brings, and whom it passes for.
KEYS = [({}, OPEN), ({"Authorization": "Bearer "}, OPEN), ({"Authorization": "Bearer no-key-of-the-tests"}, OPEN),
        ({"Authorization": f"Bearer {API_KEYS[0][:-1]}"}, OPEN), ({"Authorization": f"Bearer {API_KEYS[0]}x"}, OPEN),
        ({"Authorization": API_KEYS[0]}, OPEN), ({"Authorization": f"Basic {API_KEYS[0]}"}, OPEN), ({"X-Api-Key": "no-key"}, OPEN),
        ({"X-Api-Key": API_KEYS[1]}, KEY), ({"x-api-key": f"Bearer {API_KEYS[1]}"}, OPEN), ({"X-Api-Key": ADMIN_KEY}, OPEN),
        ({"Authorization": f"Bearex {API_KEYS[0]}"}, OPEN), ({"Authorization": f"Bearer:{API_KEYS[0]}"}, OPEN),
        ({"Authorization": f"Bearer {API_KEYS[0]}"}, KEY), ({"Authorization": f"Bearer {API_KEYS[1]}"}, KEY),
        ({"Authorization": f"Bearer {ADMIN_KEY[:-1]}"}, OPEN), ({"Authorization": f"Bearer {ADMIN_KEY}"}, ADMIN)]


def raw_request(method, path, headers, body=b""):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def statuses(answer):
    """Of all responses in these bytes."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


class Access(Case):
    """With keys of both kinds."""

    keys = API_KEYS[0] + "\r\n\n" + API_KEYS[1] + "  \n"  # spaces and empty lines are no keys

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slow, cls.silent = (socket.create_connection(("127.0.0.1", cls.server.port)) for _ in range(2))
        cls.addClassCleanup(cls.slow.close)
        cls.addClassCleanup(cls.silent.close)
        cls.slow.sendall(b"GET /health HTTP/1.1\r\n")
        cls.begin = time.monotonic()

    def ask(self, method, path, headers):
        body = b"{}" if method == "POST" else None
        return self.server.request(method, path, body, headers)[0]

    def test_the_table_has_every_route(self):
        entries = set(re.findall(r'\{"([A-Z]+)", "(/[^"]*)", Route::k', SOURCE.read_text()))
        named = {route for route in ROUTES if "NAME" in route[1]} | {("GET", "/")}
        self.assertGreater(len(entries), 20)
        self.assertEqual(entries, set(ROUTES) - named, "a route needs a line that says who may ask")

    def test_every_route_with_every_key(self):
        for (method, path), wanted in ROUTES.items():
            for headers, is_key_of in KEYS:
                with self.subTest(route=f"{method} {path}", headers=headers):
                    may = wanted == OPEN or is_key_of == ADMIN or wanted == is_key_of
                    status = self.ask(method, path.replace("NAME", "page.css" if "page" in path else "none"), headers)
                    self.assertEqual(status == 401, not may, status)
                    self.assertLess(status, 500 + 2, "what is not there has an answer, too")

    def test_a_path_that_is_written_otherwise_opens_nothing(self):
        """Whatever route it is taken for, one without a key is not served by it."""
        forms = (lambda p: p + "/", lambda p: "/" + p, lambda p: p + "?x=1", lambda p: p + "#x", lambda p: p.upper(),
                 lambda p: p.replace("a", "%61"), lambda p: "/./" + p[1:], lambda p: "/health/.." + p, lambda p: "/page/.." + p,
                 lambda p: p + "%00", lambda p: p + ";x", lambda p: p + "//")
        for (method, path), wanted in ROUTES.items():
            if wanted == OPEN:
                continue
            path = path.replace("NAME", "a0")
            for form in forms:
                with self.subTest(route=f"{method} {form(path)}"):
                    body = json.dumps({**COMPLETE, "lora_name": "x", "lora_path": "a0", "inputs": "x", "tokens": [1]}).encode()
                    headers = {"Connection": "close"}
                    if method == "POST":
                        headers |= {"Content-Type": "application/json", "Content-Length": len(body)}
                    answer = self.server.raw(raw_request(method, form(path), headers, body if method == "POST" else b""))
                    self.assertEqual(len(statuses(answer)), 1, answer[:200])
                    self.assertIn(statuses(answer)[0], (400, 401, 404, 405), answer[:200])
        self.assertNotIn('"x"', self.server.admin("/v1/loras", None, "GET")[2])

    def test_methods_without_a_key(self):
        for (method, path), wanted in ROUTES.items():
            for other in ("HEAD", "PUT", "PATCH", "DELETE", "GET", "POST"):
                if wanted == OPEN or ("GET" if other == "HEAD" else other, path) in ROUTES:
                    continue
                status = self.ask(other, path.replace("NAME", "a0"), {})
                self.assertIn(status, (401, 404, 405), (other, path))

    def test_a_refused_request_is_read_to_its_end_or_not_at_all(self):
        """What a refused request brings as its body is never taken for the next request of the connection."""
        inner = raw_request("GET", "/v1/models", {"Authorization": f"Bearer {API_KEYS[0]}"})
        kinds = {"Content-Length": str(len(inner))}
        chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
        typed = {"Content-Type": "application/json"}
        good = {"Authorization": f"Bearer {API_KEYS[0]}"}
        refused = [("POST", "/v1/completions", typed, 401), ("POST", "/v1/load_lora_adapter", {**typed, **good}, 401),
                   ("POST", "/v1/completions", {**good, "Content-Type": "text/plain"}, 415), ("GET", "/v1/models", {}, 401),
                   ("POST", "/v1/completions", {**typed, "Origin": "http://evil.example"}, 403),
                   ("POST", "/nothing", {**typed, **good}, 404), ("DELETE", "/v1/loras/a0", good, 401),
                   ("OPTIONS", "/v1/completions", {"Origin": "http://evil.example"}, 403), ("POST", "/v1/completions", {**typed, **good}, 400)]
        for (method, path, headers, status), is_chunked in itertools.product(refused, (False, True)):
            with self.subTest(route=f"{method} {path}", status=status, chunked=is_chunked):
                framing = {"Transfer-Encoding": "chunked"} if is_chunked else kinds
                data = raw_request(method, path, {**headers, **framing}, chunk if is_chunked else inner)
                self.assertEqual(statuses(self.server.raw(data)), [status])
                head, body = data.split(b"\r\n\r\n", 1)  # the body comes when the head has been answered
                with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as connection:
                    connection.sendall(head + b"\r\n\r\n")
                    connection.settimeout(0.3)
                    answer = b""
                    for piece in (body, b""):
                        try:
                            while more := connection.recv(65536):
                                answer += more
                        except (TimeoutError, ConnectionResetError):
                            pass
                        try:
                            connection.sendall(piece)
                        except (BrokenPipeError, ConnectionResetError):
                            pass
                    self.assertEqual(statuses(answer), [status], answer[:300])

    def test_time_for_a_head(self):
        """15 s, kHeaderTime of http/connection.cpp, from the connection on: since before the other tests."""
        if time.monotonic() - self.begin < 12:
            self.assertEqual(select.select([self.slow, self.silent], [], [], 0)[0], [], "not before")
        for connection in (self.slow, self.silent):
            connection.settimeout(40)
            try:
                answer = connection.recv(65536)
            except ConnectionResetError:
                answer = b""
            self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 408"), answer)
        self.assertLess(time.monotonic() - self.begin, 30)
        self.assertEqual(self.server.request("GET", "/health")[0], 200)

    def test_the_next_request_of_a_connection_has_keys_of_its_own(self):
        with_key = raw_request("GET", "/v1/models", {"Authorization": f"Bearer {API_KEYS[0]}"})
        without = raw_request("GET", "/v1/models", {})
        self.assertEqual(statuses(self.server.raw(with_key + without)), [200, 401])
        self.assertEqual(statuses(self.server.raw(without + with_key)), [401, 200])
        admin = raw_request("GET", "/v1/loras", {"Authorization": f"Bearer {ADMIN_KEY}"})
        self.assertEqual(statuses(self.server.raw(admin + raw_request("GET", "/v1/loras", {}))), [200, 401])


class WithoutKeys(unittest.TestCase):
    """What there is where the server has no file of keys: no admin route, all others."""

    def test_routes(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        server = Server(temporary.name, "--max-batch", 2, "--max-waiting", 3, has_admin=False)
        self.addCleanup(server.stop)
        answers = {n: server.post("/v1/completions", {**COMPLETE, "n": n})[0] for n in (4, 5, 6)}
        self.assertEqual(answers, {4: 200, 5: 200, 6: 429}, "2 run and 3 wait")
        for (method, path), wanted in ROUTES.items():
            for headers in ({}, {"Authorization": f"Bearer {ADMIN_KEY}"}, {"Authorization": "Bearer "}):
                status, _, text = server.request(method, path.replace("NAME", "a0"), b"{}" if method == "POST" else None, headers)
                if wanted == ADMIN:
                    self.assertEqual((status, json.loads(text)["error"]["message"]), (404, "there is no such route"), (method, path))
                else:
                    self.assertNotIn(status, (401, 403), (method, path))


class Paths(Case):
    """A valid adapter outside --lora-root, and every way to it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.server.folder / "adapters"
        cls.outside = cls.server.folder / "outside"
        cls.valid = cls.outside / "valid"
        write_adapter(cls.valid, 77)
        sibling = cls.server.folder / "adapters-of-others"  # its path begins as the root's does
        write_adapter(sibling / "valid", 78)
        write_adapter(cls.root / "group/inside", 79)
        (cls.root / "to-outside").symlink_to(cls.outside)
        (cls.root / "to-valid").symlink_to(cls.valid)
        (cls.root / "to-itself").symlink_to(cls.root)
        (cls.root / "to-inside").symlink_to("group/inside")
        linked = cls.root / "linked-weights"
        linked.mkdir()
        shutil.copy(cls.valid / "adapter_config.json", linked)
        (linked / "adapter_model.safetensors").symlink_to(cls.valid / "adapter_model.safetensors")
        config = cls.root / "linked-config"
        config.mkdir()
        shutil.copy(cls.valid / "adapter_model.safetensors", config)
        (config / "adapter_config.json").symlink_to(cls.valid / "adapter_config.json")

    def load(self, path, name="loaded"):
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})
        if status == 200:
            self.server.admin("/v1/unload_lora_adapter", {"lora_name": name})
        return status, text

    def test_what_lies_outside_is_not_loaded(self):
        for path in ("../outside/valid", "a0/../../outside/valid", "./../outside/valid", "group/../../outside/valid", self.valid,
                     f"{self.root}/../outside/valid", f"{self.root}/a0/../../outside/valid", "to-outside/valid", "to-valid", "to-valid/.",
                     f"{self.root}/to-outside/valid", "../adapters-of-others/valid", self.server.folder / "adapters-of-others/valid",
                     "..//outside//valid", "to-itself/../outside/valid", "linked-weights", "linked-config", "..", "../outside", ".", "",
                     "/", self.root, self.server.folder, "to-itself", "group", "../model", f"{self.valid}/adapter_config.json"):
            with self.subTest(path=str(path)):
                status, text = self.load(path)
                self.assertEqual(status, 400, text)
                self.assertEqual(json.loads(text)["error"]["param"], "lora_path")
                self.assertNotIn(str(self.server.folder), text)

    def test_what_lies_outside_is_no_model(self):
        for name in ("../outside/valid", str(self.valid), "to-outside/valid", "to-valid", "a0/../../outside/valid", "linked-weights",
                     "linked-config"):
            for fields in ({"model": name}, {"adapter_id": name}, {"lora": [{"name": name}]}, {"model": f"base:{name}"}):
                with self.subTest(**fields):
                    status, text = self.server.request("POST", "/v1/completions", {**COMPLETE, **fields})[::2]
                    self.assertIn(status, (400, 404), text)
            status = self.server.request("POST", "/generate", {"inputs": "x", "parameters": {"adapter_id": name}})[0]
            self.assertIn(status, (400, 404, 422), name)

    def test_names_that_are_taken(self):
        for name in ("base", "model", str(self.server.folder / "model")):
            status, text = self.load("a0", name)
            self.assertEqual((status, json.loads(text)["error"]["param"]), (400, "lora_name"), name)

    def test_an_adapter_that_comes_again_has_no_scale_of_before(self):
        def scales():
            return {entry["path"]: entry["scale"] for entry in json.loads(self.server.admin("/lora-adapters", None, "GET")[2])}

        def load():
            self.assertEqual(self.server.admin("/v1/load_lora_adapter", {"lora_name": "scaled", "lora_path": "a0"})[0], 200)

        load()
        ids = {entry["path"]: entry["id"] for entry in json.loads(self.server.admin("/lora-adapters", None, "GET")[2])}
        body = json.dumps([{"id": ids["scaled"], "scale": 0.5}]).encode()
        self.assertEqual(self.server.admin("/lora-adapters", body)[0], 200)
        self.assertEqual(scales()["scaled"], 0.5)
        self.assertEqual(self.server.admin("/v1/unload_lora_adapter", {"lora_name": "scaled"})[0], 200)
        self.assertNotIn("scaled", scales())
        load()
        self.assertEqual(scales()["scaled"], 0.0)
        self.server.admin("/v1/unload_lora_adapter", {"lora_name": "scaled"})

    def test_what_lies_inside_is_loaded(self):
        for path in ("a0", "./a0", "group/../a0", self.root / "a0", f"{self.root}/a0/.", "group/inside", "to-inside"):
            with self.subTest(path=str(path)):
                status, text = self.load(path)
                self.assertEqual(status, 200, text)


class Limits(unittest.TestCase):
    """At the limit and one above it."""

    BODY = 4096
    CONNECTIONS = 5

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.server = Server(temporary.name, "--max-body", cls.BODY, "--max-connections", cls.CONNECTIONS)
        cls.addClassCleanup(cls.server.stop)

    def status(self, data):
        answer = statuses(self.server.raw(data))
        self.assertEqual(len(answer), 1, data[:100])
        return answer[0]

    def test_body(self):
        headers = {"Content-Type": "application/json", "Connection": "close"}
        for size, status in ((self.BODY - 1, 200), (self.BODY, 200), (self.BODY + 1, 413)):
            body = json.dumps(COMPLETE).encode()
            body += b" " * (size - len(body))
            with self.subTest(bytes=size):
                whole = raw_request("POST", "/v1/completions", {**headers, "Content-Length": size}, body)
                self.assertEqual(self.status(whole), status, "with its length")
                chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 999]), body[i:i + 999]) for i in range(0, size, 999)) + b"0\r\n\r\n"
                self.assertEqual(self.status(raw_request("POST", "/v1/completions", {**headers, "Transfer-Encoding": "chunked"}, chunks)), status)

    def test_head(self):
        """Of the lines of a request's head, with the empty line that ends it. What has come before in lines of its own may not count."""
        def head(size):
            start = raw_request("GET", "/v1/models", {"Connection": "close", "X": ""})
            return start.replace(b"X: ", b"X: " + b"y" * (size - len(start)))

        self.assertEqual(len(head(HEADER_BYTES)), HEADER_BYTES)
        self.assertEqual([self.status(head(size)) for size in (HEADER_BYTES, HEADER_BYTES + 100)], [200, 431])

    def test_connections(self):
        def is_served(connection, seconds):
            connection.settimeout(seconds)
            try:
                return connection.recv(65536).startswith(b"HTTP/1.1 200")
            except TimeoutError:
                return False

        connections = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(self.CONNECTIONS + 1)]
        for connection in connections:
            self.addCleanup(connection.close)
        for connection in connections[:-1]:
            connection.sendall(raw_request("GET", "/health", {}))
            self.assertTrue(is_served(connection, 10))
        connections[-1].sendall(raw_request("GET", "/health", {}))
        self.assertFalse(is_served(connections[-1], 0.5), "one more than --max-connections waits")
        connections[0].close()
        self.assertTrue(is_served(connections[-1], 10), "until one of them is closed")

    def test_fields(self):
        limits = {"n": (16, int), "best_of": (16, int), "logprobs": (20, int), "prompt_logprobs": (20, int), "stop": (16, lambda n: ["#"] * n),
                  "bad_words": (256, lambda n: ["#$"] * n), "prompt": (128, lambda n: ["x"] * n)}
        for field, (most, value) in limits.items():
            for number in (most, most + 1):
                status, answer = self.server.post("/v1/completions", {**COMPLETE, field: value(number)})
                self.assertEqual(status, 200 if number <= most else 400, (field, number, answer))


if __name__ == "__main__":
    main()
