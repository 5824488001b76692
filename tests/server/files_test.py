"""Files of `heddle serve` and `heddle generate` that change, lead elsewhere or cannot be replaced: adapters copied over while they are asked
for, links out of --lora-root, adapters of the Hugging Face cache, --stats into devices, signals while a model is loaded, key files."""
import collections
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
import unittest

from serve_case import CANARY, HEDDLE, Case, Server, main
from tiny_model import write_all

SECONDS = float(os.environ.get("HEDDLE_TEST_SECONDS", "3"))  # of copies


def generate(folder, *options, **more):
    return subprocess.run([HEDDLE, "generate", "--model", folder / "model", "--threads", "1", "--quiet", "--json", "--raw", "--max-tokens",
                           "4", *map(str, options), "ab"], capture_output=True, text=True, timeout=60, **more)


def hub_folder(hub, source):
    """A cache of the hub that has the adapter at `source` as someone/lora, as `hf download` writes it; the folder of its snapshot."""
    repository = hub / "models--someone--lora"
    snapshot = repository / "snapshots/abc"
    for folder in (snapshot, repository / "refs", repository / "blobs"):
        folder.mkdir(parents=True)
    (repository / "refs/main").write_text("abc")
    for i, name in enumerate(("adapter_config.json", "adapter_model.safetensors")):
        shutil.copy(source / name, repository / f"blobs/{i}")
        (snapshot / name).symlink_to(f"../../blobs/{i}")
    return snapshot


class Changes(Case):
    num_adapters = 3

    def test_an_adapter_that_is_copied_over_fails_alone(self):
        """As an operator brings a new version: cp cuts the file first. Answers are those of a version or errors, and the server stays."""
        adapters = self.server.folder / "adapters"
        want = {self.server.complete(name) for name in ("a0", "a1")}
        file, versions = adapters / "a0/adapter_model.safetensors", [adapters / "a1/adapter_model.safetensors", adapters / "first"]
        shutil.copy(file, versions[1])
        ends, seen = threading.Event(), collections.Counter()

        def ask():
            body = {"model": "a0", "prompt": "ab", "max_tokens": 16, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
            while not ends.is_set():
                status, answer = self.server.post("/v1/completions", body)
                is_one = status == 200 and tuple(answer["choices"][0]["token_ids"]) in want
                seen["a version" if is_one else status] += 1
        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        end, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            subprocess.run(["cp", versions[number % 2], file], check=True)
            number += 1
            time.sleep(0.25 if number % 20 == 0 else 0.005)  # now and then it is at rest
        ends.set()
        for client in clients:
            client.join()
        self.assert_alive()
        self.assertEqual(seen[200], 0, "an answer of neither version")
        self.assertTrue(set(seen) <= {"a version", 400, 404, 200}, seen)
        shutil.copy(versions[1], file)
        time.sleep(0.2)
        self.assertIn(self.server.complete("a0"), want)
        self.assertEqual(self.server.complete("a2"), self.server.complete("a2"))

    def test_links_out_of_the_root_are_not_read(self):
        adapters = self.server.folder / "adapters"
        for name in ("chat_template.jinja", "additional_chat_templates/default.jinja", "tokenizer_config.json"):
            evil = adapters / ("evil-" + name.partition(".")[0].replace("/", "-"))
            shutil.copytree(adapters / "a1", evil)
            (evil / name).parent.mkdir(exist_ok=True)
            (evil / name).symlink_to(self.server.folder / "secret.txt")
            for path, body in (("/tokenize", {"messages": [{"role": "user", "content": "x"}], "return_token_strs": True}),
                               ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})):
                status, _, text = self.server.request("POST", path, {"model": evil.name, **body})
                self.assertIn(status, (400, 404), text)
                self.assertNotIn(CANARY, text)
            status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "evil", "lora_path": evil.name})
            self.assertEqual(status, 400, text)
            self.assertNotIn(CANARY, text)
        self.assert_alive()

    def test_a_link_into_a_cache_of_the_hub_is_followed(self):
        adapters = self.server.folder / "adapters"
        snapshot = hub_folder(self.server.folder / "hub", adapters / "a2")
        (adapters / "mine").symlink_to(snapshot)
        self.assertEqual(self.server.complete("mine"), self.server.complete("a2"))
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "loaded", "lora_path": "mine"})
        self.assertEqual(status, 200, text)
        self.assertEqual(self.server.complete("loaded"), self.server.complete("a2"))
        for name in ("hub", "snapshot"):  # no cache of the hub, and none of its snapshots
            target = {"hub": self.server.folder / "hub", "snapshot": snapshot.parent.parent}[name]
            (adapters / f"link-{name}").symlink_to(target)
            self.assertEqual(self.server.admin("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": f"link-{name}"})[0], 400)


