"""A server that answers as the Hugging Face hub does, and fails as a test wants: listings with sizes and hashes, small files by themselves, large
ones by a redirect to another server, Range, etags, tokens.

  with LocalHub() as hub:
      hub.put("acme/sql", {"adapter_config.json": b"{}", ...})
      environment["HF_ENDPOINT"] = hub.url
"""
import dataclasses
import hashlib
import http.server
import json
import threading
import time
import urllib.parse


def git_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclasses.dataclass
class Repository:
    files: dict  # name: content
    commit: str
    token: str = ""  # without it the repository does not exist
    moved_to: str = ""


@dataclasses.dataclass
class Faults:
    """What goes wrong with files, by name."""
    cut: dict = dataclasses.field(default_factory=dict)  # bytes of each answer until the connection is closed
    more: set = dataclasses.field(default_factory=set)  # with bytes after the end
    other: set = dataclasses.field(default_factory=set)  # with a byte changed
    redirect: dict = dataclasses.field(default_factory=dict)  # where it is redirected to
    no_range: bool = False
    seconds: float = 0  # before each 64 KiB of a large file
    status: int = 0  # of every answer
    busy: int = 0  # how many answers are 503 first


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(has_body=False)

    def do_GET(self):
        self.answer(has_body=True)

    def answer(self, has_body):
        hub = self.server.hub
        with hub.lock:
            hub.requests.append((self.server.kind, self.command, self.path, dict(self.headers)))
            is_busy, hub.faults.busy = hub.faults.busy > 0, max(hub.faults.busy - 1, 0)
        if is_busy or hub.faults.status:
            return self.send(hub.faults.status or 503, {}, b"not now", has_body)
        path = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(part) for part in path.path.split("/")[1:]]
        if self.server.kind == "large":
            return self.send_file(hub.large[parts[0]], {}, has_body)
        if parts[:2] == ["api", "models"]:
            return self.send_listing("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main", has_body)
        return self.send_resolved("/".join(parts[:2]), parts[3], "/".join(parts[4:]), has_body)

    def find(self, name, revision):
        """The repository; none after an answer that says so."""
        repository = self.server.hub.repositories.get(name)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repository is None or (repository.token and repository.token != token):
            self.send(401, {"X-Error-Message": "Invalid username or password."}, b"", True)
        elif revision not in ("main", repository.commit, *self.server.hub.branches):
            self.send(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"}, b"", True)
        else:
            return repository
        return None

    def send_listing(self, name, revision, has_body):
        repository = self.find(name, revision)
        if repository is None:
            return
        siblings = []
        for file, content in repository.files.items():
            entry = {"rfilename": file, "size": len(content), "blobId": git_blob(content)}
            if self.server.hub.is_large(file):
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        listing = {"id": name, "sha": repository.commit, "private": False, "siblings": siblings, **self.server.hub.listing}
        self.send(200, {"Content-Type": "application/json"}, json.dumps(listing).encode(), has_body)

    def send_resolved(self, name, revision, file, has_body):
        hub, repository = self.server.hub, self.find(name, revision)
        if repository is None:
            return
        if repository.moved_to:
            return self.send(307, {"Location": self.path.replace(name, repository.moved_to)}, b"", has_body)
        if file not in repository.files:
            return self.send(404, {"X-Error-Code": "EntryNotFound"}, b"", has_body)
        if file in hub.faults.redirect:
            return self.send(302, {"Location": hub.faults.redirect[file]}, b"", has_body)
        content = repository.files[file]
        headers = {"X-Repo-Commit": repository.commit, **hub.headers}
        if not hub.is_large(file):
            return self.send_file((file, content), {**headers, "ETag": f'"{git_blob(content)}"'}, has_body)
        digest = hashlib.sha256(content).hexdigest()
        hub.large[digest] = (file, content)
        return self.send(302, {**headers, "X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{digest}"', **hub.headers,
                               "Location": f"{hub.large_url}/{digest}?signature=secret"}, b"redirected", has_body)

    def send_file(self, named, headers, has_body):
        (name, content), faults = named, self.server.hub.faults
        if name in faults.other:
            content = content[:-1] + bytes([content[-1] ^ 1])
        if name in faults.more:
            content += b"more than was announced"
        begin, status = 0, 200
        given = self.headers.get("Range")
        if given and not faults.no_range:
            begin, status = int(given.removeprefix("bytes=").rstrip("-")), 206
            if begin >= len(content):
                return self.send(416, {"Content-Range": f"bytes */{len(content)}"}, b"", has_body)
            headers = {**headers, "Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"}
        return self.send(status, headers, content[begin:], has_body, faults.cut.get(name))

    def send(self, status, headers, body, has_body, cut=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not has_body or self.command == "HEAD":
            return
        piece = 65536
        try:
            for at in range(0, len(body if cut is None else body[:cut]), piece):
                if self.server.kind == "large" and self.server.hub.faults.seconds:
                    time.sleep(self.server.hub.faults.seconds)
                self.wfile.write(body[at:at + piece] if cut is None else body[at:min(at + piece, cut)])
        except OSError:  # the client has gone
            self.close_connection = True
        if cut is not None and cut < len(body):
            self.close_connection = True


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub, kind):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.kind = hub, kind
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def handle_error(self, *_):
        """A client that was killed."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class LocalHub:
    def __init__(self):
        self.lock = threading.Lock()
        self.repositories, self.branches, self.large, self.requests = {}, set(), {}, []
        self.faults, self.listing, self.headers = Faults(), {}, {}
        self.listeners = {kind: Listener(self, kind) for kind in ("hub", "large", "other")}
        self.url, self.large_url, self.other_url = (self.listeners[kind].url for kind in ("hub", "large", "other"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for listener in self.listeners.values():
            listener.shutdown()
            listener.server_close()

    def put(self, name, files, token="", moved_to=""):
        """A commit that holds these files."""
        digest = hashlib.sha1(repr(sorted((file, hashlib.sha1(content).hexdigest()) for file, content in files.items())).encode())
        self.repositories[name] = Repository(dict(files), digest.hexdigest(), token, moved_to)
        return self.repositories[name].commit

    def put_folder(self, name, folder, **more):
        return self.put(name, {path.name: path.read_bytes() for path in folder.iterdir()}, **more)

    def heal(self):
        self.faults, self.listing, self.headers = Faults(), {}, {}
        with self.lock:
            self.requests.clear()

    def asked(self, kind=None, text="", method=None):
        """The requests whose path has the text: (kind, method, path, headers)."""
        with self.lock:
            return [request for request in self.requests
                    if kind in (None, request[0]) and text in request[2] and method in (None, request[1])]

    @staticmethod
    def is_large(name):
        return name.endswith((".safetensors", ".gguf", ".bin"))
