"""A real browser, spoken to through its pipe."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time

import pytest

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
        self.visit(path.as_uri() + fragment)

    def visit(self, url):
        """Load a page."""
        self.problems.clear()
        self.requests.clear()
        self.wait_for_load(lambda: self.send("Page.navigate", url=url))

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

    def wait_until(self, expression):
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, key, text=""):
        """Press and release a key."""
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

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


def start_browser(profile):
    """Chromium; the test is skipped where it is not installed."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    return Browser(program, profile)
