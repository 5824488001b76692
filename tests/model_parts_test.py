"""tests/model_parts.py on a small file: what is joined is what was packed, and nothing else passes."""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import model_parts


class ModelParts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.model = self.folder / "tiny.gguf"
        self.model.write_bytes(os.urandom(5000))
        self.sha256 = hashlib.sha256(self.model.read_bytes()).hexdigest()
        self.adapter = self.folder / "adapters/sql"
        self.adapter.mkdir(parents=True)
        for name in (*model_parts.ADAPTER_FILES, "notes.txt"):
            (self.adapter / name).write_bytes(os.urandom(300))
        self.parts = self.folder / "parts"

    def make(self, adapters=True):
        return model_parts.make_parts(self.parts, self.model, self.adapter.parent if adapters else None, 1000)

    def refused(self, *words, sha256=None):
        """What join_parts says holds all the words."""
        with self.assertRaises(SystemExit) as raised:
            model_parts.join_parts(self.parts, self.folder / "refused", sha256 or self.sha256)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_what_is_joined_is_what_was_packed(self):
        for adapters in (True, False):
            paths = self.make(adapters)
            self.assertGreater(len(paths), 5)
            self.assertTrue(all(path.stat().st_size <= 1000 for path in paths))
            joined = self.folder / f"joined {adapters}"
            self.assertEqual(model_parts.join_parts(self.parts, joined, self.sha256).read_bytes(), self.model.read_bytes())
            for name in model_parts.ADAPTER_FILES:
                copy = joined / "adapters/sql" / name
                self.assertEqual(copy.exists(), adapters)
                self.assertTrue(not adapters or copy.read_bytes() == (self.adapter / name).read_bytes())
            self.assertFalse((joined / "adapters/sql/notes.txt").exists())
            for path in paths:
                path.unlink()

    def test_a_part_that_is_missing_or_spoilt(self):
        paths = self.make()
        last = paths[-1].read_bytes()
        paths[-1].unlink()
        self.refused("missing or spoilt")
        paths[-1].write_bytes(last)
        third = paths[2].read_bytes()
        paths[2].unlink()
        self.refused("part.00", "part.01, part.03")
        paths[2].write_bytes(third[:500] + bytes([third[500] ^ 1]) + third[501:])
        self.refused("spoilt")
        paths[2].write_bytes(third)
        self.assertTrue(model_parts.join_parts(self.parts, self.folder / "joined", self.sha256).exists())

    def test_another_model(self):
        self.make()
        self.refused("has not the SHA-256 " + 64 * "0", sha256=64 * "0")

    def test_folders_that_do_not_fit(self):
        self.parts.mkdir()
        self.refused("found none")
        (self.parts / "other").write_text("")
        with self.assertRaises(SystemExit):
            self.make()

    def test_the_command_line(self):
        self.make()
        tool = pathlib.Path(model_parts.__file__)
        done = subprocess.run([sys.executable, tool, "join", self.parts, self.folder / "by command"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(model_parts.fetch_model_script().SHA256, done.stderr)  # it is not the demo's model


if __name__ == "__main__":
    unittest.main()
