"""Clients of a Spark Connect server that are killed, and checks of pipeline files by the server.

The server runs its tasks itself. Its Python does not have this package, and the clients have no
Java.
"""

import pytest

from tests.pipeline.test_connect_cluster import (
    PIPELINE,
    RECORDS,
    Pipeline,
    check_results,
    new_topic,
)
from tests.support.bare_python import SERVER, bare_python
from tests.support.spark_cluster import connect_server

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with connect_server("local[2]", folder, bare_python(folder / "python", SERVER)) as started:
        yield started


def test_the_results_are_exact_if_the_client_is_killed_in_the_middle_of_a_batch(
    url, node, cluster, tmp_path
):
    new_topic(cluster, "abandoned")
    with Pipeline(tmp_path, node, url, "abandoned") as pipeline:
        abandoned = pipeline.start()
        pipeline.wait_for_tasks(2, abandoned)
        pipeline.kill(abandoned)
        # Its batch never ends by itself: the next client has it canceled, and runs it again.
        running = pipeline.start()
        pipeline.wait_for_tasks(2, running)
        pipeline.let_tasks_go()
        code, said = pipeline.finish(running)
    assert code == 0, said
    assert "Waiting until the Spark Connect server has started the query" in said
    assert f"{RECORDS:,} records" in said
    check_results(pipeline, cluster, "abandoned")
    assert (tmp_path / "counts").read_text() == f"0 {RECORDS}\n"


def test_the_batch_of_a_killed_client_is_written_once_if_it_ends_while_the_next_one_waits(
    url, node, cluster, tmp_path
):
    new_topic(cluster, "outlived")
    with Pipeline(tmp_path, node, url, "outlived") as pipeline:
        abandoned = pipeline.start()
        pipeline.wait_for_tasks(2, abandoned)
        pipeline.kill(abandoned)
        pipeline.let_tasks_go()
        code, said = pipeline.run()
    assert code == 0, said
    check_results(pipeline, cluster, "outlived")


MISTAKES = [
    ('"slot"]', '"slat"]', "the delta sink: keys names slat, which is not a column"),
    ('"change.py:change"', '"change.py:changed"', "change.py does not define changed"),
    ("earliest", "earlier", "startingOffsets"),
]


def test_a_check_finds_mistakes_and_processes_nothing(url, node, cluster, tmp_path):
    new_topic(cluster, "checked", 4)
    for number, (old, new, message) in enumerate(MISTAKES):
        folder = tmp_path / str(number)
        folder.mkdir()
        code, said = Pipeline(folder, node, url, "checked", PIPELINE.replace(old, new)).run(
            "--check"
        )
        assert code == 1
        assert message in said
    pipeline = Pipeline(tmp_path, node, url, "checked")
    code, said = pipeline.run("--check")
    assert (code, said.splitlines()[-1]) == (0, f"{tmp_path}/p.toml is fine"), said
    assert not {"checkpoint", "table", "files", "counts"} & {
        each.name.partition(".")[0] for each in tmp_path.iterdir()
    }
