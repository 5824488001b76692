"""What python/tests/test_families.py has found, out of the XML that pytest --junitxml writes."""

import collections
import xml.etree.ElementTree

EXPECTED = "model"  # the property that names the class of transformers
OF_HEDDLE = {"folder of transformers 4", "adapter and merged", "folder, KV cache f16", "folder, KV cache bf16"}  # forms that are held against another form of the same model


def records_of(path):
    """By family and form one record: how many cases there are, how many of them differ, and the largest relative error."""
    found = collections.defaultdict(list)
    for test in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        properties = [(p.get("name"), p.get("value")) for p in test.iter("property")]
        family = next((value for name, value in properties if name == EXPECTED), "").removesuffix("ForCausalLM").lower()
        for form, value in properties:
            if form != EXPECTED:
                verdict, error = value.split()
                found[family, form].append((verdict, float(error)))
    return [{"kind": "family", "name": family, "read as": form, "held against": "heddle" if form in OF_HEDDLE else "transformers",
             "compared": len(cases), "differ": sum(verdict != "equal" for verdict, _ in cases), "largest error": max(error for _, error in cases)}
            for (family, form), cases in found.items()]


def other_faults(path):
    """Tests that failed otherwise than by a comparison: a page that is not what the cases say, or a model that was not made."""
    faults = []
    for test in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        failed = test.find("failure") is not None or test.find("error") is not None
        if failed and not any(p.get("value").startswith("differs") for p in test.iter("property")):
            faults.append(test.get("name"))
    return faults
