"""All tests of the Python package, here and in the folders of the operations, share one plugin."""

pytest_plugins = ["pytest_plugin"]
