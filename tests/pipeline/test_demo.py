"""The quickstart's own words, without Spark."""

import socket

from sparkraft.pipeline.demo import run


def test_a_taken_port_is_told_in_a_sentence(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run.main(["--data", str(tmp_path), "--port", str(port)]) == 1
    (told,) = capsys.readouterr().out.splitlines()
    assert told.startswith(f"quickstart: port {port} on 127.0.0.1 is taken")


def test_an_hour_in_which_one_flight_left_is_not_among_the_worst(monkeypatch, capsys, tmp_path):
    rows = {("EWR", 0): (12, 11, 266.0, 266.0), ("JFK", 0): (17, 4, 197.2, 393.2)}
    monkeypatch.setattr(run.check, "table_rows", lambda path: rows)
    run._show_worst(tmp_path)
    told = capsys.readouterr().out
    assert "JFK" in told
    assert "EWR" not in told
