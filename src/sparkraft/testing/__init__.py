"""Tools for tests of applications: a real node as a pytest fixture (`pytest_plugin`)."""
