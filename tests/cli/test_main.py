"""Dispatch, misuse, and how little a start loads."""

import importlib.util
import subprocess
import sys

import pytest

from sparkraft import __version__
from sparkraft.cli import main as cli
from sparkraft.cli import pipeline
from sparkraft.cli.errors import UsageError
from sparkraft.cli.names import PartitionFilter, TopicFilter
from sparkraft.cli.options import Options, exactly_one, key_values, only_with
from tests.support.sasl import PLAIN_MODULE


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_help_lists_every_command(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"  {name} " in out for name in cli._MODULES)
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    begins = {len(lines[name]) - len(lines[name].split(maxsplit=1)[1]) for name in cli._MODULES}
    assert len(begins) == 1, "the texts are below one another"


def test_help_of_pipelines_lists_every_action(capsys):
    code, out, _ = run(capsys, "pipeline", "--help")
    assert code == 0
    assert all(f"\n  {name} " in out for name in pipeline._ACTIONS)


@pytest.mark.parametrize("command", sorted(cli._MODULES))
def test_every_command_explains_itself(command, capsys):
    try:
        code = cli.main([command, "--help"])
    except SystemExit as leaving:
        code = leaving.code
    assert code == 0
    assert "usage:" in capsys.readouterr().out.lower()


@pytest.mark.parametrize(
    "argv",
    [
        *([command, "--version"] for command in sorted(cli._MODULES)),
        ["topics", "--bootstrap-server", "h:1", "--list", "--version"],
        ["storage", "info", "--version"],
        ["explain", "quorum", "--version"],
        ["server-start", "nowhere.properties", "--version"],
    ],
    ids=" ".join,
)
def test_every_command_tells_our_version(argv, capsys):
    try:
        code = cli.main(argv)
    except SystemExit as leaving:
        code = leaving.code
    said = capsys.readouterr()
    assert (code, said.out, said.err) == (0, f"{__version__}\n", "")


def test_the_version_command_names_the_build(capsys):
    assert cli.main(["version"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == __version__
    assert said[1] in {"records: pure Python", "records: compiled"}


def test_a_pipeline_without_spark_says_what_to_install(capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name)
    )
    code, _, err = run(capsys, "pipeline", "run", "any.toml")
    assert code == 1
    assert err.endswith("pyspark is not installed: pip install 'sparkraft[pipeline]'\n")


def test_a_file_to_dump_that_is_not_there_is_named(capsys):
    code, out, err = run(capsys, "dump-log", "--files", "nowhere.log")
    assert (code, out) == (1, "")
    assert err == "sparkraft dump-log: nowhere.log does not exist\n"


def test_an_unknown_command_names_the_nearest(capsys):
    code, _, err = run(capsys, "topic", "--list")
    assert (code, "did you mean topics?" in err) == (2, True)


def test_kafkas_file_names_work_too(capsys):
    code, _, err = run(capsys, "kafka-topics.sh", "--bogus")
    assert code == 2
    assert err.startswith("sparkraft topics:")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["topics", "--bootstrap-server", "h:1", "--lst"], "did you mean --list?"),
        (["topics", "--list"], "missing --bootstrap-server"),
        (["topics", "--bootstrap-server", "h:1"], "give exactly one of --create"),
        (["topics", "--bootstrap-server", "h:1", "--list", "x"], "'x' belongs to no option"),
        (["topics", "--bootstrap-server", "h:1", "--create"], "--create needs --topic"),
        (
            ["topics", "--bootstrap-server", "h:1", "--list", "--if-not-exists"],
            "--if-not-exists goes only with --create",
        ),
        (["topics", "--bootstrap-server", "host:port", "--list"], "is not a server's address"),
        (
            ["cluster", "cluster-id", "-b", "h:1", "--config", "a", "--command-config", "b"],
            "give --config or --command-config, not both",
        ),
        (
            [
                "leader-election",
                "--bootstrap-server",
                "h:1",
                "--election-type",
                "preferred",
                "--all-topic-partitions",
                "--admin.config",
                "a",
                "--command-config",
                "b",
            ],
            "give --admin.config or --command-config, not both",
        ),
        (
            ["features", "--bootstrap-server", "h:1", "upgrade", "--node-id", "1"],
            "--node-id goes only with describe",
        ),
        (
            ["features", "--bootstrap-server", "h:1", "describe", "--node-id", "-1"],
            "--node-id -1 is negative",
        ),
        (["server-start", "f", "--overide", "a=b"], "did you mean --override?"),
        (["server-start", "f", "--override", "ab"], "wants key=value"),
        (["get-offsets", "--bootstrap-server", "h:1", "--time", "soon"], "--time wants ms"),
    ],
)
def test_misuse_is_exit_code_2_and_a_sentence(argv, sentence, capsys):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


