"""The wheels heddle-lora and heddle-lora-cu13 hold the same files: an environment can have one."""

from __future__ import annotations

import pathlib
import warnings


def warn_of_two(file: str) -> None:
    """Warns where both lie next to package heddle, whose file this is."""
    folder = pathlib.Path(file).parent.parent
    found = sorted({path.name.split("-")[0] for path in folder.glob("heddle_lora*-*.dist-info")})
    if len(found) > 1:
        names = " and ".join(name.replace("_", "-") for name in found)
        warnings.warn(
            f"{names} are both installed and hold the same files, those of the last one: uninstall "
            "both, then install one of them",
            RuntimeWarning,
            stacklevel=3,
        )
