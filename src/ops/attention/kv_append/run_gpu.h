#pragma once

#include "heddle/ops/kv_cache.h"

namespace heddle {

/// A checked call of kv_init, or of kv_append where seq_indptr is absent, on a GPU. Throws kUnsupported in a build without CUDA.
void append_on_cuda(const ExecContext& ctx, const PagedKv& cache, const PageTable& table,
                    const ConstTensorView& k, const ConstTensorView& v,
                    const ConstTensorView& seq_indptr);

/// The same of rope_kv_append; q and positions may be absent.
void rope_append_on_cuda(const ExecContext& ctx, const TensorView& q, const PagedKv& cache,
                         const PageTable& table, const ConstTensorView& k, const ConstTensorView& v,
                         const ConstTensorView& seq_indptr, const ConstTensorView& positions,
                         const RopeParams& rope);

}  // namespace heddle
