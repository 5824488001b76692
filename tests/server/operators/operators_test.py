"""What operators of `heddle serve` rely on: mistakes noticed before the model is read, ids and traces of requests in responses and log, metrics
by adapter and key, of the process and of the build."""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import HEDDLE, Case, main  # noqa: E402
from tiny_model import write_all  # noqa: E402

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KEYS = {"reports": "sesame-of-reports", "chat": "sesame-of-chat"}
TEXT = {"prompt": "ab", "max_tokens": 3, "temperature": 0, "ignore_eos": True}


class Start(unittest.TestCase):
    """There is no model at /none: what is noticed first is what the program says."""

    def fails(self, *options, words):
        done = subprocess.run([HEDDLE, "serve", "--model", "/none", *map(str, options)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        return done.stderr

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            said = self.fails("--port", port, words=[f"cannot listen on 127.0.0.1 port {port}", "choose another --port"])
            self.assertNotIn("/none", said)
        self.fails("--port", port, words=["/none"])

    def test_of_two_that_start_at_once_one_ends_before_it_has_read_the_model(self):
        """A model whose files are being written to is not read, for up to five seconds."""
        with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
            model = pathlib.Path(folder) / "model"
            write_all(pathlib.Path(folder), 0)
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            self.race(model, port)
            self.leave_a_connection_behind(port)
            self.starts(model, port)

    def leave_a_connection_behind(self, port):
        """In TIME_WAIT, for which a server that is started again must be able to listen."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            with socket.create_connection(("127.0.0.1", port)) as client:
                listener.accept()[0].close()
                self.assertEqual(client.recv(1), b"")

    def starts(self, model, port):
        command = [HEDDLE, "serve", "--model", model, "--port", str(port), "--threads", "1", "--device", "cpu"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                lines = []
                while (line := server.stderr.readline()) and "listening on" not in line:
                    lines.append(line)
                self.assertIn(f"listening on http://127.0.0.1:{port}", line, lines)
            finally:
                server.kill()

    def race(self, model, port):
        command = [HEDDLE, "serve", "--model", model, "--port", str(port), "--threads", "1", "--device", "cpu"]
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        try:
            deadline = time.monotonic() + 30
            while all(server.poll() is None for server in both) and time.monotonic() < deadline:
                for path in model.iterdir():
                    os.utime(path)
                time.sleep(0.02)
            ended = [server for server in both if server.poll() is not None]
            self.assertEqual(len(ended), 1)
            said = ended[0].stderr.read()
            self.assertEqual(ended[0].returncode, 2, said)
            self.assertIn(f"cannot listen on 127.0.0.1 port {port}", said)
            self.assertIn("choose another --port", said)
            other = next(server for server in both if server is not ended[0])
            lines = []
            while (line := other.stderr.readline()) and "listening on" not in line:
                lines.append(line)
            self.assertIn(f":{port}", line, "".join(lines))
        finally:
            for server in both:
                server.terminate()
                server.wait(timeout=60)
                server.stderr.close()

    def test_a_file_of_options(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "config.toml"
            for text, words in (("port = 0\n\nmax-bach = 1\n", ["line 3", '"max-bach"', 'did you mean "max-batch"?']),
                                ("port = \n", ["line 1"]),
                                ("port = 99999\n", ["--port", f"{config}: line 1"]),
                                ('stream-buffer = "x"\n', ["--stream-buffer x: expected a size", f"{config}: line 1"])):
                with self.subTest(text=text):
                    config.write_text(text)
                    self.assertNotIn("/none", self.fails("--config", config, words=[str(config), *words]))


class Ids(Case):
    keys = f"reports {KEYS['reports']}\nchat {KEYS['chat']}\n"

    def ask(self, body=None, path="/v1/completions", key=KEYS["chat"], **headers):
        send = {"Authorization": f"Bearer {key}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        status, headers, text = self.server.request("POST", path, {**TEXT, **(body or {})}, send)
        return status, headers["X-Request-Id"], json.loads(text)

    def test_the_id_of_a_client_comes_back_and_is_logged(self):
        status, given, answer = self.ask(X_Request_Id="order-17/b")
        self.assertEqual((status, given), (200, "order-17/b"))
        self.assertEqual(answer["id"], "cmpl-order-17/b")
        line = self.server.log_line(" id=order-17/b ")
        for words in ("client=127.0.0.1", "key=chat", "status=200", "adapter=base"):
            self.assertIn(f" {words}", line)

    def test_an_id_in_the_body_is_that_of_the_answer(self):
        status, given, answer = self.ask({"request_id": "of-body"}, X_Request_Id="of-header")
        self.assertEqual((status, given, answer["id"]), (200, "of-header", "cmpl-of-body"))
        self.server.log_line(" id=of-body .* request_id=of-header ")

    def test_other_ids_are_replaced(self):
        seen = set()
        for wrong in ("a b", "x" * 129, "caf\u00e9", ""):
            status, given, _ = self.ask(X_Request_Id=wrong)
            self.assertEqual(status, 200)
            self.assertRegex(given, r"^[0-9a-f]{24}$")
            seen.add(given)
        self.assertEqual(len(seen), 4)

    def test_refusals_have_ids_and_lines(self):
        for more, status in (({"key": "wrong"}, 401), ({"body": {"model": "none"}}, 404), ({"body": {"nonsense": 1}}, 400)):
            given = f"refused-{status}"
            self.assertEqual(self.ask(X_Request_Id=given, **more)[:2], (status, given))
            self.server.log_line(f" id={given} status={status} outcome=refused")
        self.assertEqual(self.server.request("GET", "/health", None, {"X-Request-Id": "probe"})[1]["X-Request-Id"], "probe")
        self.assertNotIn("sesame", self.server.log.read_text())

    def test_traces(self):
        self.ask(X_Request_Id="traced", traceparent=f"00-{TRACE}-{PARENT}-01")
        self.server.log_line(f" id=traced .* trace_id={TRACE} parent_id={PARENT} ")
        self.ask(X_Request_Id="untraced", traceparent=f"00-{TRACE}-{PARENT}")
        self.assertNotIn("trace_id", self.server.log_line(" id=untraced "))


class Labels(Case):
    keys = f"reports {KEYS['reports']}\nchat {KEYS['chat']}\n"
    num_adapters = 3

    def samples(self, name, **labels):
        """{the other labels: value} of a metric."""
        found = {}
        for line in self.server.request("GET", "/metrics")[2].splitlines():
            if not re.match(rf"{re.escape(name)}[{{ ]", line):
                continue
            own = dict(re.findall(r'(\w+)="([^"]*)"', line))
            own.pop("model_name", None)
            if all(own.pop(label, None) == value for label, value in labels.items()):
                found[tuple(sorted(own.items()))] = float(line.rsplit(" ", 1)[1])
        return found

    def ask(self, key, **fields):
        return self.server.post("/v1/completions", {**TEXT, **fields}, headers={"Authorization": f"Bearer {KEYS[key]}"})

    def test_requests_by_adapter_and_key(self):
        for key, fields, status in (("chat", {"model": "a1"}, 200), ("chat", {"model": "a1"}, 200), ("reports", {}, 200),
                                    ("reports", {"lora": [{"name": "a0"}, {"name": "a2"}]}, 200), ("chat", {"model": "none"}, 404)):
            self.assertEqual(self.ask(key, **fields)[0], status)
        for adapter, count in (("a1", 2), ("base", 1), ("a0+a2", 1)):
            self.assertEqual(self.samples("heddle:adapter_requests_total", adapter=adapter), {(("status", "200"),): count})
            self.assertEqual(self.samples("heddle:adapter_tokens_total", adapter=adapter), {(): 3 * count})
            for metric in ("heddle:adapter_time_to_first_token_seconds", "heddle:adapter_e2e_request_latency_seconds"):
                self.assertEqual(self.samples(f"{metric}_count", adapter=adapter), {(): count})
                self.assertGreater(self.samples(f"{metric}_sum", adapter=adapter)[()], 0)
                self.assertEqual(self.samples(f"{metric}_bucket", adapter=adapter, le="+Inf"), {(): count})
        self.assertEqual(self.samples("heddle:key_requests_total", key="chat"), {(("status", "200"),): 2, (("status", "404"),): 1})
        self.assertEqual(self.samples("heddle:key_tokens_total", key="chat", kind="answer"), {(): 6})
        self.assertEqual(self.samples("heddle:key_tokens_total", key="reports", kind="prompt"), {(): 4})
        self.server.request("POST", "/v1/completions", TEXT)
        self.assertGreaterEqual(self.samples("heddle:requests_total", route="/v1/completions", status="401")[()], 1)

    def test_the_process(self):
        process = self.server.process.pid
        before, seconds = self.server.processor_seconds(), self.samples("process_cpu_seconds_total")
        self.assertEqual(list(seconds), [()], "no label")
        self.assertLessEqual(before, seconds[()] + 0.02)
        self.assertLessEqual(seconds[()], self.server.processor_seconds() + 0.02)
        resident = self.samples("process_resident_memory_bytes")[()]
        self.assertAlmostEqual(resident / self.server.resident_bytes(), 1, delta=0.2)
        self.assertGreater(self.samples("process_virtual_memory_bytes")[()], resident)
        files = len(os.listdir(f"/proc/{process}/fd"))
        self.assertAlmostEqual(self.samples("process_open_fds")[()], files, delta=3)
        limits = pathlib.Path(f"/proc/{process}/limits").read_text()
        self.assertEqual(self.samples("process_max_fds")[()], int(re.search(r"Max open files\s+(\d+)", limits)[1]))
        age = time.time() - self.samples("process_start_time_seconds")[()]
        self.assertTrue(-2 < age < 600, age)

    def test_the_build(self):
        version = json.loads(self.server.request("GET", "/version")[2])["version"]
        printed = subprocess.run([HEDDLE, "--version"], capture_output=True, text=True, check=True).stdout
        commit = re.fullmatch(re.escape(version) + r" \(commit (unknown|[0-9a-f]{12,40}\+?)\)\n", printed)[1]
        self.assertEqual(self.samples("heddle:build_info", version=version, commit=commit, device="cpu"), {(): 1})
        of_server = subprocess.run([f"{HEDDLE}-serve", "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(of_server, printed)


class ManyAdapters(Case):
    num_adapters = 110

    def test_only_so_many_have_times_of_their_own(self):
        for i in range(self.num_adapters):
            self.assertEqual(self.server.post("/v1/completions", {**TEXT, "max_tokens": 1, "model": f"a{i}"})[0], 200)
        text = self.server.request("GET", "/metrics")[2]
        counts = dict(re.findall(r'heddle:adapter_e2e_request_latency_seconds_count{adapter="([^"]+)".*} (\d+)', text))
        self.assertEqual(len(counts), 101)
        self.assertEqual(counts.pop("other"), "10")
        self.assertEqual(set(counts.values()), {"1"})
        self.assertEqual(len(re.findall("heddle:adapter_requests_total{", text)), 110)


if __name__ == "__main__":
    main()
