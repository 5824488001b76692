#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/ops/linear.h"

#include "model/config/weight_source.h"

namespace heddle::model {

/// What became of a model's matrices where they were to be packed in another type.
struct Quantization {
  std::set<WeightType> from;      // types of the matrices that were packed
  int64_t num_kept = 0;           // matrices of dense types whose rows are no whole blocks
  double squared_difference = 0;  // sum of (packed - stored)^2
  double squared_values = 0;      // sum of stored^2

  /// sqrt(squared_difference / squared_values), 0 where nothing was packed.
  [[nodiscard]] double relative_error() const;
};

/// Brings rows of dense matrices (F32, F16, BF16) into another type, and measures what that costs.
class RowQuantizer {
 public:
  RowQuantizer(const ExecContext& ctx, WeightType type) : ctx_(ctx), type_(type) {}

  /// The type in which the tensor's rows are to be packed: its own where that is a block format,
  /// and where in_features is no multiple of the block.
  [[nodiscard]] WeightType type_of(const StoredTensor& tensor);
  /// The rows in the type; `first_row` is their place, for errors. Valid until the next call.
  [[nodiscard]] std::span<const std::byte> quantize(const StoredTensor& tensor, int64_t first_row,
                                                    std::span<const std::byte> rows);
  [[nodiscard]] const Quantization& result() const { return result_; }

 private:
  void measure(int64_t num_rows, int64_t columns);

  const ExecContext& ctx_;
  WeightType type_;
  Quantization result_;
  std::vector<float> values_, back_;           // [num_rows, columns]
  std::vector<std::byte> stored_;              // the values in the type
  std::vector<double> differences_, squares_;  // [num_rows]
};

}  // namespace heddle::model
