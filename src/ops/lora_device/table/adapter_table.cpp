#include <algorithm>
#include <limits>
#include <type_traits>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/product.h"
#include "heddle/ops/lora_table.h"

#include "core/device_bytes.h"
#include "core/math.h"
#include "core/scoped_operation.h"
#include "ops/lora_device/table/adapter_table_kernels.h"

namespace heddle {
namespace {

// The table travels to other devices as it is.
static_assert(std::is_trivially_copyable_v<LoraTable>);
static_assert(std::is_trivially_copyable_v<LoraWeight> && sizeof(LoraWeight) == 24);

int32_t checked_count(const char* name, int64_t count) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  HEDDLE_CHECK(count >= 0 && count <= kMax, name, " is ", count, ", expected 0 to ", kMax);
  return static_cast<int32_t>(count);
}

void check_float_dtype(const char* name, DType dtype) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    throw_error(ErrorCode::kUnsupported, name, " is ", dtype, ", supported: f32, f16, bf16");
  }
}

}  // namespace

LoraTable LoraTable::from_pointers(ConstTensorView pointers, DType dtype, LoraLayout layout,
                                   int64_t rank, int64_t features, int64_t layer_idx) {
  Dim slots("num_slots");
  check_shape("pointers", pointers, {&slots});
  check_dtype("pointers", pointers, {DType::kInt64});
  check_float_dtype("dtype", dtype);
  HEDDLE_CHECK(features >= 0, "features is ", features, ", expected at least 0");
  HEDDLE_CHECK(layer_idx >= 0, "layer_idx is ", layer_idx, ", expected at least 0");
  LoraTable table;
  table.num_slots = checked_count("num_slots", slots.value());
  table.max_rank = checked_count("rank", rank);
  table.dtype = dtype;
  table.device = pointers.device();
  table.layout = layout;
  table.pointers = pointers.data<int64_t>();
  table.pointer_stride = pointers.stride(0);
  table.element_offset =
      checked_product("elements in front of the layer", {layer_idx, rank, features});
  table.row_stride = layout == LoraLayout::kRankMajor ? features : rank;
  return table;
}

