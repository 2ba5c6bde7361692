"""The distribution as a user gets it: built, installed into an empty environment, and run there.

Needs a package index.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import ella

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class Built:
    """The two files of a distribution."""

    sdist: Path
    wheel: Path


def run(*words: str | Path, folder: Path, **variables: str) -> str:
    """The output of a command that must succeed, without this process's paths."""
    kept = (
        *("PATH", "HOME", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"),
        *(name for name in os.environ if name.startswith(("JAX_", "XLA_"))),
    )
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= variables
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def empty_environment(folder: Path, *packages: str) -> Path:
    """The programs of a new virtual environment that has these packages, and not even pip."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    quick = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    run(*pip, *quick, "-c", CONSTRAINTS, *packages, folder=folder.parent)
    return folder / "bin"


def tracked(under: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", under],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Source archive, and the wheel built from it alone."""
    folder = tmp_path_factory.mktemp("build")
    for name in tracked("."):
        if not name.startswith("results/"):
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    programs = empty_environment(folder / "builder", "build", *requirements)
    build = [programs / "python", "-m", "build", "--no-isolation", "--outdir", folder / "dist"]
    run(*build, folder / "source", folder=folder)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return Built(sdist, wheel)


@pytest.mark.thorough
def test_every_file_of_the_package_is_in_the_wheel(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = archive.namelist()
    inside = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert inside == set(tracked("ella"))
    assert {
        "ella/py.typed",
        "ella/report/assets/page.js",
        "ella/studio/assets/studio.css",
    } <= inside
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.thorough
def test_source_archive_has_what_a_build_needs(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "ella/py.typed"} <= names
    assert set(tracked("ella")) <= names


@pytest.mark.nightly
def test_installed_wheel_runs_the_demo(built: Built, tmp_path: Path) -> None:
    programs = empty_environment(tmp_path / "environment", f"{built.wheel}[train]")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home = {"HOME": str(tmp_path), "ELLA_CACHE": str(tmp_path / "cache")}
    where = run(programs / "python", "-c", "import ella; print(ella.__file__)", folder=elsewhere)
    assert Path(where.strip()).is_relative_to(tmp_path / "environment")
    version = run(programs / "ella", "--version", folder=elsewhere, **home)
    assert version == f"ella {ella.__version__}\n"
    assert "unlock-small" in run(programs / "ella", "tasks", folder=elsewhere, **home)
    words = ("demo", "--preset", "smoke", "--frames", "1280", "--seeds", "2", "--out", "out")
    printed = run(programs / "ella", *words, folder=elsewhere, **home)
    written = [elsewhere / path for path in re.findall(r"^wrote (.+)$", printed, re.MULTILINE)]
    assert {path.suffix for path in written} == {".png", ".gif"}
    assert all(path.stat().st_size > 1000 for path in written)
    assert "ELLA pays for:" in printed
    page = run(programs / "ella", "report", "out", "--out", "page", folder=elsewhere, **home)
    assert page
    assert "<html" in (elsewhere / "page" / "index.html").read_text()
