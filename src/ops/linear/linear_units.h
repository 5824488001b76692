#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "heddle/core/workspace.h"
#include "heddle/ops/linear.h"

#include "core/fetch_ahead.h"
#include "core/math.h"
#include "ops/linear/cpu/int8_rows.h"
#include "ops/linear/format/packed_layout.h"

namespace heddle {

/// Outputs of a unit, which a thread takes at least: four groups of 16, what a kernel computes at
/// once. The units of all outputs of a call count in a row.
inline constexpr int64_t kUnitGroups = 4;
inline constexpr int64_t kUnitOutputs = kUnitGroups * PackedLayout::kGroup;

[[nodiscard]] inline int64_t num_units(const PackedWeight& weight) {
  return ceil_div(weight.out_features, kUnitOutputs);
}

/// Checks the arguments of a call. Returns how many units it has, 0 where there is nothing to do.
int64_t check_linear(const ExecContext& ctx, std::span<const LinearOutput> outputs,
                     const ConstTensorView& x);

/// Units that a thread takes at once.
int64_t units_per_item(const ExecContext& ctx, int64_t num_units);

/// x as the products of a call read it, rounded once for all of them where some take it so.
class LinearInput {
 public:
  LinearInput(const ExecContext& ctx, std::span<const LinearOutput> outputs,
              const ConstTensorView& x, LinearActivations activations);

  [[nodiscard]] const ConstTensorView& x() const { return x_; }
  /// The rows from `row` on, for products with a weight of this type; absent: they take x.
  [[nodiscard]] std::optional<cpu::Int8Rows> rounded(WeightType type, int64_t row) const;

 private:
  std::optional<Workspace::Scope> scope_;
  cpu::Int8Rows rounded_;
  const ConstTensorView& x_;
};

/// The products of units [begin, end) of one output, for all rows. `ahead`, if any, takes num_steps
/// steps, or a few times as many.
void run_units(const LinearOutput& output, const LinearInput& input, int64_t begin, int64_t end,
               cpu::FetchAhead* ahead = nullptr);
[[nodiscard]] int64_t num_steps(const LinearOutput& output, int64_t begin, int64_t end);

/// Calls run(output, begin, end) for the parts of the call's units [begin, end): the index of an
/// output, and units of it.
template <class Run>
void for_units(std::span<const LinearOutput> outputs, int64_t begin, int64_t end, Run&& run) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t n = num_units(outputs[i].weight);
    if (begin < n && end > 0) run(i, begin > 0 ? begin : 0, end < n ? end : n);
    begin -= n;
    end -= n;
  }
}

}  // namespace heddle
