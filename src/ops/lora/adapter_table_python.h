#pragma once

#include <memory>
#include <span>
#include <vector>

#include "heddle/ops/lora_table.h"

#include "bindings/arrays.h"
#include "bindings/contexts.h"

namespace heddle::python {

/// heddle.AdapterTable: the library's table, and the arrays that its entries point to.
class PyAdapterTable {
 public:
  PyAdapterTable(Device device, int32_t num_slots, std::span<const int64_t> features,
                 int32_t max_rank, DType dtype, LoraLayout layout, LoraAlignment fit)
      : table_(ExecContext{.device = device}, num_slots, features, max_rank, dtype, layout, fit),
        num_slots_(num_slots),
        features_(features.begin(), features.end()),
        held_(static_cast<size_t>(num_slots) * features.size()) {}

  void set(int32_t slot, int32_t slice, nb::handle weight, float scale);
  /// On a GPU, on the stream that the framework of the slot's weights works on now.
  void clear(int32_t slot);

  [[nodiscard]] LoraTable view() const { return table_.view(); }
  [[nodiscard]] const std::vector<int64_t>& features() const { return features_; }

 private:
  /// A weight that the table points to.
  struct Held {
    nb::object array;
    std::unique_ptr<BorrowedArrays> memory;
  };
  [[nodiscard]] std::span<Held> held(int32_t slot) {
    return std::span(held_).subspan(static_cast<size_t>(slot) * features_.size(), features_.size());
  }
  /// body(context) with a context of the table's device; on a GPU on the stream of `arrays`.
  template <class Body>
  void run(const BorrowedArrays& arrays, const Body& body);

  AdapterTable table_;
  int32_t num_slots_;
  std::vector<int64_t> features_;
  std::vector<Held> held_;  // [num_slots, num_slices]
};

}  // namespace heddle::python
