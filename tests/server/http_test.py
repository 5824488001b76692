"""Requests as RFC 9112 has them, and as it forbids them: what is refused, what closes the connection, and that no byte of one request is read
as the next one.

  python3 tests/server/http_test.py HEDDLE [TEST...]
"""
import json
import socket
import time

from serve_case import Case, main

BODY = json.dumps({"model": "a0", "prompt": "ab", "max_tokens": 2, "temperature": 0}).encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
INNER = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"  # where its answer comes, a body was read as a request
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
GET = b"GET /version HTTP/1.1\r\nHost: localhost\r\n"
ENDLESS = {"model": "a0", "prompt": "ab", "max_tokens": 1900, "temperature": 0, "ignore_eos": True}

# What it is, its bytes, the status; INNER follows each of them and may only be answered where the request before it was whole.
REFUSED = [
    ("two hosts", GET + b"Host: localhost\r\n\r\n", 400),
    ("two other hosts", GET + b"hOST: evil.example\r\n\r\n", 400),
    ("hosts in one line", b"GET /version HTTP/1.1\r\nHost: localhost, evil.example\r\n\r\n", 403),
    ("an encoding that is none", POST + b"Transfer-Encoding: identity\r\n\r\n" + CHUNKED, 501),
    ("two encodings", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED, 501),
    ("chunked twice", POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKED, 501),
    ("two headers of encodings", POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400),
    ("nearly chunked", POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED, 501),
    ("quoted", POST + b'Transfer-Encoding: "chunked"\r\n\r\n' + CHUNKED, 501),
    ("chunked with a parameter", POST + b"Transfer-Encoding: chunked;a=b\r\n\r\n" + CHUNKED, 501),
    ("no encoding", POST + b"Transfer-Encoding:\r\n\r\n" + CHUNKED, 501),
    ("encoding and length", POST + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400),
    ("length and encoding", POST + b"Transfer-Encoding: chunked\r\n" + LENGTH + b"\r\n" + CHUNKED, 400),
    ("encoding in 1.0", POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400),
    ("two lengths", POST + LENGTH + LENGTH + b"\r\n" + BODY, 400),
    ("lengths in one line", POST + b"Content-Length: 5, 5\r\n\r\n" + BODY, 400),
    ("a length with a sign", POST + b"Content-Length: +5\r\n\r\n" + BODY, 400),
    ("a length in hexadecimal", POST + b"Content-Length: 0x5\r\n\r\n" + BODY, 400),
    ("a length with a space", POST + b"Content-Length: 1 0\r\n\r\n" + BODY, 400),
    ("no length", POST + b"Content-Length: \r\n\r\n" + BODY, 400),
    ("a folded line", GET + b"X-A: b\r\n c\r\n\r\n", 400),
    ("a folded encoding", POST + LENGTH + b"X-A: b\r\n Transfer-Encoding: chunked\r\n\r\n" + BODY, 400),
    ("a bare LF", GET + b"X-A: b\nX-B: c\r\n\r\n", 400),
    ("bare LFs", b"GET /version HTTP/1.1\nHost: localhost\n\n", 400),
    ("a bare CR", GET + b"X-A: b\rX-B: c\r\n\r\n", 400),
    ("NUL", GET + b"X-A: b\0c\r\n\r\n", 400),
    ("a space before the colon", POST + b"Content-Length : 5\r\n\r\n" + BODY, 400),
    ("a tab before the colon", GET + b"X-A\t: b\r\n\r\n", 400),
    ("a line that begins with a space", b"GET /version HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
    ("no colon", GET + b"X-A\r\n\r\n", 400),
    ("no name", GET + b": b\r\n\r\n", 400),
    ("a name with brackets", GET + b"X(A): b\r\n\r\n", 400),
    ("an unknown expectation", POST + LENGTH + b"Expect: miracles\r\n\r\n" + BODY, 417),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("HTTP/1.2", b"GET /version HTTP/1.2\r\nHost: localhost\r\n\r\n", 505),
    ("no version", b"GET /version\r\nHost: localhost\r\n\r\n", 400),
    ("two spaces", b"GET  /version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("a space after the version", b"GET /version HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400),
    ("a target that is no path", b"GET version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("the target of a tunnel", b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ("another host in the target", b"GET http://evil.example/version HTTP/1.1\r\nHost: localhost\r\n\r\n", 403),
    ("a user in the target", b"GET http://localhost@evil.example/version HTTP/1.1\r\nHost: localhost\r\n\r\n", 403),
    ("a head of 17 KiB", GET + b"X-A: " + b"b" * (17 << 10) + b"\r\n\r\n", 431),
]
WRONG_CHUNKS = [b"zz\r\nab\r\n", b"-5\r\nab\r\n", b"0x5\r\nab\r\n", b" 5\r\nab\r\n", b"\r\nab\r\n", b"ffffffffffffffffff\r\nab\r\n",
                b"2\nab\r\n0\r\n\r\n", b"2\r\nab0\r\n\r\n", b"2\r\nabc\r\n0\r\n\r\n", b"2;" + b"x" * 40000 + b"\r\nab\r\n"]
ACCEPTED = [
    ("a target with its host", b"GET http://localhost/version HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
    ("the same with a port", b"GET HTTP://127.0.0.1:80/version?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("headers in other letters", GET.replace(b"Host", b"hOsT") + b"accept:*/*\r\n\r\n"),
    ("an empty line before it", b"\r\n" + GET + b"\r\n"),
    ("an upgrade", GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
    ("a value of other bytes", GET + b"X-A: \xc3\xa9\r\n\r\n"),
    ("spaces around a value", POST + b"Content-Length: \t %d \t\r\n\r\n" % len(BODY) + BODY),
    ("chunked in capitals", POST + b"TRANSFER-ENCODING: Chunked\r\n\r\n" + CHUNKED),
    ("chunk extensions", POST + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"\r\n", b";a=b\r\n", 1)),
    ("trailers", POST + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED[:-2] + b"Host: evil.example\r\n\r\n"),
]


def statuses(answer):
    """Of all responses in it."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


class Http(Case):
    options = ("--max-batch", 4, "--max-buffered", "8M", "--kv-memory", "100M")

    def running(self):
        return self.server.metric("vllm:num_requests_running") + self.server.metric("vllm:num_requests_waiting")

    def wait_until(self, is_true, seconds=20):
        deadline = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def open(self, data):
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        self.addCleanup(connection.close)
        connection.sendall(data)
        return connection

    def read_all(self, connection):
        answer = b""
        while piece := connection.recv(1 << 20):
            answer += piece
        return answer

    def test_refused(self):
        for what, data, status in REFUSED:
            with self.subTest(what):
                answer = self.server.raw(data + INNER)
                self.assertEqual(statuses(answer)[:1], [status], answer[:300])
                is_whole = status == 403 and data.startswith(b"GET")  # a request without a body: the next one may follow
                self.assertEqual(len(statuses(answer)), 2 if is_whole else 1, answer)
                if status != 403:
                    self.assertIn(b"Connection: close", answer)
                    json.loads(answer.split(b"\r\n\r\n", 1)[1])
        self.assert_alive()

    def test_refused_in_pieces(self):
        for what, data, status in REFUSED[:20]:
            with self.subTest(what):
                connection = self.open(data[:30])
                time.sleep(0.002)
                connection.sendall(data[30:70])
                time.sleep(0.002)
                connection.sendall(data[70:])
                connection.settimeout(5)
                self.assertEqual(statuses(connection.recv(65536))[:1], [status])

    def test_wrong_chunks(self):
        for chunks in WRONG_CHUNKS:
            with self.subTest(chunks[:20]):
                answer = self.server.raw(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + INNER)
                self.assertEqual(statuses(answer), [400], answer[:300])
        self.assert_alive()

    def test_accepted(self):
        for what, data in ACCEPTED:
            with self.subTest(what):
                answer = self.server.raw(data + INNER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                self.assertEqual(statuses(answer), [200, 200], answer[:300])

    def test_the_body_of_a_refused_request_is_no_request(self):
        length = b"Content-Length: %d\r\n" % len(INNER)
        for head in (b"POST /v1/completions HTTP/1.1\r\nHost: evil.example\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
                     b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n", POST.replace(b"/completions", b"/nothing")):
            answer = self.server.raw(head + length + b"\r\n" + INNER)
            self.assertEqual(len(statuses(answer)), 1, answer)
            self.assertNotIn(b'{"version"', answer)

    def test_the_oldest_version(self):
        answer = self.server.raw(POST.replace(b"1.1", b"1.0") + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY)
        self.assertRegex(answer, rb"^HTTP/1\.[01] 200 ")
        self.assertNotIn(b" 100 ", answer)
        stream = json.dumps({**json.loads(BODY), "stream": True}).encode()
        answer = self.server.raw(POST.replace(b"1.1", b"1.0") + b"Content-Length: %d\r\n\r\n" % len(stream) + stream)
        self.assertNotIn(b"chunked", answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"))

    def test_a_body_that_waits_to_be_asked_for(self):
        connection = self.open(POST + LENGTH + b"Expect: 100-Continue\r\n\r\n")
        self.assertEqual(connection.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(BODY)
        self.assertEqual(statuses(connection.recv(65536)), [200])
        refused = self.open(POST.replace(b"localhost", b"evil.example") + LENGTH + b"Expect: 100-continue\r\n\r\n")
        self.assertEqual(statuses(self.read_all(refused)), [403])

    def test_half_closed_clients_get_their_answer(self):
        for stream in (False, True):
            body = json.dumps({**ENDLESS, "max_tokens": 300, "stream": stream, "return_token_ids": True}).encode()
            head = POST + b"Content-Length: %d\r\n" % len(body)
            whole = self.read_all(self.open(head + b"Connection: close\r\n\r\n" + body))
            for requests in (1, 2):
                with self.subTest(stream=stream, requests=requests):
                    connection = self.open((head + b"\r\n" + body) * requests)
                    connection.shutdown(socket.SHUT_WR)
                    answer = self.read_all(connection)
                    parts = [part for part in answer.split(b"HTTP/1.1 ")[1:] if not part.startswith(b"100")]
                    self.assertEqual([part[:3] for part in parts], [b"200"] * requests)
                    tokens = [part.count(b"token_ids") for part in (*parts, whole)]
                    self.assertEqual(tokens, [tokens[-1]] * (requests + 1))
                    self.assertEqual(answer.endswith(b"0\r\n\r\n"), stream)

    def test_closed_clients_end_their_rows(self):
        for stream in (False, True):
            for tail in (b"", INNER):
                with self.subTest(stream=stream, tail=tail):
                    body = json.dumps({**ENDLESS, "stream": stream, "n": 4}).encode()
                    connection = self.open(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + tail)
                    self.assertTrue(self.wait_until(lambda: self.running() == 4))
                    begin = time.monotonic()
                    connection.close()
                    self.assertTrue(self.wait_until(lambda: self.running() == 0))
                    self.assertLess(time.monotonic() - begin, 1.5)

    def test_what_is_buffered_has_one_bound(self):
        """Many unfinished bodies: some are refused, an honest request is not, and nothing is held when they are gone."""
        head = POST + b"Content-Length: %d\r\n\r\n" % (2 << 20)
        before = self.server.metric("heddle:buffered_given_up_total")
        connections = [self.open(head + b"x" * (1 << 20)) for _ in range(16)]
        self.assertTrue(self.wait_until(lambda: self.server.metric("heddle:buffered_given_up_total") - before >= 8))
        self.assertLessEqual(self.server.metric("heddle:buffered_bytes"), (8 << 20) + 65536)
        self.assertTrue(self.server.complete("a0"))
        answers = []
        for connection in connections:
            connection.settimeout(0.05)
            try:
                answers.append(connection.recv(65536))
            except (TimeoutError, ConnectionResetError):
                answers.append(b"")
            connection.close()
        self.assertIn(503, [status for answer in answers for status in statuses(answer)])
        self.assertTrue(self.wait_until(lambda: self.server.metric("heddle:buffered_bytes") == 0))

    def test_answers_that_nobody_reads_count(self):
        body = json.dumps({**ENDLESS, "stream": True, "logprobs": 20, "n": 4}).encode()
        connection = socket.socket()
        self.addCleanup(connection.close)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self.server.port))
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(self.wait_until(lambda: self.server.metric("heddle:buffered_bytes") > 1 << 19))
        self.assertEqual(self.running(), 4)
        connection.close()
        self.assertTrue(self.wait_until(lambda: self.server.metric("heddle:buffered_bytes") == 0))

    def test_metrics_are_of_the_scrape(self):
        metric = self.server.metric
        uses, reads = metric("heddle:adapter_uses_total"), metric("heddle:adapter_reads_total")
        for i in range(1, 21):
            self.server.complete("a1")
            self.assertEqual(metric("heddle:adapter_uses_total"), uses + i)
        self.assertLessEqual(metric("heddle:adapter_reads_total"), reads + 1)
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "new", "lora_path": "a2"})
        self.assertEqual(status, 200, text)
        known = metric("heddle:adapters_known")
        self.assertGreaterEqual(metric("heddle:adapters_in_memory"), 1)
        status, _, text = self.server.admin("/v1/unload_lora_adapter", {"lora_name": "new"})
        self.assertEqual(status, 200, text)
        self.assertEqual(metric("heddle:adapters_known"), known - 1)
        self.assertEqual((metric("vllm:kv_cache_usage_perc"), metric("heddle:adapters_in_use")), (0, 0))
        body = json.dumps({**ENDLESS, "stream": True}).encode()
        connection = self.open(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(connection.recv(1))
        self.assertEqual((metric("vllm:num_requests_running"), metric("vllm:num_requests_waiting")), (1, 0))
        self.assertEqual(metric("heddle:adapters_in_use"), 1)
        self.assertGreater(metric("vllm:kv_cache_usage_perc"), 0)
        connection.close()
        self.assertTrue(self.wait_until(lambda: self.running() == 0))
        self.assertEqual(metric("vllm:kv_cache_usage_perc"), 0)
        self.assertIn('"state":"in memory"', self.server.request("GET", "/v1/models/a1")[2])


if __name__ == "__main__":
    main()
