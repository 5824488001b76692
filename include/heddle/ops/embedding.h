#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// y[t] = T(table[token_ids[t]])
///   y         [num_tokens, width]  f32, or the table's dtype
///   token_ids [num_tokens]         i32|i64; an id outside [0, vocab_size) gives a row of zeros,
///                                  a fault on CUDA, and is an error with HEDDLE_VALIDATE=1
///   table     [vocab_size, width]  f32|f16|bf16; last axis without gaps, rows of any stride
/// Exact: the table's values are copied or widened. Tables of quantised blocks: see linear.h.
void embedding(const ExecContext& ctx, TensorView y, ConstTensorView token_ids,
               ConstTensorView table);

}  // namespace heddle
