#pragma once

#include <memory>
#include <span>
#include <vector>

#include "heddle/ops/lora_table.h"

#include "arrays.h"

namespace heddle::python {

/// heddle.AdapterTable: the library's table, and the arrays that its entries point to. CPU tables only, as the library's.
class AdapterWeights {
 public:
  AdapterWeights(int32_t num_slots, std::span<const int64_t> features, int32_t max_rank,
                 DType dtype, LoraLayout layout)
      : table_(ExecContext{}, num_slots, features, max_rank, dtype, layout),
        features_(features.begin(), features.end()),
        held_(static_cast<size_t>(num_slots) * features.size()) {}

  void set(int32_t slot, int32_t slice, nb::handle weight, float scale) {
    auto held = std::make_unique<BorrowedArrays>();
    const TensorView view = held->borrow("weight", weight, Access::kRead);
    held->keep(weight);
    table_.set(ExecContext{}, slot, slice, view, scale);
    held_[static_cast<size_t>(slot) * features_.size() + static_cast<size_t>(slice)] =
        std::move(held);
  }

  void clear(int32_t slot) {
    table_.clear(ExecContext{}, slot);
    for (size_t s = 0; s < features_.size(); ++s) {
      held_[static_cast<size_t>(slot) * features_.size() + s] = nullptr;
    }
  }

  [[nodiscard]] LoraTable view() const { return table_.view(); }
  [[nodiscard]] const std::vector<int64_t>& features() const { return features_; }

 private:
  AdapterTable table_;
  std::vector<int64_t> features_;
  std::vector<std::unique_ptr<BorrowedArrays>> held_;  // [num_slots, num_slices]
};

}  // namespace heddle::python
