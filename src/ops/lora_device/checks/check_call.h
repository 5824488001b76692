#pragma once

#include <span>

#include "heddle/core/context.h"
#include "heddle/ops/lora.h"

// What is checked of a call on every device. None of it reads device memory.

namespace heddle {

/// f32, f16 or bf16, the last axis without gaps.
void check_floats(const char* tensor, const ConstTensorView& t);

/// What is wrong with a table whatever the batch is.
void check_table(const ExecContext& ctx, const char* name, const LoraTable& table);

/// The extent called `extent_name` is what the table says of its slice, where it says so.
void check_features(const char* extent_name, int64_t extent, const char* name,
                    const LoraTable& table, int slice);

enum class TakesPairs { kNo, kYes };

/// Checks the shapes and dtypes of the batch's arrays for a call of num_tokens rows.
void check_batch(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
                 TakesPairs takes_pairs = TakesPairs::kNo);

/// The checks of lora_apply that need no look at device memory.
void check_apply(const ExecContext& ctx, std::span<const LoraSlice> slices,
                 const ConstTensorView& x, const LoraTable& a, const LoraTable& b,
                 const LoraBatch& batch);

}  // namespace heddle
