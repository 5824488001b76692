#pragma once

#include "heddle/ops/kv_cache.h"

namespace heddle::cuda::attention {

/// New keys and values on their way into a cache, checked: the arguments of kv_init, kv_append and
/// rope_kv_append.
struct AppendArgs {
  const PagedKv& cache;
  const PageTable& table;
  const ConstTensorView& k;
  const ConstTensorView& v;
  const ConstTensorView& seq_indptr;  // absent: one token for each sequence
};

/// kv_init, or kv_append where seq_indptr is absent.
void run_append(const ExecContext& ctx, const AppendArgs& args);

/// rope_kv_append; q and positions may be absent.
void run_rope_append(const ExecContext& ctx, const AppendArgs& args, const TensorView& q,
                     const ConstTensorView& positions, const RopeParams& rope);

}  // namespace heddle::cuda::attention
