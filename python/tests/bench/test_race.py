"""The race of bench/peers/race, as far as it goes without a GPU and without the peers' files."""

from __future__ import annotations

import enum
import pathlib
import subprocess
import sys
import zipfile
from typing import Any

import pytest
from frameworks import TORCH_WANTED

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench/peers" / folder) for folder in ("race", "stubs")]

if not TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import cells  # noqa: E402
import fetch  # noqa: E402
import serving_stubs as stubs  # noqa: E402
import sweep  # noqa: E402
import torch  # noqa: E402

L2_BYTES = 60 << 20
SMALL = [
    cells.Cell("decode", "qkv", 64, (32, 16, 16), 4, 7, 3),
    cells.Cell("prefill", "gate_up", 48, (40, 40), 8, 24, 3),
]


def test_cells_are_those_of_the_record() -> None:
    """Of all sites, and no array comes again before more than twice the L2 cache was read."""
    found = cells.all_cells()
    assert len(found) == 34 and {cell.site for cell in found} == {"qkv", "gate_up", "down"}
    assert {(c.tokens, c.adapters) for c in found} >= {(1, 1), (128, 128), (512, 8), (8192, 8)}
    for cell in found:
        assert cell.num_sets(L2_BYTES) * 2 * sum(cell.sizes()) > 2 * L2_BYTES


@pytest.mark.parametrize("cell", SMALL, ids=lambda cell: cell.site)
def test_expected_results(cell: Any) -> None:
    """Row by row and slice by slice."""
    arrays = cells.Arrays(cell, 2, "cpu", torch.float32)
    want = arrays.y[1].clone()
    for row, adapter in enumerate(cell.rows_of()):
        for s, (first, last) in enumerate(zip(cell.offsets, cell.offsets[1:], strict=False)):
            a = arrays.a[1][adapter, s * cell.rank : (s + 1) * cell.rank]
            want[row, first:last] += arrays.b[1][adapter, first:last] @ (a @ arrays.x[1][row])
    torch.testing.assert_close(arrays.expected(1), want, rtol=1e-4, atol=1e-4)
    apart_a, apart_b = arrays.apart(1)
    assert [tuple(part.shape) for part in apart_a] == [
        (cell.adapters, 1, cell.rank, cell.in_features) for _ in cell.out_features
    ]
    assert torch.equal(torch.cat([part[:, 0] for part in apart_b], 1), arrays.b[1])


def test_wrong_results_are_noticed() -> None:
    """One that is not written, one with NaN, one with a wrong row; a right one passes."""
    arrays = cells.Arrays(SMALL[0], 1, "cpu")
    want = arrays.expected(0)
    before = arrays.y[0].clone()

    def right(i: int) -> None:
        arrays.y[i].copy_(want)

    def with_nan(i: int) -> None:
        right(i)
        arrays.y[i][3, 5] = float("nan")

    def wrong_row(i: int) -> None:
        right(i)
        arrays.y[i][6] = before[6]

    assert arrays.error_of(right, 0, want) < cells.LARGEST_ERROR
    for wrong in (with_nan, wrong_row, lambda i: None):
        with pytest.raises(ArithmeticError):
            arrays.error_of(wrong, 0, want)
        assert torch.equal(arrays.y[0], before), "y is as before"


def test_settings_are_kept_with_versions(tmp_path: pathlib.Path) -> None:
    """What a sweep has found is found again, but not with another version of the peer."""
    versions = {"sglang": "0.5.23", "torch": "2", "triton": "3", "device": "H200"}
    path = tmp_path / "settings.json"
    sweep.Winners(path, versions).put(SMALL[0], "sglang", {"best": [{"us": 1.5, "setting": {}}]})
    again = sweep.Winners(path, versions)
    entry = again.of(SMALL[0], "sglang")
    assert entry is not None and entry["best"] == [{"us": 1.5, "setting": {}}]
    assert again.of(SMALL[1], "sglang") is None
    assert sweep.Winners(path, {**versions, "sglang": "0.6"}).of(SMALL[0], "sglang") is None


class Colour(str, enum.Enum):
    """Of a record."""

    RED = "red"


class Inner(stubs.Model):
    """A record in a record."""

    colours: list[Colour] | None = None
    sizes: dict[str, int] = stubs.Field(default_factory=lambda: {"n": 3})


class Outer(stubs.Model):
    """What is parsed."""

    rows: list[Inner]


def test_stand_ins_for_records() -> None:
    """Of pydantic and msgspec, as far as the peers use them."""
    outer = Outer.model_validate({"rows": [{"colours": ["red"]}, {"sizes": {"n": 4}}]})
    assert outer.rows[0].model_dump() == {"colours": [Colour.RED], "sizes": {"n": 3}}
    assert outer.rows[1].colours is None and outer.rows[1].sizes == {"n": 4}
    with pytest.raises(ValueError, match="extra"):
        Outer.model_validate({"rows": [{"extra": 1}]})

    class Pair(stubs.Struct, frozen=True, kw_only=True):
        left: int
        right: int = 2

    assert (Pair(left=1).left, Pair(left=1).right) == (1, 2)


@pytest.mark.parametrize("name", ["/etc/x", "a/../b", "a//b", "..", "a\\b", "./a"])
def test_paths_that_lead_elsewhere_are_refused(name: str) -> None:
    """Also in the list itself."""
    assert fetch.checked_name("a/b.py") == "a/b.py"
    with pytest.raises(fetch.Refused):
        fetch.checked_name(name)


def test_links_are_refused(tmp_path: pathlib.Path) -> None:
    """In a wheel, and in a source distribution that was unpacked, also as a folder."""
    wheel = tmp_path / "p.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("p/a.py", "1")
        link = zipfile.ZipInfo("p/link.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    assert fetch.from_wheel(wheel, ["p/a.py"]) == {"p/a.py": b"1"}
    for name in ("p/link.py", "p/none.py"):
        with pytest.raises(fetch.Refused):
            fetch.from_wheel(wheel, [name])
    folder = tmp_path / "unpacked"
    (folder / "p").mkdir(parents=True)
    (folder / "p/a.py").write_text("1")
    (folder / "p/link.py").symlink_to("a.py")
    (folder / "q").symlink_to("p")
    assert fetch.from_folder(folder, ["p/a.py"]) == {"p/a.py": b"1"}
    for name in ("p/link.py", "q/a.py", "p/none.py", "p"):
        with pytest.raises(fetch.Refused):
            fetch.from_folder(folder, [name])


def test_the_command_tells_its_use() -> None:
    """Without a folder."""
    command = [sys.executable, str(ROOT / "bench/peers/race/fetch.py")]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 2 and "fetch.py FOLDER" in run.stderr
