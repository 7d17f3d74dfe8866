"""The images' files, as far as they can be checked without building an image."""

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from punctual_worker.local.jars import pyspark_jars_dir
from punctual_worker.local.java import find_java

ROOT = Path(__file__).parents[2]
IMAGES = ("operator", "worker")


def dockerfile(image: str) -> str:
    """With its continued lines joined."""
    return re.sub(r"\\\n\s*", " ", (ROOT / image / "Dockerfile").read_text())


def last_stage(image: str) -> str:
    return dockerfile(image).rsplit("\nFROM ", 1)[1]


@pytest.mark.parametrize("image", IMAGES)
def test_the_build_gets_every_file_that_it_copies(image: str) -> None:
    let_in = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile(image), re.MULTILINE):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source in let_in, f"{source} is not let in by .dockerignore"


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_without_root_and_without_a_shell(image: str) -> None:
    stage = last_stage(image)
    assert re.search(r"^USER (?!0)\d+:(?!0)\d+$", stage, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["punctual[a-z-]*"\]$', stage, re.MULTILINE)
    assert "\nRUN " not in stage
    assert not re.search(r"^CMD [^\[]", stage, re.MULTILINE)


def test_what_is_left_out_of_spark_is_there_to_be_left_out() -> None:
    """A name that matches nothing is one that a new version has changed."""
    patterns = re.findall(r"\bjars/(\S+)", dockerfile("worker").split("rm -f", 1)[1])
    jars = [path.name for path in pyspark_jars_dir().iterdir()]
    assert len(patterns) > 10
    assert [each for each in patterns if not any(fnmatch(jar, each) for jar in jars)] == []


def test_spark_starts_without_its_shell_scripts() -> None:
    java_home = find_java().resolve().parents[1]
    done = subprocess.run(
        [sys.executable, str(ROOT / "worker" / "spark_submit.py"), "--version"],
        env={
            "PATH": "/nowhere",
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(pyspark_jars_dir().parent),
            "HOME": os.environ.get("HOME", "/"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "version 4.2.0" in done.stdout + done.stderr