class Files(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        write_all(self.folder, 1)

    def test_adapters_by_their_name_on_the_hub(self):
        hub = self.folder / "hub"
        env = {**os.environ, "HF_HUB_CACHE": str(hub)}
        refused = generate(self.folder, "--adapter", "x=someone/lora", env=env)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("hf download someone/lora", refused.stderr)
        hub_folder(hub, self.folder / "adapters/a0")
        by_path = generate(self.folder, "--adapter", f"x={self.folder}/adapters/a0")
        by_name = generate(self.folder, "--adapter", "x=someone/lora", env=env)
        self.assertEqual(by_name.returncode, 0, by_name.stderr)
        self.assertEqual(by_name.stdout, by_path.stdout)

    def test_statistics_replace_no_device(self):
        null, link, target = (self.folder / name for name in ("null", "link", "target"))
        link.symlink_to(target)
        null.symlink_to("/dev/null")
        if os.geteuid() == 0:
            try:
                null.unlink()
                os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            except OSError:
                null.symlink_to("/dev/null")
        for path in (null, link):
            done = generate(self.folder, "--stats", path)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(null.is_char_device() and link.is_symlink())
        self.assertEqual(json.loads(target.read_text())["rows"], 1)
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder, self.folder / "pipe", "/dev/null"):
            refused = generate(self.folder, "--resume", path)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn("--resume", refused.stderr)

    def test_names_in_an_index_reach_no_terminal(self):
        model = self.folder / "model"
        for name in ("\x1b[31mRED\x07", "a" * 5000):
            (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": name, name: "x"}}))
            done = subprocess.run([HEDDLE, "inspect", model], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertNotIn("\x1b", done.stderr)
            self.assertLess(len(done.stderr), 800)

    def test_hangups_while_a_model_is_loaded(self):
        weights = self.folder / "model/model.safetensors"
        later = time.time() + 3600  # a clock that runs ahead: files are watched for 100 ms before they are read
        os.utime(weights, (later, later))
        with open(self.folder / "log", "w") as log:
            server = subprocess.Popen([HEDDLE, "serve", "--model", self.folder / "model", "--port", "0", "--threads", "1"], stderr=log)
        try:
            end = time.monotonic() + 30
            while not os.readlink(f"/proc/{server.pid}/exe").endswith("heddle-serve"):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.001)
            for _ in range(5):
                server.send_signal(signal.SIGHUP)
                time.sleep(0.01)
            while "listening on" not in (self.folder / "log").read_text():
                self.assertIsNone(server.poll(), (self.folder / "log").read_text())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
            server.send_signal(signal.SIGHUP)
            time.sleep(0.1)
            self.assertIsNone(server.poll())
        finally:
            server.terminate()
        self.assertEqual(server.wait(20), 0)

    def test_open_keys_and_open_addresses_are_warned_of(self):
        key = self.folder / "key"
        key.write_text("k\n")
        for mode, host, warnings in ((0o600, "127.0.0.1", 0), (0o644, "127.0.0.1", 1), (0o660, "127.0.0.1", 1)):
            key.chmod(mode)
            server = Server(self.folder, "--api-key-file", key, "--host", host, has_admin=False)
            self.assertEqual(server.stop(), 0)
            text = server.log.read_text()
            self.assertEqual(text.count(f"chmod 600 {key}"), warnings, text)
        server = Server(self.folder, has_admin=False)
        server.stop()
        self.assertNotIn("--api-key-file", server.log.read_text())


if __name__ == "__main__":
    main()
