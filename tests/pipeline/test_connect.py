"""Spark Connect as a master, as far as it goes without a server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict

from sparkraft.pipeline import connect, connect_batches, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.worker_python import packed
from tests.support.bare_python import bare_python
from tests.support.ports import lasting_ports

PIPELINE = """
name = "n"
checkpoint = "checkpoint"
[source]
"kafka.bootstrap.servers" = "127.0.0.1:1"
subscribe = "t"
[source.json]
schema = "id BIGINT"
on_error = "drop"
[[sink]]
kind = "function"
function = "more/keep.py:keep"
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return bare_python(tmp_path_factory.mktemp("bare") / "python")


def ran(python, text, *files):
    """Output and errors of a program that gets the paths of files."""
    command = [python, "-c", text, *map(str, files)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/",
        env={"SPARK_LOCAL_DIRS": str(files[0].parent)},
    )  # fmt: skip
    return done.stdout, done.stderr


def test_a_token_is_not_shown():
    assert connect.shown("sc://host:15002/;token=hush-hush") == "sc://host:15002"
    assert connect.shown("sc://host/") == "sc://host/"
    assert connect.shown("spark://host:7077") == "spark://host:7077"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'on_error = "drop"',
            'on_error = "dead_letter"',
            r'^\[source\]: on_error = "dead_letter" does not work over Spark Connect, .* set stop '
            "or drop, or use a Spark master$",
        ),
        (
            'kind = "function"\nfunction = "more/keep.py:keep"',
            'kind = "console"',
            "^the console sink does not work over Spark Connect: .* use another sink or a Spark",
        ),
    ],
)
def test_what_cannot_work_is_named(tmp_path, old, new, message):
    dead = '[dead_letter]\nkind = "topic"\ntopic = "dead"\n' if "dead_letter" in new else ""
    pipeline = spec.parse(PIPELINE.replace(old, new) + dead, folder=tmp_path, values={})
    with pytest.raises(SpecError, match=message):
        connect.check(pipeline)


@pytest.mark.parametrize(
    ("master", "message"),
    [
        (
            "sc://127.0.0.1:{port}/;token=hush-hush",
            "no Spark Connect server answers at sc://127.0.0.1:",
        ),
        ("sc://", "master sc://: .*Hostname is missing"),
        ("sc://127.0.0.1:{port}/path", "master sc://127.0.0.1:.*'/path' must be empty"),
    ],
)
def test_a_server_that_does_not_answer_is_reported_at_once(tmp_path, master, message):
    master = master.format(port=lasting_ports(1)[0])
    pipeline = spec.parse(f'master = "{master}"\n{PIPELINE}', folder=tmp_path, values={})
    with pytest.raises(SpecError, match=message) as raised:
        connect.check(pipeline)
    assert "hush" not in str(raised.value)


def test_the_status_of_a_pipeline_has_no_token(tmp_path, monkeypatch):
    master = 'master = "sc://127.0.0.1:1/;token=hush-hush"\n'
    pipeline = spec.parse(master + PIPELINE, folder=tmp_path, values={})
    # Neither Kafka's brokers nor a server are there.
    monkeypatch.setattr(running, "check", lambda _: None)
    monkeypatch.setattr(connect, "session", lost)
    with pytest.raises(running.PipelineError, match=r"^Spark Connect server sc:.*:1: no s"):
        running.run(pipeline, on_progress=print)
    status = json.loads((tmp_path / "checkpoint.status.json").read_text())
    assert (status["state"], status["master"]) == ("failed", "sc://127.0.0.1:1")
    assert "hush" not in json.dumps(status)


def lost(**_):
    raise RuntimeError("no such session")


CALLS = """
import pickle, sys
from pathlib import Path
write = pickle.loads(Path(sys.argv[1]).read_bytes())
assert "sparkraft" not in sys.modules

class Batch:
    sparkSession = None

    def persist(self):
        pass

    unpersist = persist

write(Batch(), 3)
write(Batch(), 4)
"""


def test_the_function_for_a_server_brings_the_package_and_the_users_file(tmp_path, python):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "keep.py").write_text(
        "def keep(batch, number):\n    print(type(batch).__name__, number, __file__)\n"
    )
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"the-query"}')
    with_token = 'master = "sc://host/;token=hush-hush"\n'
    pipeline = spec.parse(with_token + PIPELINE, folder=tmp_path, values={})
    pickled = tmp_path / "pickled"
    pickled.write_bytes(cloudpickle.dumps(connect_batches.on_server(pipeline, object())))
    assert b"hush" not in pickled.read_bytes()
    said, errors = ran(python, CALLS, pickled)
    assert len(said.splitlines()) == 2, errors
    first, second = said.splitlines()
    assert first.startswith("Batch 3 "), errors
    assert second.startswith("Batch 4 ")
    assert str(tmp_path / "more") not in said


def test_a_library_that_the_server_lacks_is_named(tmp_path, python):
    text = PIPELINE[: PIPELINE.index("[[sink]]")] + '[[sink]]\nkind = "delta"\npath = "table"\n'
    pickled = tmp_path / "pickled"
    pipeline = spec.parse(text, folder=tmp_path, values={})
    pickled.write_bytes(cloudpickle.dumps(connect_batches.on_server(pipeline, object())))
    _, errors = ran(python, CALLS, pickled)
    assert running.cause_of(RuntimeError(errors)) == (
        f"the Python of the Spark Connect server ({sys.executable}) cannot import deltalake, which "
        "the delta sink needs: install it there"
    )


PICKLING = """
import sys
sys.path.insert(1, sys.argv[1])
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from sparkraft.pipeline.source import SparkraftDataSource
source = SparkraftDataSource(CaseInsensitiveDict({"subscribePattern": "a"}))
open(sys.argv[2], "wb").write(cloudpickle.dumps(source))
"""
UNPICKLING = """
import pickle, sys
from pyspark import SparkFiles
SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[2], True
source = pickle.load(open(sys.argv[1], "rb"))
print(source.name(), source.options["SUBSCRIBEpattern"], type(source).__module__)
print(sys.modules["sparkraft"].__file__)
"""


def test_a_source_finds_the_package_in_a_process_that_does_not_know_its_zip(tmp_path, python):
    zipped = packed(tmp_path / "sparkraft-1.zip")
    _, errors = ran(python, PICKLING, zipped, tmp_path / "source")
    assert (tmp_path / "source").exists(), errors
    root = tmp_path / "root"
    # First on the same machine; then on another one, in the folder of the session's files.
    for place in (zipped, root / "session" / zipped.name):
        place.parent.mkdir(parents=True, exist_ok=True)
        zipped = zipped.rename(place)
        said, errors = ran(python, UNPICKLING, tmp_path / "source", root)
        assert said.splitlines() == [
            "sparkraft a sparkraft.pipeline.source", f"{zipped}/sparkraft/__init__.py",
        ], errors  # fmt: skip


def test_an_installed_source_is_pickled_by_its_name():
    from sparkraft.pipeline.source import SparkraftDataSource

    source = SparkraftDataSource(CaseInsensitiveDict({"subscribePattern": "a"}))
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert type(again) is SparkraftDataSource
    assert again.options["subscribePATTERN"] == "a"
    assert Path(sys.modules["sparkraft"].__file__).is_file()
