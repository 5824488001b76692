#pragma once

#include <cstdint>
#include <limits>

#include "heddle/core/error.h"
#include "heddle/core/tensor_view.h"
#include "heddle/core/validate.h"

#include "cpu/index_array.h"

namespace heddle::cpu {

// Range checks of metadata, for ops to run where validating(). Tensors have passed the op's checks
// of shape, dtype and device and lie in host memory. Errors name the tensor, the row and the value.

inline constexpr int64_t kAnyNegative = std::numeric_limits<int64_t>::min();

/// One value: low <= value < end, where `end_name` says what `end` is.
/// "slot_ids[3] is 9, expected below num_slots = 4"
inline void check_index(const char* tensor, int64_t row, int64_t value, int64_t low, int64_t end,
                        const char* end_name) {
  HEDDLE_CHECK(value >= low, tensor, "[", row, "] is ", value, ", expected at least ", low);
  HEDDLE_CHECK(value < end, tensor, "[", row, "] is ", value, ", expected below ", end_name, " = ",
               end);
}

/// Checks an element of a matrix: "block_tables[3, 5] is 9, expected below num_blocks = 4".
inline void check_index(const char* tensor, int64_t row, int64_t column, int64_t value, int64_t low,
                        int64_t end, const char* end_name) {
  HEDDLE_CHECK(value >= low, tensor, "[", row, ", ", column, "] is ", value, ", expected at least ",
               low);
  HEDDLE_CHECK(value < end, tensor, "[", row, ", ", column, "] is ", value, ", expected below ",
               end_name, " = ", end);
}

/// Every element of a vector of i32 or i64 is in [low, end); low is 0, or kAnyNegative where
/// negative values mean "none".
inline void check_indices(const char* tensor, const ConstTensorView& t, int64_t low, int64_t end,
                          const char* end_name) {
  const IndexArray values(t);
  for (int64_t i = 0; i < t.size(0); ++i) check_index(tensor, i, values[i], low, end, end_name);
}

/// Every element of a vector of i32 or i64 is in [low, high]: for lengths and counts.
inline void check_counts(const char* tensor, const ConstTensorView& t, int64_t low, int64_t high,
                         const char* high_name) {
  const IndexArray values(t);
  for (int64_t i = 0; i < t.size(0); ++i) {
    HEDDLE_CHECK(low <= values[i] && values[i] <= high, tensor, "[", i, "] is ", values[i],
                 ", expected ", low, " to ", high_name, " = ", high);
  }
}

/// CSR starts: from 0 or more, ascending, the last at most `limit`, the rows that they cut.
inline void check_indptr(const char* tensor, const ConstTensorView& t, int64_t limit,
                         const char* limit_name) {
  const IndexArray starts(t);
  for (int64_t i = 0; i < t.size(0); ++i) {
    if (i == 0) {
      HEDDLE_CHECK(starts[0] >= 0, tensor, "[0] is ", starts[0], ", expected at least 0");
    } else {
      HEDDLE_CHECK(starts[i] >= starts[i - 1], tensor, "[", i, "] is ", starts[i],
                   ", expected at least ", tensor, "[", i - 1, "] = ", starts[i - 1]);
    }
    HEDDLE_CHECK(starts[i] <= limit, tensor, "[", i, "] is ", starts[i], ", expected at most ",
                 limit_name, " = ", limit);
  }
}

}  // namespace heddle::cpu
