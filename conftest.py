"""All tests of the Python package, here and beside the operations, share one plugin."""

pytest_plugins = ["pytest_plugin"]
