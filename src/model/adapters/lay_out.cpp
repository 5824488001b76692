#include "model/adapters/lay_out.h"

#include <array>
#include <cstring>

#include "heddle/core/dispatch.h"

namespace heddle::model {
namespace {

// How PEFT stores the two halves: A [rank, in_features], B [out_features, rank].
constexpr LoraLayout kStoredA = LoraLayout::kRankMajor, kStoredB = LoraLayout::kRankMinor;

AdapterHalf half_of(const StoredValues& stored, LoraLayout stored_layout, LoraLayout layout,
                    const LoraForm& form) {
  const bool is_a = stored_layout == kStoredA, rank_major = layout == LoraLayout::kRankMajor;
  const int64_t stored_rank = is_a ? stored.rows : stored.columns;
  const int64_t features = is_a ? stored.columns : stored.rows;
  const int64_t rank = AdapterTable::fitting_rank(stored_rank, form.fit);
  const DType dtype = form.dtype.value_or(stored.dtype);
  return {stored.data,
          stored.dtype,
          stored_layout,
          stored_rank,
          features,
          dtype,
          layout,
          rank,
          AdapterTable::fitting_row_stride(rank_major ? features : rank, dtype, form.fit)};
}

/// Elements between neighbours along the two axes of a weight.
struct Steps {
  int64_t rank, feature;
};
Steps steps_of(LoraLayout layout, int64_t row_stride) {
  return layout == LoraLayout::kRankMajor ? Steps{row_stride, 1} : Steps{1, row_stride};
}

template <class To, class From>
To converted(const std::byte* from) {
  From value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::is_same_v<To, From>) {
    return value;  // all bits, those of a NaN too
  } else {
    return from_float<To>(to_float(value));
  }
}

template <class To, class From>
void copy_elements(std::byte* to, const AdapterHalf& half) {
  const Steps to_steps = steps_of(half.layout, half.row_stride);
  const bool rank_major = half.stored_layout == LoraLayout::kRankMajor;
  const Steps steps = steps_of(half.stored_layout, rank_major ? half.features : half.stored_rank);
  // Along the axis without gaps of what is written.
  const bool rank_inside = to_steps.rank == 1 && to_steps.feature != 1;
  const int64_t outer = rank_inside ? half.features : half.stored_rank;
  const int64_t inner = rank_inside ? half.stored_rank : half.features;
  const auto swapped = [&](Steps s) { return rank_inside ? s : Steps{s.feature, s.rank}; };
  const auto [from_inner, from_outer] = swapped(steps);
  const int64_t to_outer = swapped(to_steps).feature;
  for (int64_t i = 0; i < outer; ++i) {
    To* const target = reinterpret_cast<To*>(to) + i * to_outer;
    const std::byte* const source = half.data + i * from_outer * int64_t{sizeof(From)};
    if (from_inner == 1 && std::is_same_v<To, From>) {
      std::memcpy(target, source, static_cast<size_t>(inner) * sizeof(To));
      continue;
    }
    for (int64_t j = 0; j < inner; ++j) {
      target[j] = converted<To, From>(source + j * from_inner * int64_t{sizeof(From)});
    }
  }
}

}  // namespace

LoraForm LoraForm::of(DeviceType device, DType activations) {
  if (device == DeviceType::kCpu) return {LoraLayout::kRankMinor, LoraLayout::kRankMajor};
  return {kStoredA, kStoredB, LoraAlignment::k16Bytes, activations};
}

void AdapterHalf::write(std::byte* to) const {
  const size_t num_values = static_cast<size_t>(stored_rank * features);
  if (num_bytes() != num_values * size_of(dtype)) std::memset(to, 0, num_bytes());
  dispatch_dtype<float, half, bfloat16>(stored_dtype, "an adapter", [&]<class From>() {
    dispatch_dtype<float, half, bfloat16>(dtype, "an adapter",
                                          [&]<class To>() { copy_elements<To, From>(to, *this); });
  });
}

ConstTensorView AdapterHalf::view(const std::byte* at, Device device) const {
  const std::array<int64_t, 2> shape{rows(), layout == LoraLayout::kRankMajor ? features : rank};
  const std::array<int64_t, 2> strides{row_stride, 1};
  return {at, dtype, device, shape, strides};
}

std::vector<AdapterHalf> halves_of(const Adapter& adapter, const BlockShape& block,
                                   const LoraForm& form) {
  std::vector<AdapterHalf> halves;
  for (const AdapterPair& pair : adapter.pairs()) {
    halves.push_back(half_of(pair.stored_a(), kStoredA, form.a, form));
    const auto [begin, count] = block.find(*pair.module);
    int64_t first_row = 0;
    for (int i = begin; i < begin + count; ++i) {
      const int64_t rows = block.slice(i).dims.out;
      const StoredValues b = pair.stored_b().narrow(first_row, rows);
      halves.push_back(half_of(b, kStoredB, form.b, form));
      first_row += rows;
    }
  }
  return halves;
}

size_t num_bytes(const std::vector<AdapterHalf>& halves) {
  size_t bytes = 0;
  for (const AdapterHalf& half : halves) bytes += half.num_bytes();
  return bytes;
}

}  // namespace heddle::model