LoraTable LoraTable::from_stack(ConstTensorView weights, LoraLayout layout) {
  HEDDLE_CHECK(weights.rank() == 3, "weights has rank ", weights.rank(), ", expected 3");
  check_dtype("weights", weights, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_unit_stride("weights", weights);
  const int rank_axis = layout == LoraLayout::kRankMajor ? 1 : 2;
  LoraTable table;
  table.num_slots = checked_count("num_slots", weights.size(0));
  table.max_rank = checked_count("rank", weights.size(rank_axis));
  table.dtype = weights.dtype();
  table.device = weights.device();
  table.layout = layout;
  table.stack = weights.raw();
  table.slot_stride = weights.stride(0);
  table.row_stride = weights.stride(1);
  return table;
}

LoraWeight LoraTable::weight(int64_t slot, int64_t slice) const {
  if (entries != nullptr) return entries[slot * num_slices + slice];
  const auto element = static_cast<int64_t>(size_of(dtype));
  LoraWeight w{.rank = max_rank, .row_stride = row_stride};
  const std::byte* address =
      pointers == nullptr ? stack + slot * slot_stride * element
                          : reinterpret_cast<const std::byte*>(pointers[slot * pointer_stride]);
  if (address != nullptr) w.data = address + element_offset * element;
  return w;
}

int64_t AdapterTable::fitting_rank(int64_t rank, LoraAlignment fit) {
  return fit == LoraAlignment::kNone ? rank : round_up(rank, lora_rank_unit(rank));
}

int64_t AdapterTable::fitting_row_stride(int64_t row_elements, DType dtype, LoraAlignment fit) {
  const int64_t unit = kVectorBytes / static_cast<int64_t>(size_of(dtype));
  return fit == LoraAlignment::kNone ? row_elements : round_up(row_elements, unit);
}

void AdapterTable::FreeEntries::operator()(LoraWeight* entries) const noexcept {
  FreeDeviceBytes{device.type, bytes}(reinterpret_cast<std::byte*>(entries));
}

AdapterTable::AdapterTable(const ExecContext& ctx, int32_t num_slots,
                           std::span<const int64_t> features, int32_t max_rank, DType dtype,
                           LoraLayout layout, LoraAlignment fit)
    : device_(ctx.device),
      num_slots_(checked_count("num_slots", num_slots)),
      max_rank_(max_rank),
      dtype_(dtype),
      layout_(layout),
      fit_(fit),
      features_(features.begin(), features.end()) {
  check_float_dtype("dtype", dtype);
  HEDDLE_CHECK(max_rank >= 0 && max_rank <= kMaxLoraRank, "max_rank is ", max_rank,
               ", expected 0 to ", kMaxLoraRank);
  HEDDLE_CHECK(!features.empty(), "features is empty, expected one number for each slice");
  for (size_t s = 0; s < features.size(); ++s) {
    HEDDLE_CHECK(features[s] >= 0, "features[", s, "] is ", features[s], ", expected at least 0");
  }
  const size_t num_entries = static_cast<size_t>(num_slots) * features.size();
  const size_t bytes = num_entries * sizeof(LoraWeight);
  DeviceBytes memory = allocate_zeroed(device_, bytes);
  entries_ = {reinterpret_cast<LoraWeight*>(memory.release()), FreeEntries{device_, bytes}};
}

void AdapterTable::check_slot(const ExecContext& ctx, int32_t slot) const {
  HEDDLE_CHECK(ctx.device == device_, "the table is on ", device_, ", the context runs on ",
               ctx.device);
  HEDDLE_CHECK(slot >= 0 && slot < num_slots_, "slot is ", slot, ", expected 0 to ",
               num_slots_ - 1);
}

void AdapterTable::check_fit(const ConstTensorView& weight, int64_t rank) const {
  if (fit_ == LoraAlignment::kNone) return;
  constexpr const char* kAdvice =
      " in a table of aligned weights: copy it to a place that fits, "
      "or make the table without that promise";
  const auto address = reinterpret_cast<uintptr_t>(weight.raw());
  HEDDLE_CHECK(address % kVectorBytes == 0, "weight begins ", address % kVectorBytes,
               " bytes past a multiple of ", kVectorBytes, kAdvice);
  const int64_t row_bytes = weight.stride(0) * static_cast<int64_t>(size_of(dtype_));
  HEDDLE_CHECK(row_bytes % kVectorBytes == 0, "weight.stride(0) is ", weight.stride(0),
               " elements, ", row_bytes, " bytes, expected a multiple of ", kVectorBytes, " bytes",
               kAdvice);
  HEDDLE_CHECK(weight.stride(0) <= kMaxVectorStride, "weight.stride(0) is ", weight.stride(0),
               ", expected at most ", kMaxVectorStride, kAdvice);
  const int64_t unit = lora_rank_unit(rank);
  HEDDLE_CHECK(rank % unit == 0, "the rank of weight is ", rank, ", expected a multiple of ", unit,
               " in a table of aligned weights: fill it up with zeros, or make the table without "
               "that promise");
}

void AdapterTable::write_entries(const ExecContext& ctx, int64_t first, int64_t count,
                                 const LoraWeight& value) {
  if (device_.type == DeviceType::kCpu) {
    std::fill_n(entries_.get() + first, count, value);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("AdapterTable");
    cuda::lora::write_entries(entries_.get() + first, count, value, ctx.stream);
  }
}

void AdapterTable::check_slice(int32_t slice) const {
  const auto num_slices = static_cast<int32_t>(features_.size());
  HEDDLE_CHECK(slice >= 0 && slice < num_slices, "slice is ", slice, ", expected 0 to ",
               num_slices - 1);
}

LoraEntryChange AdapterTable::change(const ExecContext& ctx, int32_t slot, int32_t slice,
                                     ConstTensorView weight, float scale) const {
  check_slot(ctx, slot);
  check_slice(slice);
  Dim rank("rank"), features("features[slice]", features_[static_cast<size_t>(slice)]);
  const bool rank_major = layout_ == LoraLayout::kRankMajor;
  check_device(ctx, {{"weight", weight}});
  check_shape("weight", weight, {rank_major ? &rank : &features, rank_major ? &features : &rank});
  check_dtype("weight", weight, {dtype_});
  check_unit_stride("weight", weight);
  HEDDLE_CHECK(rank.value() >= 1 && rank.value() <= max_rank_, "weight.size(", rank_major ? 0 : 1,
               ") is rank = ", rank.value(), ", expected 1 to max_rank = ", max_rank_);
  check_fit(weight, rank.value());
  return {entries_.get() + slot * std::ssize(features_) + slice,
          {.data = weight.raw(),
           .rank = static_cast<int32_t>(rank.value()),
           .scale = scale,
           .row_stride = weight.stride(0)}};
}

LoraEntryChange AdapterTable::change_to_none(const ExecContext& ctx, int32_t slot,
                                             int32_t slice) const {
  check_slot(ctx, slot);
  check_slice(slice);
  return {entries_.get() + slot * std::ssize(features_) + slice, {}};
}

void AdapterTable::apply(const ExecContext& ctx, std::span<const LoraEntryChange> changes) {
  if (ctx.device.type == DeviceType::kCpu) {
    for (const auto& [entry, value] : changes) *entry = value;
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("AdapterTable");
    cuda::lora::change_entries(changes, ctx.stream);
  }
}

void AdapterTable::set(const ExecContext& ctx, int32_t slot, int32_t slice, ConstTensorView weight,
                       float scale) {
  const LoraEntryChange made = change(ctx, slot, slice, weight, scale);
  apply(ctx, {&made, 1});
}

void AdapterTable::clear(const ExecContext& ctx, int32_t slot) {
  check_slot(ctx, slot);
  const auto num_slices = static_cast<int64_t>(features_.size());
  write_entries(ctx, slot * num_slices, num_slices, LoraWeight{});
}

LoraTable AdapterTable::view() const {
  return {.entries = entries_.get(),
          .num_slots = num_slots_,
          .num_slices = static_cast<int32_t>(features_.size()),
          .max_rank = max_rank_,
          .dtype = dtype_,
          .device = device_,
          .layout = layout_,
          .is_aligned = fit_ == LoraAlignment::k16Bytes,
          .features = features_.data()};
}

}  // namespace heddle
