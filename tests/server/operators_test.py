"""What operators of `heddle serve` rely on: mistakes are noticed before the model is read."""
import pathlib
import socket
import subprocess
import tempfile
import unittest

from serve_case import HEDDLE, main


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


if __name__ == "__main__":
    main()
