#pragma once

#include "heddle/ops/attention.h"

namespace heddle {

/// Elements of a head, at most.
inline constexpr int kMaxHeadDim = 256;

/// The arguments of a call of batch_prefill or batch_decode that has been checked. They are those
/// of the caller and live as long as the call.
struct AttentionArgs {
  const TensorView& o;
  const TensorView& lse;  // may be absent
  const ConstTensorView& q;
  const ConstTensorView* q_indptr;  // nullptr: batch_decode, one row of q for each sequence
  const PagedKv& cache;
  const PageTable& table;
  const AttentionOptions& options;
  int64_t num_tokens, num_seqs;
  int group_size;           // heads of q that share a kv head
  float sm_scale;           // of the options, or the default
  int64_t num_bundles = 0;  // of options.bundle_indptr
  int max_bundle = 1;       // queries of one, at most
};

}  // namespace heddle
