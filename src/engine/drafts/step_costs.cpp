#include "engine/drafts/step_costs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace heddle {
namespace {

double slope_between(const StepCost& a, const StepCost& b) {
  return (b.seconds - a.seconds) / static_cast<double>(b.num_tokens - a.num_tokens);
}

}  // namespace

StepCosts::StepCosts(std::span<const StepCost> measured) {
  for (const StepCost& each : measured) {
    if (each.num_tokens >= 1 && std::isfinite(each.seconds) && each.seconds > 0) {
      table_.push_back(each);
    }
  }
  std::ranges::stable_sort(table_, {}, &StepCost::num_tokens);
  for (size_t i = table_.size(); i-- > 1;) {
    table_[i - 1].seconds = std::min(table_[i - 1].seconds, table_[i].seconds);
  }
  // Of equal numbers of tokens the first has the least now.
  const auto is_same = [](const StepCost& a, const StepCost& b) {
    return a.num_tokens == b.num_tokens;
  };
  table_.erase(std::unique(table_.begin(), table_.end(), is_same), table_.end());
  if (table_.size() < 2) return;
  slope_ = slope_between(table_[table_.size() - 2], table_.back());
  if (slope_ == 0) slope_ = slope_between(table_.front(), table_.back());
}

double StepCosts::seconds(int64_t num_tokens) const {
  if (table_.empty()) return 1;
  const auto after = std::ranges::upper_bound(table_, num_tokens, {}, &StepCost::num_tokens);
  if (after == table_.begin()) return after->seconds;
  const StepCost& before = *(after - 1);
  const double slope = after == table_.end() ? slope_ : slope_between(before, *after);
  return before.seconds + slope * static_cast<double>(num_tokens - before.num_tokens);
}

}  // namespace heddle
