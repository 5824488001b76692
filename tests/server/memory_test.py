"""No limit on memory ends the server: requests get 503, and the next one its answer.

  python3 tests/server/memory_test.py HEDDLE [TEST...]
"""
import http.client
import json
import pathlib
import re
import resource
import unittest

from serve_case import Case, main

EXTRA_MB = (40, 80, 150, 300, 800)  # beyond what the idle server takes


class Memory(Case):
    def address_space(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmSize:\s*(\d+) kB", status)[1]) * 1024

    def limit(self, size):
        resource.prlimit(self.server.process.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

    def status_of(self, path, body):
        """0: the connection was closed."""
        try:
            return self.server.request("POST", path, body)[0]
        except (http.client.HTTPException, ConnectionError):
            return 0

    @unittest.skipIf(not hasattr(resource, "prlimit"), "the system has no prlimit")
    def test_a_limit_of_memory_refuses_requests_and_ends_nothing(self):
        many = {"prompt": "ab", "max_tokens": 1}
        bodies = (
            ("/v1/completions", json.dumps({**many, "metadata": [{}] * 300_000})),
            ("/v1/completions", json.dumps({**many, "metadata": [[[]]] * 500_000})),
            ("/v1/completions", json.dumps({**many, "metadata": {str(i): "a text" for i in range(100_000)}})),
            ("/v1/completions", json.dumps({**many, "prompt": "x" * 3_000_000})),
            ("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": [{"type": "text", "text": "ab"}]}] * 1000,
                                                 "max_tokens": 1})),
            ("/tokenize", json.dumps({"prompt": "ab" * 1_000_000, "return_token_strs": True})),
        )
        self.assertEqual(self.server.complete("base"), first := self.server.complete("base"))
        idle = self.address_space()
        seen = set()
        for extra in EXTRA_MB:
            for path, body in bodies:
                self.limit(idle + (extra << 20))
                with self.subTest(extra_mb=extra, path=path, body=body[:80]):
                    status = self.status_of(path, body.encode())
                    seen.add(status)
                    self.assertIn(status, (0, 200, 400, 503))
                    self.assertIsNone(self.server.process.poll(), self.server.log.read_text()[-2000:])
                self.limit(resource.RLIM_INFINITY)
                self.assert_alive()
        self.assertIn(503, seen)
        self.assertEqual(self.server.complete("base"), first)


if __name__ == "__main__":
    main()
