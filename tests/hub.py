"""A Hugging Face hub on this machine: what huggingface_hub asks to fetch or make a repository, and what can go wrong.

    with Hub() as hub:
        hub.add("model", "someone/tiny", {"config.json": b"{}"})

Reached through HF_ENDPOINT, which is read at import: programs that use it are started with `hub.environment(home)`.
"""

import base64
import hashlib
import json
import os
import re
import socket
import struct
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import processes

Files = Mapping[str, bytes]

API = re.compile(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?")
UPLOAD = re.compile(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main")
TOKEN = "hf_test"  # of the one user who may upload
FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Hub:
    def __init__(self) -> None:
        self.commits: dict[tuple[str, str, str], Files] = {}  # kind, repository, commit or branch
        self.gated: set[str] = set()  # repositories
        self.dropped: dict[str, tuple[int, int]] = {}  # files: times that the connection ends, after how many bytes
        self.resets = False  # a connection that ends is reset, not closed
        self.private: set[str] = set()  # repositories that were made so
        self.requests: list[str] = []  # path of each file, and the range if one is asked for
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True

    def __enter__(self) -> "Hub":
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, kind: str, repository: str, files: Files) -> str:
        """Commit to the branch `main`; returns the hash."""
        text = json.dumps({name: hashlib.sha1(content).hexdigest() for name, content in sorted(files.items())})
        commit = hashlib.sha1(f"{kind} {repository} {text}".encode()).hexdigest()
        self.commits[kind, repository, commit] = self.commits[kind, repository, "main"] = files
        return commit

    def commit_of(self, kind: str, repository: str, revision: str) -> str:
        files = self.commits[kind, repository, revision]
        return next(key[2] for key, value in self.commits.items() if value is files and len(key[2]) == 40)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self, home: Path, **changes: str) -> dict[str, str]:
        """Of a program that uses this hub and keeps its cache in `home`."""
        variables = {"HF_ENDPOINT": self.address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
        return processes.environment(variables | changes)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := API.fullmatch(path):
            kind, repository, what, revision = match.groups()
            if self._exists(kind, repository, revision or "main"):
                self._describe(kind, repository, what, revision or "main")
        elif match := FILE.fullmatch(path):
            self._file("dataset" if match[1] else "model", *match.groups()[1:])
        else:
            self._refuse(404, "")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path, content = urlsplit(self.path).path, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "")
        elif path == "/api/repos/create":
            repository = "/".join(json.loads(content)[key] for key in ("organization", "name"))
            is_new = ("model", repository, "main") not in self.hub.commits
            if is_new:
                self.hub.add("model", repository, {})
                if json.loads(content).get("visibility") == "private":
                    self.hub.private.add(repository)
            self._answer({"url": f"{self.hub.address}/{repository}"}, 200 if is_new else 409)
        elif match := UPLOAD.fullmatch(path):
            self._upload(match[1], match[2], content)
        else:  # is the card's front matter valid?
            self._answer({"errors": [], "warnings": []})

    def _upload(self, repository: str, what: str, content: bytes) -> None:
        if what == "preupload":
            names = [file["path"] for file in json.loads(content)["files"]]
            self._answer({"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]})
            return
        lines = [json.loads(line) for line in content.splitlines()]
        files = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
        commit = self.hub.add("model", repository, {name: base64.b64decode(text) for name, text in files.items()})
        self._answer({"commitUrl": f"{self.hub.address}/{repository}/commit/{commit}", "commitOid": commit})

    def _answer(self, content: Any, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), {"Content-Type": "application/json"}, status)

    def _exists(self, kind: str, repository: str, revision: str) -> bool:
        if (kind, repository, "main") not in self.hub.commits:
            self._refuse(401, "RepoNotFound")  # as the hub answers those who are not logged in
        elif (kind, repository, revision) not in self.hub.commits:
            self._refuse(404, "RevisionNotFound")
        else:
            return True
        return False

    def _describe(self, kind: str, repository: str, what: str | None, revision: str) -> None:
        files = self.hub.commits[kind, repository, revision]
        content: Any = {"id": repository, "sha": self.hub.commit_of(kind, repository, revision), "siblings": []}
        content["private"] = repository in self.hub.private
        if what == "tree":
            content = [
                {"type": "file", "path": name, "size": len(text), "oid": hashlib.sha1(text).hexdigest()}
                for name, text in files.items()
            ]
        self._send(json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _file(self, kind: str, repository: str, revision: str, name: str) -> None:
        if not self._exists(kind, repository, revision):
            return
        files = self.hub.commits[kind, repository, revision]
        if repository in self.hub.gated or name not in files:
            self._refuse(*((403, "GatedRepo") if repository in self.hub.gated else (404, "EntryNotFound")))
            return
        commit = self.hub.commit_of(kind, repository, revision)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(files[name]).hexdigest()}"'}
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(files[name]) - 1}/{len(files[name])}"
        if self.command == "GET":
            self.hub.requests.append(name + (f" from {first}" if first else ""))
        self._send(files[name][first:], headers, 206 if first else 200, name)

    def _send(self, content: bytes, headers: Mapping[str, str], status: int = 200, name: str = "") -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        times, n_bytes = self.hub.dropped.get(name, (0, 0))
        if times == 0:
            self.wfile.write(content)
            return
        self.hub.dropped[name] = times - 1, n_bytes
        self.wfile.write(content[:n_bytes])
        if self.hub.resets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())  # at once: the server would close it in order
        self.close_connection = True

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
