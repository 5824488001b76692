#include "ops/lora/adapter_table_python.h"

#include <algorithm>
#include <utility>

#include "heddle/core/error.h"

namespace heddle::python {

template <class Body>
void PyAdapterTable::run(const BorrowedArrays& arrays, const Body& body) {
  const Device device = table_.view().device;
  if (device.type == DeviceType::kCpu) return body(ExecContext{});
  const ContextLease lease(device, arrays.stream(), 0, Kernels::kCpuAndCuda);
  body(lease.context());
}

void PyAdapterTable::set(int32_t slot, int32_t slice, nb::handle weight, float scale) {
  Held next{nb::borrow(weight), std::make_unique<BorrowedArrays>()};
  const TensorView view = next.memory->borrow("weight", weight, Access::kRead);
  const Device device = table_.view().device;
  HEDDLE_CHECK(view.device() == device, "weight is on ", view.device(), ", but the table on ",
               device);
  run(*next.memory, [&](const ExecContext& ctx) { table_.set(ctx, slot, slice, view, scale); });
  held(slot)[static_cast<size_t>(slice)] = std::move(next);
}

void PyAdapterTable::clear(int32_t slot) {
  HEDDLE_CHECK(slot >= 0 && slot < num_slots_, "slot is ", slot, ", expected 0 to ",
               num_slots_ - 1);
  const std::span<Held> weights = held(slot);
  const auto first =
      std::ranges::find_if(weights, [](const Held& h) { return h.array.is_valid(); });
  if (first == weights.end()) return;  // no slice of it was ever set
  BorrowedArrays now;
  (void)now.borrow("weight", first->array, Access::kRead);
  run(now, [&](const ExecContext& ctx) { table_.clear(ctx, slot); });
  for (Held& weight : weights) weight = {};
}

}  // namespace heddle::python
