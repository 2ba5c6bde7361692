"""Ctrl-C ends the studio, also while a page waits for an answer."""

import http.client
import json
import re
import signal
import subprocess
import sys

import pytest


@pytest.mark.thorough
def test_ctrl_c_during_a_request_ends_with_one_line():
    command = [sys.executable, "-m", "ella", "studio", "goto-small", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(re.search(r"localhost:(\d+)/", process.stdout.readline())[1])
            page = http.client.HTTPConnection("localhost", port)
            page.request("GET", "/")
            token = re.search(r'"([\w-]{20,})"', page.getresponse().read().decode())[1]
            # The answer needs the compilation of another world.
            body = json.dumps({"name": "unlock-maze"})
            page.request("POST", "/do/choose", body, {"X-Ella-Token": token})
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=120)
            page.close()
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (130, "", "ella: interrupted\n")
