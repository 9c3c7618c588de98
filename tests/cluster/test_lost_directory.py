"""A voter's metadata directory is lost and formatted again: reported in three places, repaired."""

import json
import re
import shlex
import shutil
import urllib.request
from pathlib import Path

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.cli import main as cli
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import lasting_ports, wait_until

pytestmark = pytest.mark.real_clients


def voters(cluster: Cluster) -> dict[int, Uuid]:
    return {v.id: v.directory_id for v in cluster.describe_quorum().voters}


def test_a_reformatted_voter_is_reported_and_the_commands_in_the_report_repair_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (http_port,) = lasting_ports(1)
    cluster = Cluster(tmp_path, [Member(n) for n in (1, 2, 3)], overrides=STEADY)
    node = cluster.nodes[3]
    node.overrides["sparkraft.http.listener"] = f"127.0.0.1:{http_port}"
    node.write_properties()

    def warnings() -> list[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/health") as answer:
                return json.loads(answer.read())["warnings"]
        except OSError:
            return ["it does not serve yet"]

    def explained() -> list[dict[str, object]]:
        capsys.readouterr()
        command = ["explain", "quorum", "--bootstrap-server", cluster.bootstrap]
        assert cli.main([*command, "--output", "json"]) == 0
        return json.loads(capsys.readouterr().out)["lostDirectories"]

    with cluster:
        assert explained() == []
        lost = voters(cluster)[3]
        cluster.stop(3)
        shutil.rmtree(node.log_dir)
        node.format_as = ("--no-initial-controllers",)
        cluster.start([3])

        wait_until(lambda: str(lost) in warnings()[0], "/health warns")
        (text,) = warnings()
        assert text.startswith("Node 3 is only an observer of the quorum")
        wait_until(lambda: f"WARNING {text[:60]}" in node.output_path.read_text(), "its log warns")
        wait_until(lambda: explained() != [], "the leader knows the observer")
        (found,) = explained()
        assert (found["node"], found["lostDirectoryId"]) == (3, str(lost))
        capsys.readouterr()
        assert cli.main(["explain", "quorum", "--bootstrap-server", cluster.bootstrap]) == 0
        assert f"--controller-directory-id {lost}`" in capsys.readouterr().out

        commands = re.findall(r"`(sparkraft [^`]+)`", text)
        assert [shlex.split(c)[2] for c in commands] == ["remove-controller", "add-controller"]
        for command in commands:
            words = shlex.split(command.replace("server.properties", str(node.properties_path)))
            wait_until(lambda w=words: cli.main(w[1:]) == 0, command, pause=0.5)
        wait_until(lambda: 3 in voters(cluster), "node 3 votes again")
        assert voters(cluster)[3] == Uuid.parse(str(found["directoryId"]))
        wait_until(lambda: warnings() == [], "/health has no warning")
        assert explained() == []
