#pragma once

#include <cstdint>

#include "heddle/ops/linear.h"

#include "core/fetch_ahead.h"
#include "ops/linear/cpu/int8_rows.h"

namespace heddle::cpu::linear {

/// A part of a product: all rows of x times some consecutive groups of 16 outputs.
struct LinearTask {
  WeightType type = WeightType::kF32;
  const uint8_t* packed = nullptr;  // the first group
  int64_t group_stride = 0;         // bytes from group to group
  int64_t in_features = 0;
  const float* x = nullptr;  // [num_rows, in_features]
  int64_t x_stride = 0;
  float* y = nullptr;  // [num_rows, num_outputs]
  int64_t y_stride = 0;
  int64_t num_rows = 0;
  int64_t num_outputs = 0;
  Int8Rows int8_x{};            // x rounded to 8 bits, of run_int8_task, which does not read x
  FetchAhead* ahead = nullptr;  // takes a step with each block of weights, or of a panel's
};

/// Runs a task in the calling thread with the best instruction set of this machine. The formats
/// whose codes have a plane of high bits (Q5_0, Q5_1, Q5_K, Q6_K) are compiled apart from the
/// others: run_high_bits_task takes those, run_linear_task all others.
void run_linear_task(const LinearTask& task);
void run_high_bits_task(const LinearTask& task);
/// A task of rows rounded to 8 bits, of any type that is not dense.
void run_int8_task(const LinearTask& task);
/// Rounds one row x [in_features], a multiple of kInt8Block, in the calling thread.
void round_row(const float* x, const Int8Rows& row);

}  // namespace heddle::cpu::linear
