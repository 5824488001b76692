#!/usr/bin/env python3
"""tests/conformance/archives_test.py: tools/fetch_archives.py takes from an archive what its list names, and nothing from an evil one."""

import hashlib
import http.server
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import fetch_archives  # noqa: E402


def entry_of(file, *paths):
    return {"package": "p", "version": "1", "file": file, "members": [{"path": path, "is": "a text"} for path in paths]}


def tar_of(*members):
    """Of (name, content) and of TarInfo."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, content = member
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def tar_special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_of(*members):
    """Of (name, content) and of (name, content, mode)."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, *mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode[0] << 16 if mode else 0
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return data.getvalue()


class Members(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, file, content, *paths):
        (self.folder / file).write_bytes(content)
        return fetch_archives.read_members(self.folder / file, entry_of(file, *paths))

    def expect_refused(self, what, file, content, *paths):
        with self.assertRaises(fetch_archives.Refused) as caught:
            self.read(file, content, *paths)
        self.assertIn(what, str(caught.exception))
        self.assertIn(file, str(caught.exception))

    def test_reads_what_is_listed_and_nothing_else(self):
        members = [("p/a.txt", b"1"), ("p/b.txt", b"22"), ("p/b.py", b"3"), ("p/q/c.txt", b"4"), ("a.txt", b"5")]
        for file, content in ("p.tar.gz", tar_of(*members)), ("p.whl", zip_of(*members)):
            self.assertEqual(self.read(file, content, "p/*.txt"), {"p/a.txt": b"1", "p/b.txt": b"22"})
            self.assertEqual(self.read(file, content, "p/q/c.txt", "a.txt"), {"p/q/c.txt": b"4", "a.txt": b"5"})
            self.expect_refused("has no member 'p/*.md'", file, content, "p/*.txt", "p/*.md")
            self.expect_refused("has no member '*/a.txt'", file, content, "*/a.txt")

    def test_refuses_paths_that_leave_the_folder(self):
        for name in "../a", "p/../../a", "/etc/a", "p/..", "C:/a", "p\\..\\a":
            self.expect_refused("leads elsewhere", "p.tar.gz", tar_of(("p/a", b"1"), (name, b"2")), "p/a")
            self.expect_refused("leads elsewhere", "p.whl", zip_of(("p/a", b"1"), (name, b"2")), "p/a")

    def test_refuses_what_is_no_plain_file(self):
        for kind in tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE:
            content = tar_of(("p/b", b"1"), tar_special("p/a", kind, "b"))
            self.expect_refused("expected a plain file", "p.tar.gz", content, "p/a", "p/b")
            self.assertEqual(self.read("p.tar.gz", content, "p/b"), {"p/b": b"1"})  # of no use, and not read
        self.expect_refused("expected a plain file", "p.whl", zip_of(("p/a", b"/etc/passwd", 0o120777)), "p/a")
        self.expect_refused("expected a plain file", "p.whl", zip_of(("p/a/", b"")), "p/a")

    def test_refuses_members_that_are_too_large_or_too_many(self):
        limits = {name: getattr(fetch_archives, name) for name in ("MAX_MEMBER_BYTES", "MAX_MEMBERS_BYTES", "MAX_MEMBERS")}
        self.addCleanup(lambda: [setattr(fetch_archives, *limit) for limit in limits.items()])
        fetch_archives.MAX_MEMBER_BYTES, fetch_archives.MAX_MEMBERS_BYTES, fetch_archives.MAX_MEMBERS = 1000, 2500, 6
        for file, make in ("p.tar.gz", tar_of), ("p.whl", zip_of):
            self.assertEqual(len(self.read(file, make(("a", bytes(1000)), ("b", bytes(5000))), "a")), 1)
            self.expect_refused("'a' has 1001 bytes, at most 1000", file, make(("a", bytes(1001))), "a")
            self.expect_refused("more than 2500 bytes", file, make(*((name, bytes(900)) for name in "abc")), "*")
            self.expect_refused("more than 6 members", file, make(*((f"{i}", b"") for i in range(7))), "1")

    def test_refuses_a_member_that_is_there_twice(self):
        self.expect_refused("'a' twice", "p.tar.gz", tar_of(("a", b"1"), ("a", b"2")), "a")

    def test_refuses_a_size_that_is_not_the_contents(self):
        content = bytearray(zip_of(("a", bytes(5000))))
        at = content.rindex(b"PK\x01\x02") + 24  # the size in the directory
        self.assertEqual(content[at:at + 4], (5000).to_bytes(4, "little"))
        content[at:at + 4] = (10).to_bytes(4, "little")
        self.expect_refused("a", "p.whl", bytes(content), "a")

    def test_refuses_what_is_no_archive(self):
        for file in "p.tar.gz", "p.whl":
            for content in b"", b"hello", os.urandom(2000):
                self.expect_refused("no archive", file, content, "a")
        whole = tar_of(("a", os.urandom(5000)))
        self.expect_refused("no archive", "p.tar.gz", whole[:3000], "a")


