"""For other people's tests: a real node in a pytest fixture (`pytest_plugin`)."""
