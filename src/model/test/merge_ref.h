#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "model/adapters/merge/merge_tensors.h"

namespace heddle::model::ref {

/// A tensor of a merge in double.
struct TaskTensor {
  std::vector<double> values;
  double weight = 1;
  uint32_t place = 0;
};

/// v_j without the values that the rule leaves out.
inline std::vector<double> thinned(const TaskTensor& task, const AdapterMergeRule& rule,
                                   uint32_t tensor) {
  std::vector<double> kept(task.values.size());
  const bool draws = rule.method == AdapterMergeRule::Method::kDareLinear ||
                     rule.method == AdapterMergeRule::Method::kDareTies;
  std::vector<size_t> order(kept.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t i, size_t j) {
    return std::abs(task.values[i]) > std::abs(task.values[j]);
  });
  if (!draws) order.resize(static_cast<size_t>(rule.density * static_cast<double>(kept.size())));
  for (const size_t i : order) {
    if (!draws) kept[i] = task.values[i];
    if (draws && is_drawn(rule, tensor, task.place, static_cast<int64_t>(i))) {
      kept[i] = task.values[i];
    }
  }
  return kept;
}

/// What merge_tensors makes, from its definition.
inline std::vector<double> merge(const std::vector<TaskTensor>& tasks, const AdapterMergeRule& rule,
                                 uint32_t tensor) {
  std::vector<std::vector<double>> kept;
  for (const TaskTensor& task : tasks) kept.push_back(thinned(task, rule, tensor));
  const auto sign = [](double x) { return (x > 0) - (x < 0); };
  std::vector<double> merged(kept.front().size());
  for (size_t i = 0; i < merged.size(); ++i) {
    double total = 0, balance = 0;
    for (const std::vector<double>& values : kept) {
      total += values[i];
      balance += sign(values[i]);
    }
    const bool by_total = rule.majority_sign == AdapterMergeRule::MajoritySign::kTotal;
    const int majority = (by_total ? total : balance) >= 0 ? 1 : -1;
    const bool elects = rule.method == AdapterMergeRule::Method::kTies ||
                        rule.method == AdapterMergeRule::Method::kDareTies;
    int count = 0;
    for (size_t j = 0; j < tasks.size(); ++j) {
      if (elects && sign(kept[j][i]) != majority) continue;
      merged[i] += tasks[j].weight * kept[j][i];
      ++count;
    }
    if (elects) merged[i] /= std::max(count, 1);
    const bool draws = rule.method == AdapterMergeRule::Method::kDareLinear ||
                       rule.method == AdapterMergeRule::Method::kDareTies;
    if (draws) merged[i] /= rule.density;
  }
  return merged;
}

}  // namespace heddle::model::ref
