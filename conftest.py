"""What all tests of the Python package share, those in python/tests and those beside the operations."""

pytest_plugins = ["pytest_plugin"]