def test_no_cluster_there_is_exit_code_1_and_a_sentence(capsys, unused_port):
    code, _, err = run(capsys, "topics", "--bootstrap-server", f"127.0.0.1:{unused_port}", "--list")
    assert code == 1
    assert (
        err == f"sparkraft topics: cannot connect to 127.0.0.1:{unused_port}: Connection refused\n"
    )


def test_a_missing_properties_file_is_named(capsys, tmp_path):
    code, _, err = run(capsys, "server-start", str(tmp_path / "none.properties"))
    assert code == 1
    assert "none.properties: No such file" in err


def test_security_that_is_not_there_is_refused(capsys, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=TLS\n")
    code, _, err = run(
        capsys, "topics", "--bootstrap-server", "h:1", "--list", "--command-config", str(config)
    )
    assert code == 1
    assert "security.protocol=TLS is not implemented" in err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "security.protocol=SASL_PLAINTEXT needs sasl.jaas.config"),
        (
            "sasl.jaas.config=x required password=s3cret\n",
            "sasl.jaas.config: the entry does not end",
        ),
        (f"sasl.jaas.config={PLAIN_MODULE} required;\n", "is not for SASL mechanism GSSAPI"),
        (
            f"sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN_MODULE} required;\n",
            "needs the options username and password",
        ),
        ("sasl.login.class=x\n", "sasl.login.class is not implemented"),
    ],
)
def test_a_login_that_cannot_work_is_named_without_its_password(lines, message, capsys, tmp_path):
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol=SASL_PLAINTEXT\n{lines}")
    code, _, err = run(
        capsys, "topics", "--bootstrap-server", "h:1", "--list", "--command-config", str(config)
    )
    assert code == 1
    assert message in err
    assert "s3cret" not in err


def test_a_node_starts_without_what_only_tools_need():
    script = (
        "import sys, sparkraft.cli.main, sparkraft.cli.server_start, sparkraft.server.node\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split())
    heavy = {"argparse", "prometheus_client", "rich", "numpy", "pyarrow", "pyspark", "difflib"}
    assert not loaded & heavy
    assert "sparkraft.client.producer" not in loaded


def test_the_entry_module_loads_nothing_of_ours():
    script = (
        "import sys, sparkraft.cli.main; print(' '.join(m for m in sys.modules if 'spark' in m))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert set(done.stdout.split()) == {"sparkraft", "sparkraft.cli", "sparkraft.cli.main"}


def test_exactly_one_and_only_with():
    options = Options("x", "")
    options.flag("--a", "")
    options.value("--b", about="")
    assert exactly_one(options.parse(["--a"]), ["--a", "--b"]) == "--a"
    for argv in ([], ["--a", "--b", "1"]):
        with pytest.raises(UsageError):
            exactly_one(options.parse(argv), ["--a", "--b"])
    with pytest.raises(UsageError):
        only_with(options.parse(["--b", "1"]), ["--b"], "--a")


def test_values_that_begin_with_a_dash_are_values():
    options = Options("x", "")
    options.value("--shift-by", about="", type=int)
    assert options.parse(["--shift-by", "-5"]).shift_by == -5


def test_key_values():
    assert key_values(["a=b", "c=d=e"], "--x") == {"a": "b", "c": "d=e"}
    with pytest.raises(UsageError):
        key_values(["ab"], "--x")


def test_topic_filters_match_whole_names_and_know_commas():
    wanted = TopicFilter("a.*,b")
    assert [t for t in ("a", "ab", "b", "bb") if wanted.allows(t, exclude_internal=False)] == [
        "a",
        "ab",
        "b",
    ]
    assert not TopicFilter(".*").allows("__consumer_offsets", exclude_internal=True)
    with pytest.raises(UsageError):
        TopicFilter("(")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t:1", {("t", 1)}),
        ("t:1-3", {("t", 1), ("t", 2)}),
        ("t:3-", {("t", 3), ("t", 4)}),
        (":-1", {("t", 0), ("u", 0)}),
        ("u", {("u", i) for i in range(5)}),
        ("t:0,u:4", {("t", 0), ("u", 4)}),
    ],
)
def test_partition_filters(text, expected):
    rules = PartitionFilter(text)
    everything = {(topic, i) for topic in "tu" for i in range(5)}
    assert {tp for tp in everything if rules.allows(*tp)} == expected
