"""The files in deploy/: what they start has the options of docs/DEPLOY.md, restarts, and is no root's."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy").glob("*.service"))
PAGE = (ROOT / "docs" / "DEPLOY.md").read_text()


def settings_of(unit: Path) -> dict[str, str]:
    text = unit.read_text().replace("\\\n", " ")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_there_is_a_unit_for_each_process() -> None:
    assert [unit.stem for unit in UNITS] == ["fedadmm-metrics", "fedadmm-superlink", "fedadmm-supernode"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_restarts_its_process_whose_files_are_private(unit: Path) -> None:
    settings = settings_of(unit)
    assert (settings["Restart"], settings["UMask"], settings["User"]) == ("always", "0077", "fedadmm")
    assert settings["StartLimitIntervalSec"] == "0"  # else systemd gives up on a node that is refused for a minute
    command = shlex.split(settings["ExecStart"])
    assert command[0].startswith("/opt/fedadmm/bin/")
    options = {word for word in command if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z-]+", PAGE))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))  # what is started is not here
    said = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60, check=False)
    assert [line for line in said.stderr.splitlines() if unit.name in line] == []


def test_the_container_copies_what_is_there_and_is_no_root() -> None:
    text = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {name for name, _ in lines} <= {
        "FROM",
        "ARG",
        "RUN",
        "COPY",
        "USER",
        "WORKDIR",
        "VOLUME",
        "ENV",
        "EXPOSE",
        "CMD",
    }
    assert lines[0][0] == "FROM"
    copied = [source for name, rest in lines if name == "COPY" for source in rest.split()[:-1]]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert [rest for name, rest in lines if name == "USER"] == ["fedadmm"]
    assert json.loads(dict(map(tuple, lines))["CMD"])[0] == "fedadmm"  # type: ignore[arg-type]
    assert "examples/flower-fedadmm" in (ROOT / "pyproject.toml").read_text()  # which the wheel is built with


@pytest.mark.slow
@pytest.mark.deployment
def test_what_the_container_copies_is_all_that_the_wheel_needs(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "Containerfile").read_text()
    for sources, to in re.findall(r"^COPY (.+) (\S+)$", text, flags=re.MULTILINE):
        for source in sources.split():
            place = tmp_path / to.strip("/") / ("" if to.endswith("/") else ".")
            place.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, place)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, tmp_path / "src"]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
    if "Could not find a version" in done.stderr:
        pytest.skip("hatchling cannot be had here, with which a wheel is built")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("fedadmm-*.whl")
    assert "fedadmm/flower/local/app/pyproject.toml" in zipfile.ZipFile(wheel).namelist()


def done(*command: str | Path, seconds: float = 300) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


@pytest.mark.deployment
@pytest.mark.slow
def test_the_container_is_built_and_runs() -> None:
    found = [name for name in ("podman", "docker", "buildah") if shutil.which(name)]
    works = [name for name in found if done(name, "info").returncode == 0]
    if not works:
        pytest.skip(f"no builder works here ({', '.join(found) or 'none is installed'}): its parts are tested alone")
    builder, image, file = works[0], "localhost/fedadmm-test", ROOT / "deploy" / "Containerfile"
    how = ["bud", "--isolation", "chroot"] if builder == "buildah" else ["build"]
    built = done(builder, *how, "-t", image, "-f", file, ROOT, seconds=1500)
    if built.returncode and "python:3.11-slim" in built.stderr:
        pytest.skip(f"the base image cannot be had here: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    inside = ["sh", "-c", "id -u && fedadmm federation --help && fedadmm run digits --rounds 1 && ls runs/*"]
    if builder == "buildah":
        container = done(builder, "from", image).stdout.strip()
        said = done(builder, "run", "--isolation", "chroot", container, "--", *inside)
        done(builder, "rm", container)
    else:
        said = done(builder, "run", "--rm", image, *inside)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("10001\n")
    assert "superlink" in said.stdout
    assert "model.safetensors" in said.stdout
