#!/usr/bin/env python3
"""Fails where a file of bench/results does not say what was measured, or tests/conformance/record.json what was compared:
check_records.py [--self-test]

Every record says, itself or at the head of its file, which commit was measured ("commit", 7 to 40 hexadecimal digits) and on which day
("date", 2026-01-31), and has all its samples. Where two commits are compared, "before" is the other one, and both have samples:

  {"commit": "36235a5", "date": "2026-11-23", "records": [{"op": "rms_norm", "us": 3.6, "samples": [3.6, 3.5]}]}
  {"before": "5d765f0", "commit": "36235a5", "date": ..., "records": [{"op": ..., "before_samples": [...], "samples": [...]}]}

A record of conformance says in how many comparisons both sides differ, of all of a whole run on a tree without changes:

  {"commit": "36235a5", "date": ..., "changed files": 0, "not covered": [], "records": [{"kind": "family", "compared": 7, "differ": 0}]}
"""

import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = ("records", "results")
CONFORMANCE = ROOT / "tests/conformance/record.json"


def is_commit(text):
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{7,40}", text) is not None


def is_day(text):
    return isinstance(text, str) and re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", text) is not None


def are_samples(values):
    return isinstance(values, list) and len(values) > 0 and all(isinstance(v, (int, float)) and math.isfinite(v) for v in values)


def faults_of(report):
    """What is missing in the text of a file, as sentences."""
    lists = [report[name] for name in LISTS if name in report]
    if not any(lists):
        return [f"has no {' and no '.join(LISTS)}"]
    faults = []
    for record in (record for records in lists for record in records):
        said = {**report, **record}
        wanted = {"commit": is_commit, "date": is_day} | ({"before": is_commit} if "before" in report else {})
        lacking = [name for name, is_fine in wanted.items() if not is_fine(said.get(name))]
        samples = ("samples", "before_samples") if "before" in report else ("samples",)
        lacking += [name for name in samples if not are_samples(record.get(name))]
        if lacking:
            what = json.dumps({key: value for key, value in record.items() if not isinstance(value, (list, dict))})[:120]
            faults.append(f"{what} lacks {', '.join(lacking)}")
    return faults


def faults_of_conformance(report):
    """The faults of a record of conformance."""
    head = {"commit": is_commit, "date": is_day, "changed files": lambda count: count == 0, "not covered": lambda names: names == []}
    faults = [f"{name} is {report.get(name)}" for name, is_fine in head.items() if not is_fine(report.get(name))]
    if not report.get("records"):
        faults.append("has no records")
    for record in report.get("records", []):
        compared, differ = record.get("compared"), record.get("differ")
        if not (isinstance(compared, int) and isinstance(differ, int) and 0 <= differ and 0 < compared):
            faults.append(f"{record.get('kind')} {record.get('name')} compares {compared}, of which {differ} differ")
    return faults


def self_test_conformance():
    record = {"kind": "family", "name": "olmo2", "compared": 7, "differ": 0}
    fine = {"commit": "36235a5", "date": "2026-11-23", "changed files": 0, "not covered": [], "records": [record]}
    assert faults_of_conformance(fine) == []
    for spoilt in ({"commit": "36235a5-modified"}, {"date": ""}, {"changed files": 1}, {"not covered": ["trl"]}, {"records": []},
                   {"records": [{**record, "compared": 0}]}, {"records": [record, {"kind": "family"}]}):
        assert len(faults_of_conformance({**fine, **spoilt})) == 1, spoilt


def self_test():
    record = {"op": "rms_norm", "samples": [3.5, 3]}
    fine = {"commit": "36235a5", "date": "2026-11-23", "records": [record]}
    pair = {**fine, "before": "5d765f0", "records": [{**record, "before_samples": [4]}]}
    in_record = {"results": [{**record, "commit": "36235a568c8d06458f535e98b4d13196e0c926ff", "date": "2026-11-23"}]}
    for report in (fine, pair, in_record):
        assert faults_of(report) == [], faults_of(report)
    spoilt = ({}, {**fine, "records": []}, {**fine, "commit": "36235a5-modified"}, {**fine, "date": "today"},
              {"records": [record]}, {**pair, "records": [record]}, {**pair, "before": ""},
              {**fine, "records": [record, {"op": "rope", "us": 3.5}]}, {**fine, "records": [{"samples": []}]},
              {**fine, "records": [{"samples": [math.nan]}]}, {**fine, "records": [{"samples": ["3.5"]}]})
    for report in spoilt:
        assert len(faults_of(report)) == 1, report


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        self_test_conformance()
        print("check_records.py: self-test passed")
        return 0
    files = sorted(ROOT.glob("bench/results/*.json"))
    of_files = [(path, faults_of) for path in files] + [(CONFORMANCE, faults_of_conformance)] * CONFORMANCE.exists()
    faults = [f"{path.relative_to(ROOT)}: {fault}" for path, faults_in in of_files for fault in faults_in(json.loads(path.read_text()))]
    print("\n".join(faults[:20]) or f"{len(of_files)} files of records say commit, day and samples")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
