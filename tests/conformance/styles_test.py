#!/usr/bin/env python3
"""What heddle takes real chat templates for: the format of calls and the mark of thoughts, against the table in styles.json.

  python3 tests/conformance/styles_test.py HEDDLE_ANSWER_STYLES

The templates are those of the pinned archives; one that the table does not have must have neither. Without an archive it fails;
HEDDLE_OFFLINE=1 skips what is not in the cache, and says so.
"""

import json
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools"))
import fetch_archives  # noqa: E402

DRIVER = None
EXPECTED = json.loads((HERE / "styles.json").read_text())


def found_in(folder):
    """{name of the template: [format, mark]}"""
    paths = sorted(folder.rglob("*.jinja"))
    done = subprocess.run([DRIVER, *paths], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths)
    return {path.stem: json.loads(line) for path, line in zip(paths, lines)}


class Styles(unittest.TestCase):
    maxDiff = None

    def test_templates_are_taken_for_what_they_are(self):
        for package, expected in EXPECTED.items():
            with self.subTest(package):
                folder = fetch_archives.members_folder(package)
                if folder is None:
                    self.skipTest(f"HEDDLE_OFFLINE: {package} is not in the cache, the styles of its templates are not covered")
                found = found_in(folder)
                self.assertLessEqual(expected.keys(), found.keys())
                self.assertEqual(found, {name: expected.get(name, ["none", ""]) for name in found})


if __name__ == "__main__":
    DRIVER = sys.argv.pop(1)
    unittest.main()
