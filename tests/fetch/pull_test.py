"""`heddle pull` from a hub of this machine: what it leaves in the cache, and what it makes of a hub, files and links that are not as they should be.

  python3 tests/fetch/pull_test.py HEDDLE
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from local_hub import LocalHub, git_blob
from tiny_model import write_all

HEDDLE = pathlib.Path(sys.argv[1]).resolve()
TOKEN = "hf_a-token-of-the-tests"


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hub = cls.enterClassContext(LocalHub())
        cls.models = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        write_all(cls.models, 1)

    def setUp(self):
        self.cache = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.hub.heal()
        self.hub.repositories.clear()
        self.commit = self.hub.put_folder("acme/sql", self.models / "adapters" / "a0")

    def run_heddle(self, *arguments, **environment):
        home = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        home |= {"HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache), "HOME": str(self.cache / "home"), **environment}
        done = subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True, cwd="/", env=home)
        self.assertNotIn(TOKEN, done.stdout + done.stderr)
        self.assertNotIn("signature", done.stdout + done.stderr)
        return done

    def pull(self, *arguments, **environment):
        """The path that it prints."""
        done = self.run_heddle("pull", *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return pathlib.Path(done.stdout.strip())

    def refused(self, *arguments, code, says, **environment):
        done = self.run_heddle("pull", *arguments, **environment)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(list(self.cache.glob("models--*/refs/*")), [])

    def assert_same(self, folder, files):
        self.assertEqual({path.name: path.read_bytes() for path in folder.iterdir()}, files)


class Pull(Case):
    def test_an_adapter_lies_in_the_cache_as_the_hubs_own_client_writes_it(self):
        folder = self.pull("--adapter", "acme/sql")
        repository = self.cache / "models--acme--sql"
        self.assertEqual(folder, repository / "snapshots" / self.commit)
        self.assertEqual((repository / "refs" / "main").read_text(), self.commit)
        self.assert_same(folder, self.hub.repositories["acme/sql"].files)
        config = folder / "adapter_config.json"
        self.assertEqual(os.readlink(config), f"../../blobs/{git_blob(config.read_bytes())}")
        before = len(self.hub.asked(method="GET"))
        self.assertEqual(self.pull("--adapter", "acme/sql"), folder)
        self.assertEqual(len(self.hub.asked(method="GET")), before + 1)  # the listing

    def test_the_hubs_own_client_finds_it_and_gets_the_same(self):
        import huggingface_hub
        ours = self.pull("--adapter", "acme/sql")
        self.hub.heal()
        theirs = huggingface_hub.snapshot_download("acme/sql", endpoint=self.hub.url, cache_dir=self.cache, token=False)
        self.assertEqual(pathlib.Path(theirs), ours)
        self.assertEqual(self.hub.asked(kind="large", method="GET"), [])
        with tempfile.TemporaryDirectory() as other:
            theirs = pathlib.Path(huggingface_hub.snapshot_download("acme/sql", endpoint=self.hub.url, cache_dir=other, token=False))
            self.assert_same(theirs, {path.name: path.read_bytes() for path in ours.iterdir()})
            links = [{path.name: os.readlink(path) for path in folder.iterdir()} for folder in (ours, theirs)]
            self.assertEqual(*links)

    def test_a_model_and_an_adapter_answer_by_their_names(self):
        self.hub.put_folder("acme/tiny", self.models / "model")
        self.pull("acme/tiny")
        self.pull("--adapter", "acme/sql")
        answers = []
        for model, adapter in (("acme/tiny", "acme/sql"), (self.models / "model", self.models / "adapters" / "a0")):
            done = self.run_heddle("generate", "-m", model, "--adapter", f"sql={adapter}", "--raw", "--max-tokens", 8, "--device", "cpu", "ab")
            self.assertEqual(done.returncode, 0, done.stderr)
            answers.append(done.stdout)
        self.assertEqual(*answers)

    def test_what_heddle_does_not_read_stays_where_it_is(self):
        files = self.hub.repositories["acme/sql"].files
        self.hub.put("acme/full", {**files, "modeling.py": b"raise SystemExit", "training_args.bin": b"\x80", "README.md": b"read me",
                                   "additional_chat_templates/rag.jinja": b"{{ messages }}", "../../escaped": b"out", "/tmp/escaped": b"out"})
        folder = self.pull("--adapter", "acme/full")
        self.assertEqual({path.name for path in folder.iterdir()}, {*files, "additional_chat_templates"})
        self.assertEqual((folder / "additional_chat_templates" / "rag.jinja").read_bytes(), b"{{ messages }}")
        self.assertEqual({path.name for path in self.cache.iterdir()}, {"models--acme--full"})

    def test_one_gguf_file(self):
        self.hub.put("acme/packed", {"tiny-Q8_0.gguf": b"GGUF of eight bits", "tiny-Q4_0.gguf": b"GGUF of four bits"})
        path = self.pull("acme/packed", "--file", "tiny-Q4_0.gguf")
        self.assertEqual((path.name, path.read_bytes()), ("tiny-Q4_0.gguf", b"GGUF of four bits"))

    def test_a_file_without_bytes_and_one_of_many_pieces(self):
        files = self.hub.repositories["acme/sql"].files
        self.hub.put("acme/odd", {**files, "merges.txt": b"", "adapter_model.safetensors": os.urandom(1_500_000)})
        self.assert_same(self.pull("--adapter", "acme/odd"), self.hub.repositories["acme/odd"].files)

    def test_revisions(self):
        self.hub.branches.add("refs/pr/1")
        folder = self.pull("--adapter", "acme/sql", "--revision", "refs/pr/1")
        self.assertEqual((self.cache / "models--acme--sql/refs/refs/pr/1").read_text(), folder.name)
        self.assertEqual(self.pull("--adapter", "acme/sql", "--revision", self.commit), folder)

    def test_a_repository_that_was_renamed(self):
        files = self.hub.repositories["acme/sql"].files
        self.hub.put("acme/old", files, moved_to="acme/sql")
        self.assert_same(self.pull("--adapter", "acme/old"), files)


class Tokens(Case):
    def setUp(self):
        super().setUp()
        self.hub.put_folder("acme/private", self.models / "adapters" / "a0", token=TOKEN)

    def authorizations(self, kind):
        return {headers.get("Authorization") for *_, headers in self.hub.asked(kind=kind)}

    def test_opens_what_is_private_and_goes_to_the_hub_alone(self):
        self.pull("--adapter", "acme/private", HF_TOKEN=TOKEN)
        self.assertEqual(self.authorizations("hub"), {f"Bearer {TOKEN}"})
        self.assertEqual(self.authorizations("large"), {None})

    def test_does_not_follow_a_redirect_of_a_small_file(self):
        self.hub.faults.redirect["adapter_config.json"] = f"{self.hub.other_url}/stolen/it/resolve/main/adapter_config.json"
        self.refused("--adapter", "acme/private", code=2, says="acme/private: adapter_config.json", HF_TOKEN=TOKEN)
        self.assertEqual(self.authorizations("other"), {None})

    def test_is_found_where_the_hubs_client_stores_it(self):
        stored = self.cache / "token"
        stored.write_text(TOKEN + "\n")
        self.pull("--adapter", "acme/private", HF_TOKEN_PATH=str(stored))

    def test_without_it_the_repository_is_none(self):
        self.refused("--adapter", "acme/private", code=2, says="that is public, or that the token opens (401, Invalid username or password.)")
        self.refused("--adapter", "acme/private", code=2, says="(401", HF_TOKEN="hf_another")
        self.refused("--adapter", "acme/private", code=2, says="HF_TOKEN is no token", HF_TOKEN="hf a\r\nX-Evil: 1")


class Refusals(Case):
    def test_names_that_are_none(self):
        for name in ("sql", "../sql", "acme/..", "acme/../../etc", "/etc/passwd", "acme/sql/more", "acme/sql?x", "acme/sql#x", "a b/c", "http://a/b"):
            self.refused("--adapter", name, code=2, says="is no name on a hub")
        self.assertEqual(self.hub.asked(), [])
        self.refused("--adapter", "acme/sql", "--revision", "../x", code=2, says="is no branch, tag or commit")
        self.refused("--adapter", "acme/none", code=2, says="acme/none")
        self.refused("--adapter", "acme/sql", "--revision", "v2", code=2, says="acme/sql at v2: http://127.0.0.1:")

    def test_pickles_and_the_lack_of_weights(self):
        config = self.hub.repositories["acme/sql"].files["adapter_config.json"]
        self.hub.put("acme/pickle", {"adapter_config.json": config, "adapter_model.bin": b"\x80\x04"})
        self.refused("--adapter", "acme/pickle", code=2, says="only adapter_model.bin, a pickle")
        self.refused("acme/sql", code=2, says="has no model.safetensors")
        self.hub.put("acme/packed", {"b-Q8_0.gguf": b"GGUF"})
        self.refused("acme/packed", code=2, says="choose one of its GGUF files with --file: b-Q8_0.gguf")
        self.refused("acme/packed", "--file", "../b-Q8_0.gguf", code=2, says="has no GGUF file '../b-Q8_0.gguf'")

    def test_contents_that_are_not_the_announced_ones(self):
        for faults, says in (({"other": {"adapter_model.safetensors"}}, "its hash is"), ({"other": {"adapter_config.json"}}, "its hash is"),
                             ({"more": {"adapter_model.safetensors"}}, "bytes that were announced"),
                             ({"more": {"adapter_config.json"}}, "bytes that were announced")):
            for name, value in faults.items():
                setattr(self.hub.faults, name, value)
            self.refused("--adapter", "acme/sql", code=1, says=says)
            self.hub.heal()
            shutil.rmtree(self.cache / "models--acme--sql")  # of the other file, too
        self.hub.headers = {"X-Linked-Size": "17"}
        self.refused("--adapter", "acme/sql", code=1, says="has another size or commit")
        self.hub.headers = {"X-Repo-Commit": "0" * 40}
        self.refused("--adapter", "acme/sql", code=1, says="has another size or commit")
        self.hub.headers = {}
        self.pull("--adapter", "acme/sql")  # nothing wrong was left

    def test_listings_that_are_none(self):
        for listing, says in (({"sha": "../../../etc"}, "sha is no commit"), ({"siblings": 7}, "siblings is missing"),
                              ({"siblings": [{"rfilename": "adapter_config.json"}, 7, {"rfilename": "adapter_model.safetensors"}]}, "is said to have -1 bytes"),
                              ({"siblings": [{"rfilename": "adapter_config.json", "size": 2}]}, "no hash of adapter_config.json")):
            self.hub.listing = listing
            self.refused("--adapter", "acme/sql", code=1, says=says)

    def test_redirects_to_where_nothing_is_fetched_from(self):
        for place, says in (("file:///etc/passwd", "is redirected to file:///etc/passwd, which is not fetched"),
                            ("ftp://127.0.0.1/x", "which is not fetched"), ("gopher://127.0.0.1/x", "which is not fetched")):
            self.hub.faults.redirect["adapter_config.json"] = place
            self.refused("--adapter", "acme/sql", code=2, says=says)
        self.hub.faults.redirect["adapter_config.json"] = "adapter_config.json"
        self.refused("--adapter", "acme/sql", code=1, says="more than 5 redirects")

    def test_environments_that_are_none(self):
        self.refused("--adapter", "acme/sql", code=2, says="HF_ENDPOINT is 'file:///etc'", HF_ENDPOINT="file:///etc")
        self.refused("--adapter", "acme/sql", code=2, says="HF_HUB_OFFLINE is set", HF_HUB_OFFLINE="1")
        self.refused("--adapter", "acme/sql", code=1, says="127.0.0.1", HF_ENDPOINT="http://127.0.0.1:1")

    def test_links_in_the_cache(self):
        victim = self.cache / "victim"
        victim.write_text("kept")
        blobs = self.cache / "models--acme--sql" / "blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{git_blob((self.models / 'adapters/a0/adapter_config.json').read_bytes())}.incomplete").symlink_to(victim)
        self.refused("--adapter", "acme/sql", code=2, says="is a link")
        blobs.rename(self.cache / "elsewhere")
        blobs.symlink_to(self.cache / "elsewhere")
        self.refused("--adapter", "acme/sql", code=2, says="is a link or no folder")
        self.assertEqual(victim.read_text(), "kept")


class Interruptions(Case):
    def setUp(self):
        super().setUp()
        self.weights = os.urandom(1_000_000)
        self.files = {**self.hub.repositories["acme/sql"].files, "adapter_model.safetensors": self.weights}
        self.hub.put("acme/sql", self.files)

    def ranges(self):
        return [headers.get("Range") for *_, headers in self.hub.asked(kind="large", method="GET")]

    def test_a_connection_that_is_cut_goes_on_where_it_was(self):
        self.hub.faults.cut["adapter_model.safetensors"] = 400_000
        self.assert_same(self.pull("--adapter", "acme/sql"), self.files)
        self.assertEqual(self.ranges(), [None, "bytes=400000-", "bytes=800000-"])

    def test_a_server_that_knows_no_ranges_begins_anew(self):
        self.hub.faults.no_range = True
        blobs = self.cache / "models--acme--sql" / "blobs"
        blobs.mkdir(parents=True)
        digest = hashlib.sha256(self.weights).hexdigest()
        (blobs / f"{digest}.incomplete").write_bytes(self.weights[:300_000])
        self.assert_same(self.pull("--adapter", "acme/sql"), self.files)
        self.assertEqual(self.ranges(), ["bytes=300000-"])

    def test_a_program_that_was_killed_is_followed_by_one_that_goes_on(self):
        self.hub.faults.seconds = 0.1
        process = subprocess.Popen([HEDDLE, "pull", "--adapter", "acme/sql"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache)})
        self.addCleanup(process.wait)
        part = lambda: next(self.cache.glob("models--acme--sql/blobs/*.incomplete"), None)
        while part() is None or part().stat().st_size < 200_000:
            self.assertIsNone(process.poll())
        process.kill()
        process.wait()
        came = part().stat().st_size
        self.hub.heal()
        self.assert_same(self.pull("--adapter", "acme/sql"), self.files)
        self.assertEqual(self.ranges(), [f"bytes={came}-"])

    def test_a_hub_that_is_busy_for_a_moment(self):
        self.hub.faults.busy = 2
        self.assert_same(self.pull("--adapter", "acme/sql"), self.files)
        self.hub.faults.status = 500
        self.refused_later("acme/sql")

    def refused_later(self, name):
        done = self.run_heddle("pull", "--adapter", name)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("does not give it (500)", done.stderr)

    def test_two_programs_at_once_fetch_it_once(self):
        self.hub.faults.seconds = 0.02
        environment = {**os.environ, "HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache)}
        programs = [subprocess.Popen([HEDDLE, "pull", "-q", "--adapter", "acme/sql"], stdout=subprocess.PIPE, text=True, env=environment)
                    for _ in range(4)]
        paths = {program.communicate()[0].strip() for program in programs}
        self.assertEqual([program.returncode for program in programs], [0] * 4)
        self.assertEqual(len(paths), 1)
        self.assert_same(pathlib.Path(paths.pop()), self.files)
        self.assertEqual(self.ranges(), [None])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
