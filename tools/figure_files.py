"""Files of figures: results as JSON, and pages that have a table of them between two markers."""

import json
import sys

END = "<!-- end of table -->\n"


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def write_results(path, results):
    """One record a line, so that differences can be read."""
    head = json.dumps({key: value for key, value in results.items() if key != "records"}, indent=1)
    lines = ",\n".join("  " + json.dumps(record) for record in results["records"])
    path.write_text(f'{head[:-2]},\n "records": [\n{lines}\n ]\n}}\n')


def filled(path, begin, part):
    """The page with `part` between the line `begin` and END; None where it has no such line."""
    page = path.read_text() if path.exists() else ""
    if begin not in page:
        return None
    before, _, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not end or begin in rest:
        sys.exit(f"{path}: {begin.strip()} must stand there once and be followed by {END.strip()}")
    return before + begin + "\n" + part + "\n" + END + after
