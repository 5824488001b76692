"""The drop-in modules on torch's CUDA tensors: the published calls, and Punica's other functions."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import Framework
from test_lorax_ops import test_by_keyword
from test_published_calls import (
    installed,
    test_bgmv_expand_slice,
    test_metadata_kernels,
    test_mtp_utils,
    test_punica_kernels,
    test_sgmv_shrink,
)
from test_punica_attention import check_attention, test_append_kv, test_init_kv
from test_punica_lora import check_bgmv, check_sgmv
from torch_on_gpu import framework

__all__ = [
    "framework",
    "installed",
    "test_bgmv_expand_slice",
    "test_by_keyword",
    "test_metadata_kernels",
    "test_mtp_utils",
    "test_punica_kernels",
    "test_sgmv_shrink",
]

# Their parameters are for the CPU.
check_append, check_init = test_append_kv, test_init_kv
del test_append_kv, test_init_kv
each_half = pytest.mark.parametrize("dtype", ["f16", "bf16"])


@each_half
def test_products_by_address(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    check_bgmv(framework, rng, dtype, "i64", "whole", wide=False)
    for name in ("sgmv_shrink", "sgmv_cutlass"):
        check_sgmv(framework, rng, name, dtype, "i32", "whole", wide=False)


@each_half
def test_new_tokens_by_address(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    check_init(framework, rng, dtype, "i64", "whole", 64, 16)
    check_append(framework, rng, dtype, "i32", "whole")


@each_half
@pytest.mark.parametrize("rope", ["llama", "none"])
def test_attention_over_pages_by_address(
    framework: Framework, rng: np.random.Generator, dtype: str, rope: str
) -> None:
    for decode in (False, True):
        lengths = [5, 16, 33, 900 if decode else 90]
        new = [1] * 4 if decode else [5, 3, 0, 70]
        check_attention(
            framework, rng, new, lengths, dtype=dtype, decode=decode, rope=rope, lse_error=8e-3
        )
