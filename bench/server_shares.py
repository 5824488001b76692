"""How long one tenant of `heddle serve` waits while another one has a burst of requests in the line, with --fairness off and key.

  server_shares.py HEDDLE MODEL [--burst 200] [--tokens 32] [--rounds 3] [--json FILE] [--commit NAME]

HEDDLE is the program heddle, with heddle-serve next to it. In a round one key sends the burst, all at once, each request with a prompt of
its own and --tokens tokens of answer, greedy. When all wait or run, another key sends one request of as many. Its time to the first token
is the figure, and the burst's from its begin to its last answer. The batch has 8 places; a round with either setting follows the other.
"""
import argparse
import concurrent.futures
import datetime
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

KEYS = {"reports": "key-of-reports", "chat": "key-of-chat"}


class Server:
    def __init__(self, heddle, model, fairness, folder):
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
        self.log = pathlib.Path(folder) / "log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([heddle, "serve", "--model", model, "--port", "0", "--device", "cpu", "--max-batch", "8", "--api-key-file",
                                             keys, "--fairness", fairness], stdout=log, stderr=log)
        while not (found := re.search(r"listening on http://\S+:(\d+)", self.log.read_text())):
            if self.process.poll() is not None:
                raise SystemExit(self.log.read_text())
            time.sleep(0.05)
        self.port = int(found[1])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def waiting(self):
        connection = self.connect()
        connection.request("GET", "/metrics")
        return float(re.search(r"^vllm:num_requests_waiting\S* (\S+)$", connection.getresponse().read().decode(), re.MULTILINE)[1])

    def ask(self, holder, prompt, tokens):
        """Seconds to the first token, and to the end."""
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True})
        connection, begin = self.connect(), time.monotonic()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS[holder]}"})
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(response.read().decode())
        response.readline()
        first = time.monotonic()
        response.read()
        return first - begin, time.monotonic() - begin


def round_of(server, burst, tokens):
    with concurrent.futures.ThreadPoolExecutor(burst + 1) as pool:
        begin = time.monotonic()
        jobs = [pool.submit(server.ask, "reports", f"{i} looms and {time.monotonic_ns()} threads", tokens) for i in range(burst)]
        while server.waiting() < burst - 16:
            time.sleep(0.01)
        late = server.ask("chat", f"A loom of {time.monotonic_ns()} threads", tokens)
        for job in jobs:
            job.result()
        return late[0], time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heddle", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("--burst", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    waits, bursts = {"off": [], "key": []}, {"off": [], "key": []}
    for _ in range(options.rounds):
        for fairness in waits:
            with tempfile.TemporaryDirectory() as folder:
                server = Server(options.heddle.resolve(), options.model, fairness, folder)
                try:
                    server.ask("chat", "warm", 2)
                    wait, burst = round_of(server, options.burst, options.tokens)
                finally:
                    server.process.terminate()
                    server.process.wait()
            waits[fairness].append(round(wait, 3))
            bursts[fairness].append(round(burst, 2))
            print(f"--fairness {fairness}: first token after {wait:.3f} s, the burst took {burst:.1f} s", flush=True)
    records = [{"op": "late request, first token", "fairness": name, "burst": options.burst, "tokens": options.tokens,
                "seconds": statistics.median(waits[name]), "samples": waits[name], "burst_samples": bursts[name]} for name in waits]
    if options.json:
        facts = {"what": "bench/server_shares.py: seconds to the first token of one tenant's request while another one has a burst in the line; batch of 8, "
                         f"{pathlib.Path(options.model).name}, two threads of a server CPU that other programs share",
                 "commit": options.commit, "date": datetime.date.today().isoformat(), "records": records}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
