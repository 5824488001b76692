#pragma once

#include <cstdint>

#include "ops/attention/prefill/prefill_params.h"

namespace heddle::cuda::attention {

/// What the prefill kernel for compute capability 9.0 takes.
struct PrefillSm90Params {
  PrefillParams common;
  int num_items = 0;  // at most: those without rows are passed over
  /// Items taken, and blocks that have ended; zero between calls. Null: blocks take items in turn.
  uint32_t* counter = nullptr;
};
/// What it takes where the cache is f8e4m3.
struct CodePrefillSm90Params : PrefillSm90Params {
  KvScaleParams scales;
};

}  // namespace heddle::cuda::attention
