"""What Spark is started with, as far as it can be seen without starting it."""

import shlex

from sparkraft.pipeline import session


def test_javas_options_survive_a_folder_with_spaces(tmp_path):
    settings = session._defaults("local[1]", tmp_path / "my own work")
    options = shlex.split(settings["spark.driver.extraJavaOptions"])
    assert all(each.startswith("-") for each in options), options
