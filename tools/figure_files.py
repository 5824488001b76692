"""Files of figures: results as JSON, and pages that have a table of them between two markers."""

import json
import statistics
import sys

MIN_SAMPLES = 5
END = "<!-- end of table -->\n"


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def write_results(path, results):
    """One record a line, so that differences can be read."""
    head = json.dumps({key: value for key, value in results.items() if key != "records"}, indent=1)
    lines = ",\n".join("  " + json.dumps(record) for record in results["records"])
    path.write_text(f'{head[:-2]},\n "records": [\n{lines}\n ]\n}}\n')


def records_of(report, bench, case_of):
    """The records of one program with their machine, clocks and commit; stops at what is no proof."""
    if not bench["ok"]:
        sys.exit(f"the run of {bench['program']} failed")
    for record in bench["records"]:
        if len(record["samples"]) < MIN_SAMPLES:
            sys.exit(f"only {len(record['samples'])} samples: {case_of(record)}")
        yield {**record, "us": statistics.median(record["samples"]), "program": bench["program"],
               "device": report["device"]["name"], "clocks": bench["clocks"], "commit": report["commit"]}


def collected(what, reports, programs, case_of, old=None):
    """The results of `programs`: later reports replace earlier ones and the old results, program by program."""
    records, found = {program: [] for program in programs}, old or {"device": None, "nvcc": None}
    for record in (old or {"records": []})["records"]:
        records[record["program"]].append(record)
    for report in reports:
        if "H200" not in report["device"]["name"]:
            sys.exit(f"the report is of a {report['device']['name']}; the peers were measured on an H200")
        if report.get("quick"):
            sys.exit("the report is of a quick run")
        benches = [bench for bench in report["benches"] if bench["program"] in programs]
        if not benches:
            sys.exit(f"the report has no run of {', '.join(programs)}")
        for bench in benches:
            records[bench["program"]] = list(records_of(report, bench, case_of))
            found = report
    return {"what": f"{what} on one H200, from reports of tools/gpu_check", "device": found["device"], "nvcc": found["nvcc"],
            "records": [record for program in programs for record in records[program]]}


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
