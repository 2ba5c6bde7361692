"""The studio: its session, what its server refuses, and the page in a real browser."""

import http.client
import json
import socket
import threading

import pytest

from ella.cli import main
from ella.errors import InputError
from ella.studio.server import StudioServer
from ella.studio.session import StudioSession
from ella.world.encoding import FORWARD

NAMES = {"unlock-maze": 0, "goto-small": 0}


@pytest.fixture(scope="module")
def session():
    return StudioSession("unlock-maze", NAMES)


@pytest.fixture(scope="module")
def server(session):
    with StudioServer(session) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()


@pytest.fixture
def level(session):
    """The session at the start of a level that the expert solves."""
    session.choose("unlock-maze")
    return session


def test_an_expert_is_paid_for_the_key_and_charged_at_the_success(level):
    colour = level.snapshot()["mission"].split()[2]
    while not level.snapshot()["outcome"]:
        level.step(None)
    end = level.snapshot()
    assert end["outcome"].startswith("solved, reward 0.")
    kinds = [event["kind"] for event in end["events"]]
    assert kinds[-1] == "outcome"
    payment = next(event for event in end["events"] if event["kind"] == "payment")
    assert f"pick up the {colour} key" in payment["text"]
    assert payment["bonus"] == 0.25
    charge = next(event for event in end["events"] if event["kind"] == "charge")
    later = charge["step"] - payment["step"]
    assert charge["bonus"] == pytest.approx(-0.25 * 0.99**-later, abs=1e-3)
    paid = [row["text"] for row in end["low_level"] if row["paid"]]
    relevant = [row["text"] for row in end["low_level"] if row["relevant"]]
    assert paid
    assert set(paid) <= set(relevant)
    before = end["step"]
    level.step(None)
    assert level.snapshot()["step"] == before


def test_a_person_takes_over(level):
    level.step(FORWARD)
    (event,) = (e for e in level.snapshot()["events"] if e["kind"] == "action")
    assert event["text"] == "you: forward"


def test_an_instruction_restarts_the_level_with_another_mission(session):
    session.choose("goto-small")
    session.step(None)
    wanted = None
    for row in range(1, 6):
        session.new_level(row)
        mission = session.snapshot()["mission"]
        wanted = wanted or mission
    session.new_level(1)
    session.instruct("  " + wanted.upper() + " ")
    assert session.snapshot()["mission"] == wanted
    assert session.snapshot()["step"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("open the pink door", "pink"),
        ("go to the red door", "open the"),
        ("", "a clause is"),
    ],
)
def test_instructions_outside_the_grammar_get_its_error(level, text, said):
    before = level.snapshot()["mission"]
    with pytest.raises(InputError, match=said):
        level.instruct(text)
    assert level.snapshot()["mission"] == before


def test_a_task_has_no_seed_to_choose(capsys):
    assert main(["studio", "unlock-maze", "--seed-index", "3", "--no-browser"]) == 2
    said = capsys.readouterr().err
    assert said == "ella: unlock-maze is no run to choose a seed of; leave out --seed-index\n"


def test_instructions_about_absent_things_are_refused(level):
    colour = level.snapshot()["mission"].split()[2]
    other = "red" if colour != "red" else "blue"
    with pytest.raises(InputError, match=f"no {other} door"):
        level.instruct(f"open the {other} door")


def request(server, method, path, headers, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    data = b"" if body is None else json.dumps(body).encode()
    connection.putheader("Content-Length", str(len(data)))
    connection.endheaders(data)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_the_server_answers_its_own_pages_only(server):
    assert server.server_address[0] == "127.0.0.1"
    host = f"localhost:{server.server_port}"
    assert request(server, "GET", "/", {"Host": host})[0] == 200
    for foreign in ("attacker.example", f"attacker.example:{server.server_port}", "localhost"):
        assert request(server, "GET", "/", {"Host": foreign})[0] == 403
        headers = {"Host": foreign, "X-Ella-Token": server.token}
        assert request(server, "POST", "/do/look", headers)[0] == 403
    assert request(server, "POST", "/do/look", {"Host": host})[0] == 403
    known = {"Host": host, "X-Ella-Token": server.token}
    status, text = request(server, "POST", "/do/look", known)
    assert (status, json.loads(text)["name"]) == (200, server.session.snapshot()["name"])
    for path, body, said in (
        ("/do/step", {"action": 99}, "action must lie in 0..6"),
        ("/do/step", {"action": "up"}, "must be an integer"),
        ("/do/level", {"seed": -1}, "a seed lies between"),
        ("/do/choose", {"name": "unlock-maz"}, "did you mean unlock-maze?"),
        ("/do/choose", {"name": "/etc"}, "unknown task or run"),
        ("/do/look", [1], "must be a JSON object"),
    ):
        assert said in json.loads(request(server, "POST", path, known, body)[1])["error"]
    for path in ("/../server.py", "/studio.py", "/do/look"):
        assert request(server, "GET", path, known)[0] == 404


def fail(server, error):
    try:
        raise error
    except type(error):
        server.handle_error(None, ("localhost", 0))


def test_requests_that_nobody_waits_for_fail_in_silence(session, capfd):
    with StudioServer(session) as made:
        # As Ctrl-C leaves the request whose thread is just starting.
        for end in (socket.socket.close, lambda request: request.shutdown(socket.SHUT_WR)):
            page, request = socket.socketpair()
            page.sendall(b"GET / HTTP/1.0\r\nHost: attacker.example\r\n\r\n")
            end(request)
            made.process_request_thread(request, ("localhost", 0))
            page.close()
        fail(made, ConnectionResetError())
        assert capfd.readouterr().err == ""
        fail(made, FileNotFoundError(2, "a defect"))
        assert "a defect" in capfd.readouterr().err
    fail(made, FileNotFoundError(2, "a defect"))
    assert capfd.readouterr().err == ""


def test_the_page_in_a_browser(server, browser):
    browser.visit(server.address)
    browser.wait_until("document.querySelectorAll('#rows tr').length === 36")
    browser.value(
        "(() => { const n = document.querySelector('#name'); n.value = 'unlock-maze';"
        "n.dispatchEvent(new Event('change')); })()"
    )
    browser.wait_until("document.querySelector('#clock').textContent === 'step 0 of 128'")
    browser.press("ArrowRight")
    browser.wait_until("document.querySelector('#events').textContent.includes('you: right')")
    browser.click("#step")
    browser.wait_until("document.querySelector('#clock').textContent === 'step 2 of 128'")
    browser.click("#play")
    browser.wait_until("document.querySelector('#outcome').textContent.startsWith('solved')")
    assert browser.value("document.querySelectorAll('tr.paid').length") > 0
    assert "+0.25" in browser.value("document.querySelector('#events .payment').textContent")

    browser.value("document.querySelector('#mission').value = '<b>open</b> the pink door'")
    browser.click("#instruct button")
    browser.wait_until("document.querySelector('#error').textContent.length > 0")
    assert browser.value("document.querySelector('#error').children.length") == 0
    assert "pink" in browser.value("document.querySelector('#error').textContent")

    browser.click("#next-level")
    browser.wait_until("document.querySelector('#seed').value === '1'")
    assert browser.problems == []
    assert all(url.startswith((server.address, "data:")) for url in browser.requests)