class Index(http.server.BaseHTTPRequestHandler):
    """Serves what `pages` of the server holds; counts what it was asked for."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        kind, content = self.server.pages.get(self.path, ("text/html", None))
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_):
        pass


class Fetch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
        self.server.pages, self.server.asked = {}, []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.content = tar_of(("p/a.txt", b"text"))
        self.entry = entry_of("p-1.tar.gz", "p/*.txt") | {
            "bytes": len(self.content), "sha256": hashlib.sha256(self.content).hexdigest()}
        self.serve(self.content)

    def serve(self, content):
        page = json.dumps({"files": [{"filename": "p-1.tar.gz", "url": "../../files/p-1.tar.gz"}]}).encode()
        self.server.pages["/simple/p/"] = "application/vnd.pypi.simple.v1+json", page
        self.server.pages["/files/p-1.tar.gz"] = "application/gzip", content

    def run_tool(self, login="", **environment):
        """(exit status, stdout, stderr) of fetching p, in a process of its own."""
        listed = self.folder / "archives.json"
        listed.write_text(json.dumps({"archives": [self.entry]}))
        code = (f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); sys.argv = ['fetch', '--list', {str(listed)!r}, 'p']; "
                "import fetch_archives as f; f.main()")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("HEDDLE_OFFLINE", "PIP_"))}
        got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={
            **clean, "XDG_CACHE_HOME": str(self.folder / "cache"), "no_proxy": "127.0.0.1",
            "PIP_INDEX_URL": f"http://{login}127.0.0.1:{self.server.server_port}/simple", **environment})
        return got.returncode, got.stdout.strip(), got.stderr

    def expect_stored(self, **environment):
        status, folder, error = self.run_tool(**environment)
        self.assertEqual(status, 0, error)
        self.assertEqual((pathlib.Path(folder) / "p/a.txt").read_bytes(), b"text")
        return pathlib.Path(folder)

    def expect_nothing_stored(self, what, **environment):
        status, folder, error = self.run_tool(**environment)
        self.assertEqual((status, folder), (1, ""))
        self.assertIn(what, error)
        self.assertNotIn("Traceback", error)
        self.assertEqual(list(self.folder.rglob("a.txt")), [])

    def test_fetches_once_and_again_when_the_cache_is_damaged(self):
        folder = self.expect_stored()
        asked = len(self.server.asked)
        self.expect_stored()
        self.assertEqual(len(self.server.asked), asked)
        (folder / "p/a.txt").write_bytes(b"tex1")
        self.expect_stored()
        self.assertGreater(len(self.server.asked), asked)

    def test_reads_an_index_without_json(self):
        page = b'<html><a href="/files/p-1.tar.gz#sha256=0">p-1.tar.gz</a></html>'
        self.server.pages["/simple/p/"] = "text/html", page
        self.expect_stored()

    def test_logs_in_where_the_address_says_so(self):
        self.expect_stored(login="me:secret@")
        self.assertEqual(self.server.asked[0], ("/simple/p/", "Basic bWU6c2VjcmV0"))

    def test_stores_nothing_that_differs_from_the_list(self):
        other = tar_of(("p/a.txt", b"tex2"))
        self.serve(self.content[:-1] + bytes([self.content[-1] ^ 1]))
        self.expect_nothing_stored("has the SHA-256")
        self.serve(self.content + b"x")
        self.expect_nothing_stored("has more than the")
        self.serve(self.content[:-1])
        self.expect_nothing_stored("has less than the")
        self.serve(other)
        self.expect_nothing_stored("p-1.tar.gz")

    def test_says_what_an_index_lacks(self):
        self.server.pages.clear()
        self.expect_nothing_stored("cannot download p-1.tar.gz of p 1")
        self.server.pages["/simple/p/"] = "application/vnd.pypi.simple.v1+json", b'{"files": []}'
        self.expect_nothing_stored("the index has no p-1.tar.gz of p")
        for page in b"", b"[]", b'{"files": [{}]}':
            self.server.pages["/simple/p/"] = "application/json", page
            self.expect_nothing_stored("no page of p that can be read")
        page = b'{"files": [{"filename": "p-1.tar.gz", "url": "file:///etc/passwd"}]}'
        self.server.pages["/simple/p/"] = "application/vnd.pypi.simple.v1+json", page
        self.expect_nothing_stored("begins with 'file', expected http or https")

    def test_fetches_nothing_offline(self):
        status, folder, error = self.run_tool(HEDDLE_OFFLINE="1")
        self.assertEqual((status, folder), (0, ""))
        self.assertIn("p is not in the cache; without it this is not covered: a text", error)
        self.assertEqual(self.server.asked, [])
        self.expect_stored()
        self.expect_stored(HEDDLE_OFFLINE="1")


class List(unittest.TestCase):
    def test_is_complete(self):
        entries = fetch_archives.read_list()
        self.assertGreaterEqual(len(entries), 5)
        for package, entry in entries.items():
            self.assertRegex(entry["sha256"], "^[0-9a-f]{64}$", package)
            self.assertRegex(entry["file"], r"(\.tar\.gz|\.whl)$", package)
            self.assertIn(entry["version"], entry["file"], package)
            self.assertTrue(entry["members"] and all(member["path"] and member["is"] for member in entry["members"]), package)


if __name__ == "__main__":
    unittest.main()
