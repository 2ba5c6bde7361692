"""Serves the studio's page to browsers on this machine, and to nobody else."""

import errno
import json
import secrets
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from string import Template
from typing import Any

from ella.errors import InputError
from ella.studio.session import StudioSession

LOCALHOST = "127.0.0.1"
MAX_REQUEST_BYTES = 10_000
ASSETS = {
    "/studio.css": ("studio.css", "text/css"),
    "/studio.js": ("studio.js", "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class StudioServer(ThreadingHTTPServer):
    """One session for all pages; requests wait for each other."""

    daemon_threads = True

    def __init__(self, session: StudioSession, port: int = 0) -> None:
        super().__init__((LOCALHOST, port), _Handler)
        self.session = session
        self.lock = threading.Lock()
        self.token = secrets.token_urlsafe(16)
        """Pages of this server know it; requests that other pages make a browser send do not."""
        self.hosts = {f"{name}:{self.server_port}" for name in (LOCALHOST, "localhost")}
        self.closed = False

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server_port}/"

    def server_close(self) -> None:
        self.closed = True
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs nothing where nobody waits for the answer: the page has gone, or the server ends."""
        error = sys.exception()
        # Ctrl-C closes the connection of a request whose thread is just starting.
        gone = isinstance(error, OSError) and error.errno == errno.EBADF
        if not (self.closed or gone or isinstance(error, ConnectionError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: StudioServer
    server_version = "ella"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_local():
            return
        if self.path == "/":
            page = Template(_asset("studio.html")).substitute(token=self.server.token)
            self._answer(HTTPStatus.OK, page, "text/html")
        elif self.path in ASSETS:
            name, kind = ASSETS[self.path]
            self._answer(HTTPStatus.OK, _asset(name), kind)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "not found", "text/plain")

    def do_POST(self) -> None:
        if not self._is_local():
            return
        if not secrets.compare_digest(self.headers.get("X-Ella-Token", ""), self.server.token):
            self._answer(HTTPStatus.FORBIDDEN, "reload the page", "text/plain")
            return
        act = ACTS.get(self.path.removeprefix("/do/"))
        if act is None:
            self._answer(HTTPStatus.NOT_FOUND, "not found", "text/plain")
            return
        try:
            with self.server.lock:
                act(self.server.session, self._request())
                answer = self.server.session.snapshot()
        except InputError as error:
            answer = {"error": str(error)}
        self._answer(HTTPStatus.OK, json.dumps(answer), "application/json")

    def _request(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > MAX_REQUEST_BYTES:
            raise InputError(f"a request holds at most {MAX_REQUEST_BYTES} bytes")
        try:
            found = json.loads(self.rfile.read(int(length)) or b"{}")
        except ValueError:
            raise InputError("a request must be JSON") from None
        if not isinstance(found, dict):
            raise InputError("a request must be a JSON object")
        return found

    def _is_local(self) -> bool:
        """Refuses other names of this machine: with one, a page from elsewhere could read ours."""
        if self.headers.get("Host", "") in self.server.hosts:
            return True
        self._answer(HTTPStatus.FORBIDDEN, "this page is for localhost", "text/plain")
        return False

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line."""


def _integer(request: dict[str, Any], name: str) -> int:
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"'{name}' must be an integer, got {value!r}")
    return value


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise InputError(f"'{name}' must be a text, got {value!r}")
    return value


def _step(session: StudioSession, request: dict[str, Any]) -> None:
    session.step(None if request.get("action") is None else _integer(request, "action"))


ACTS: dict[str, Callable[[StudioSession, dict[str, Any]], None]] = {
    "look": lambda session, request: None,
    "choose": lambda session, request: session.choose(_text(request, "name")),
    "level": lambda session, request: session.new_level(_integer(request, "seed")),
    "instruct": lambda session, request: session.instruct(_text(request, "text")),
    "restart": lambda session, request: session.restart(),
    "step": _step,
}
"""What a page can ask for, by the address after /do/."""


def _asset(name: str) -> str:
    return files("ella.studio").joinpath("assets", name).read_text(encoding="utf-8")
