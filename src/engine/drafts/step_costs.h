#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

/// A measured step.
struct StepCost {
  int64_t num_tokens = 0;
  double seconds = 0;
};

/// What a step of n tokens costs.
///
///   const StepCosts costs(std::vector<StepCost>{{1, 10e-3}, {8, 11e-3}, {16, 14e-3}});
///   costs.seconds(4);   // between 10 and 11 ms
///   costs.seconds(32);  // 20 ms: 3/8 ms for each token more, as from 8 to 16
///
/// The costs are those of the table, linear between its entries, those of its first entry below,
/// and continued with the slope of its last two entries; where that slope is 0, with the slope from
/// the first entry to the last. They never fall: what disturbs a measurement makes it longer, so a
/// step costs no more than a longer one that was measured. Without entries every step costs 1.
class StepCosts {
 public:
  StepCosts() = default;
  /// Entries in any order. Those without a finite time above 0 and at least one token are left out;
  /// of equal ones the shortest counts.
  explicit StepCosts(std::span<const StepCost> measured);

  [[nodiscard]] double seconds(int64_t num_tokens) const;
  /// The table, ascending in both.
  [[nodiscard]] std::span<const StepCost> table() const { return table_; }

 private:
  std::vector<StepCost> table_;
  double slope_ = 0;  // past the last entry
};

}  // namespace heddle
