#include "ops/lora_device/call/lora_call.h"

#include <algorithm>
#include <limits>
#include <ostream>

#include "core/math.h"
#include "ops/lora_device/sums.h"
#include "ops/lora_device/table/adapter_table_kernels.h"

namespace heddle {
namespace {

/// Bits that are not zero where rows of elements of so many bytes do not begin at multiples of as
/// many.
template <class Byte>
uintptr_t row_bits(const BasicTensorView<Byte>& t, uintptr_t element) {
  return reinterpret_cast<uintptr_t>(t.raw()) | uintptr_t(t.stride(0)) * element;
}

/// Whether a kernel may load the rows of every weight 16 bytes at a time.
bool has_vectors(const LoraTable& table, LoraLayout layout) {
  if (table.layout != layout) return false;
  if (table.stack == nullptr) return table.is_aligned;
  const auto element = int64_t(size_of(table.dtype));
  const auto start = reinterpret_cast<uintptr_t>(table.stack + table.element_offset * element);
  const uintptr_t bits = start | uintptr_t((table.row_stride | table.slot_stride) * element);
  return bits % kVectorBytes == 0 && table.row_stride <= kMaxVectorStride &&
         (layout == LoraLayout::kRankMajor || table.max_rank % lora_rank_unit(table.max_rank) == 0);
}

bool loads_vectors(const LoraSite& site, bool input_vectors) {
  const bool of_a = site.a == nullptr || (input_vectors && site.input.size(1) % 8 == 0 &&
                                          has_vectors(*site.a, LoraLayout::kRankMajor));
  return of_a && (site.b == nullptr || has_vectors(*site.b, LoraLayout::kRankMinor));
}

/// What the y of all slices have in common; the bits count where all are of the dtype of the
/// weights.
struct Outputs {
  uintptr_t row_bits = 0, width_bits = 0;
  int64_t max_stride = 0;
  bool is_of_weights = true;  // in dtype
};

/// The columns and work items of some slices, counted into `call`.
Outputs count_outputs(const LoraSite& site, LoraCall& call) {
  Outputs all;
  const DType dtype = site.table().dtype;
  const uintptr_t element = size_of(dtype);
  call.num_slices = static_cast<int>(site.slices.size());
  call.num_outputs = call.output_items = 0;
  for (const LoraSlice& slice : site.slices) {
    const TensorView& y = slice.y;
    const int64_t width = y.size(1);
    all.row_bits |= row_bits(y, element);
    all.width_bits |= uintptr_t(width);
    all.max_stride = std::max(all.max_stride, y.stride(0));
    all.is_of_weights &= y.dtype() == dtype;
    call.num_outputs += width;
    call.output_items += ceil_div(width, cuda::lora::kTileOutputs);
  }
  if (site.b == nullptr) {
    const int64_t rank = std::min<int64_t>(site.a->max_rank, site.slices[0].y.size(1));
    call.output_items = call.num_slices * ceil_div(rank, cuda::lora::kSumRanks);
  }
  return all;
}

}  // namespace

LoraCall describe(const ExecContext& ctx, const LoraSite& site) {
  const LoraTable &table = site.table(), &other = site.b != nullptr ? *site.b : table;
  const auto element = uintptr_t(size_of(table.dtype));
  LoraCall call;
  call.tokens = site.input.size(0);
  call.input_features = site.input.size(1);
  call.num_slots = table.num_slots;
  call.max_rank = table.max_rank;
  call.used_rank = std::min(table.max_rank, other.max_rank);
  call.exchange_bytes = int64_t(ctx.exchange.size());
  const Outputs y = count_outputs(site, call);
  call.input_vectors = row_bits(site.input, size_of(site.input.dtype())) % kVectorBytes == 0 &&
                       site.input.stride(0) <= kMaxVectorStride;
  call.vectors = loads_vectors(site, call.input_vectors);
  call.y_vectors = true;
  if (site.b == nullptr) {
    call.halves = LoraHalves::kShrink;
    call.used_rank = static_cast<int>(std::min<int64_t>(call.used_rank, site.slices[0].y.size(1)));
    return call;
  }
  call.vectors &= y.is_of_weights && y.row_bits % (4 * element) == 0 && y.width_bits % 4 == 0 &&
                  y.max_stride <= kMaxVectorStride;
  call.y_vectors = y.row_bits % kVectorBytes == 0 && y.width_bits * element % kVectorBytes == 0;
  if (site.a == nullptr) {
    call.halves = LoraHalves::kExpand;
    call.used_rank = static_cast<int>(std::min<int64_t>(call.used_rank, call.input_features));
    call.y_vectors &= call.input_features >= site.b->max_rank;
    return call;
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  call.int32_strides = site.input.stride(0) <= kMax && y.max_stride <= kMax;
  call.entries = site.a->entries != nullptr && site.b->entries != nullptr &&
                 site.a->layout == LoraLayout::kRankMajor &&
                 site.b->layout == LoraLayout::kRankMinor && y.is_of_weights;
  return call;
}

LoraCall describe_part(const LoraCall& call, const LoraSite& part, int64_t rows) {
  LoraCall result = call;
  result.tokens = rows;
  count_outputs(part, result);
  return result;
}

int64_t partials_of_row(int64_t in_features, int64_t num_slices, int64_t max_rank) {
  return num_slices * ceil_div(max_rank, cuda::lora::kTileRanks) *
         ceil_div(in_features, cuda::lora::kChunkFeatures) * cuda::lora::kTileRanks;
}

int LoraCall::num_chunks() const {
  return halves == LoraHalves::kExpand
             ? 1
             : static_cast<int>(ceil_div(input_features, cuda::lora::kChunkFeatures));
}

std::ostream& operator<<(std::ostream& out, const LoraCall& c) {
  return out << "tokens=" << c.tokens << " in=" << c.input_features << " out=" << c.num_outputs
             << " slices=" << c.num_slices << " rank=" << c.max_rank << " slots=" << c.num_slots;
}

}  // namespace heddle
