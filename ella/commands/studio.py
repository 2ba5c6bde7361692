"""`ella studio`: a local web page to watch an agent step by step and to take over."""

import sys
from dataclasses import dataclass
from typing import Annotated

from ella.commands.options import Positional
from ella.errors import InputError

DEFAULT_TASK = "unlock-maze"


@dataclass(frozen=True)
class Arguments:
    """Open a page on this machine: choose a task and a level or type an instruction, watch an agent
    step by step, see which low-level instructions it completes and is paid for, or take over."""

    name: Annotated[str, Positional("TASK|RUN|AGENT|POLICY")] = DEFAULT_TASK
    """Name of a task, in which the expert acts, or a run's directory, `agent:NAME` or a policy's
    file, whose trained agent acts."""
    seed_index: int = 0
    """Which of a run's seeds acts, counted from 0."""
    port: int = 0
    """Port to serve the page on; by default a free one."""
    browser: bool = True
    """Whether to open the page in the default browser."""


def run(arguments: Arguments) -> None:
    """Serve until Ctrl-C, which the command line turns into one line."""
    if not 0 <= arguments.port < 65536:
        raise InputError(f"--port must lie in 0..65535, got {arguments.port}")
    import webbrowser

    from ella.studio.server import StudioServer
    from ella.studio.session import StudioSession
    from ella.world.tasks import TASKS

    session = StudioSession(
        arguments.name, {**dict.fromkeys(TASKS, 0), arguments.name: arguments.seed_index}
    )
    try:
        server = StudioServer(session, arguments.port)
    except OSError as error:
        raise InputError(f"cannot serve on port {arguments.port}: {error.strerror}") from None
    sys.stdout.write(f"ELLA studio: {server.address} (Ctrl-C ends it)\n")
    sys.stdout.flush()
    if arguments.browser:
        webbrowser.open(server.address)
    with server:
        server.serve_forever()
