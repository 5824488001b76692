#pragma once

#include <cstddef>

#include "cuda/divide.h"

#include "ops/lora_device/call/lora_call.h"
#include "ops/lora_device/site_params.h"

// From a described call to the structs that kernels take.

namespace heddle {

/// What a launch has of a call: a part of its slices, and call.tokens rows from first_row on.
struct LoraLaunch {
  const LoraSite& site;
  const LoraBatch& batch;
  const LoraCall& call;
  int64_t first_row;
  const std::byte* plan;  // of the whole batch; null: the kernels need none
  uint32_t plan_tag;      // that it should have
  FaultRecord* faults;    // of the context
};

/// The first row of the part.
template <class Byte>
[[nodiscard]] Byte* first_row_of(const BasicTensorView<Byte>& t, const LoraLaunch& part) {
  return t.raw() + part.first_row * t.stride(0) * int64_t(size_of(t.dtype()));
}

/// The factors of the rows of the part, or null.
[[nodiscard]] inline const float* row_scale_of(const LoraLaunch& part) {
  const ConstTensorView& scale = part.batch.row_scale;
  return scale ? scale.data<float>() + part.first_row : nullptr;
}

/// A table from slice first_slice on, as kernels read it. Ranks count up to rank_limit.
[[nodiscard]] cuda::lora::WeightAddresses addresses(const LoraTable& table, int first_slice,
                                                    int64_t rank_limit);

/// Tensors, tables and flags of a launch; not its plan, partials and counts of work items.
[[nodiscard]] cuda::lora::SiteParams pack_site(const LoraLaunch& part);

/// There are no items to divide where d is 0.
[[nodiscard]] constexpr cuda::Reciprocal reciprocal(int32_t d) {
  return cuda::Reciprocal(static_cast<uint32_t>(d > 1 ? d : 1));
}

}  // namespace heddle
