"""What a run records of the program that trained it."""

import os
import subprocess
from pathlib import Path

import pytest

import ella
from ella.errors import InputError
from ella.runs import directory, log_sinks


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A checkout that the package seems to be imported from, whatever git is told outside."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    file = tmp_path / "ella" / "__init__.py"
    file.parent.mkdir()
    file.write_text("one = 1\n")
    monkeypatch.setattr(ella, "__file__", str(file))
    return tmp_path


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    command = ["git", "-C", str(root), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_run_records_the_commit_it_was_trained_with(checkout):
    git(checkout, "init", "--quiet")
    git(checkout, "add", "ella")
    git(checkout, "commit", "--quiet", "--message", "first")
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    assert directory._provenance([])["commit"] == commit
    (checkout / "ella" / "__init__.py").write_text("one = 2\n")
    assert directory._provenance([])["commit"] == f"{commit}-dirty"


def test_an_installed_package_has_no_commit(checkout):
    assert "commit" not in directory._provenance([])
    (checkout / ".git").mkdir()  # Not a repository.
    assert "commit" not in directory._provenance([])


def test_more_event_files_than_may_be_open_are_refused(monkeypatch):
    limits, raised = (128, 1024), []
    monkeypatch.setattr(log_sinks.resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(log_sinks.resource, "setrlimit", lambda kind, both: raised.append(both))
    log_sinks.check_open_files(8)
    assert raised == []
    log_sinks.check_open_files(500)
    assert raised == [(500 + log_sinks.OTHER_FILES, 1024)]
    with pytest.raises(InputError, match="this system allows 1,024; choose fewer seeds"):
        log_sinks.check_open_files(1000)
