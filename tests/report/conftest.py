"""Run folders as `ella train` writes them, and a real browser, spoken to through its pipe."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time

import numpy as np
import pytest

from ella.runs.metrics import MetricsFile
from ella.settings_table import to_json
from ella.training.log_line import LogLine
from ella.training.settings import from_table, to_table
from ella.world import tasks

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "--window-size=1280,1000",
)
PATIENCE = 120.0
"""Seconds for one answer; far more than it takes on a busy machine."""


@pytest.fixture
def write_run():
    """Writes a run whose seeds rise linearly from 0 to full success, each a bit later."""

    def write(
        folder, *, task="goto-room", lines=20, until=0.5, versions=None, together=(), **settings
    ):
        chosen = from_table({"seeds": 3, "frames": 1_000_000, **settings}, where="test")
        folder.mkdir(parents=True)
        table = {"format_version": 3, "task": to_json(tasks.find(task)), **to_table(chosen)}
        (folder / "config.json").write_text(json.dumps(table))
        provenance = {
            "command": ["/somewhere/ella", "train", task, "--method", chosen.method.name],
            "versions": versions or {"ella": "0.1.0", "jax": "0.10.2"},
            "device": "a device",
            **({"trained_together_with": list(together)} if together else {}),
        }
        (folder / "run.json").write_text(json.dumps(provenance))
        extra = ("decomposition_size", "relevance_accuracy") if "ella" in chosen.method.name else ()
        names = ("success_rate", "episodes", *extra)
        file = MetricsFile(folder, names, chosen.seed_numbers)
        file.start(0, 1)
        late = until * (1 + 0.1 * np.arange(chosen.seeds))
        for line in range(1, lines + 1):
            share = line / lines
            values = {name: np.full(chosen.seeds, 0.9) for name in extra}
            values["success_rate"] = np.minimum(1, share / late)
            values["episodes"] = np.full(chosen.seeds, 4.0)
            frames = round(share * chosen.frames)
            file.append(LogLine(10 * line, frames, 30.0 * share, 1000.0, values))
        return folder

    return write


class Browser:
    """One page. `problems` collects console errors, exceptions and failed requests; `requests` the
    addresses that were asked for."""

    def __init__(self, program, profile):
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        shell = f'exec "$@" 3<&{commands} 4>&{answers}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session = None
        self._loads = 0
        self.problems = []
        self.requests = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        """Give a command and wait for its answer."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, path, fragment=""):
        """Load a file."""
        self.problems.clear()
        self.requests.clear()
        self.wait_for_load(lambda: self.send("Page.navigate", url=path.as_uri() + fragment))

    def wait_for_load(self, action=lambda: None):
        """Do something, and wait until a page has been loaded since."""
        before = self._loads
        action()
        while self._loads == before:
            self._receive()

    def value(self, expression):
        """A JavaScript expression's value."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector):
        """Press the mouse in the middle of an element."""
        x, y = self.centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def centre(self, selector):
        """Where an element is, after scrolling to it."""
        return self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self):
        """The visible part as PNG bytes."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def close(self):
        """End the browser."""
        os.close(self._to)
        os.close(self._from)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _receive(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            chunk = os.read(self._from, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, event):
        if method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Runtime.exceptionThrown":
            self.problems.append(event["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning"):
            self.problems.append(event["args"])
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(event["entry"])
        elif method == "Network.loadingFailed":
            self.problems.append(event)
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium; tests are skipped where it is not installed."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
