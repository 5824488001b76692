#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/validate.h"

#include "core/scoped_operation.h"
#include "ops/lora_device/checks/check_call.h"
#include "ops/lora_device/checks/check_sizes.h"
#include "ops/lora_device/checks/validate.h"
#include "ops/lora_device/plan/grouped_plan.h"
#include "ops/lora_device/plan/make_plan.h"
#include "ops/lora_device/plan/plan_bytes.h"
#include "ops/lora_device/plan/plan_params.h"

namespace heddle {
namespace {

constexpr uintptr_t kPlanAlignment = 256;

}  // namespace

void check_plan(const ExecContext& ctx, const ConstTensorView& plan, int64_t num_tokens,
                int max_rank) {
  const auto needed = static_cast<int64_t>(lora_plan_bytes(num_tokens, max_rank));
  Dim size("lora_plan_bytes");
  check_device(ctx, {{"plan", plan}});
  check_shape("plan", plan, {&size});
  check_dtype("plan", plan, {DType::kUInt8});
  check_unit_stride("plan", plan);
  HEDDLE_CHECK(size.value() >= needed, "plan.size(0) is ", size.value(),
               ", expected at least lora_plan_bytes = ", needed);
  HEDDLE_CHECK(reinterpret_cast<uintptr_t>(plan.raw()) % kPlanAlignment == 0,
               "plan begins at an address that is no multiple of ", kPlanAlignment);
}

uint32_t plan_tag(const LoraBatch& batch, int64_t num_tokens, int32_t num_slots, int32_t max_rank) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  const auto mix = [&](uint64_t v) {  // the finalizer of SplitMix64
    hash += v;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  };
  for (const ConstTensorView* array :
       {&batch.slot_ids, &batch.seg_starts, &batch.seg_ends, &batch.seg_slots, &batch.seg_lens}) {
    mix(reinterpret_cast<uintptr_t>(array->raw()));
    if (!*array) continue;
    mix(static_cast<uint64_t>(array->size(0)));
    mix(static_cast<uint64_t>(array->stride(0)));
    mix(size_of(array->dtype()));
  }
  mix(static_cast<uint64_t>(num_tokens));
  mix(static_cast<uint64_t>(num_slots));
  mix(static_cast<uint64_t>(max_rank));
  return (static_cast<uint32_t>(hash >> 32) | 2u) & ~cuda::lora::kMixedBit;
}

void make_plan(const ExecContext& ctx, const LoraBatch& batch, int64_t num_tokens,
               int32_t num_slots, int32_t max_rank, const ConstTensorView& slot_ranks,
               std::byte* plan, PlanHalves halves) {
  if constexpr (kWithCuda) {
    const ScopedOperation operation("lora_plan");
    cuda::lora::PlanParams p{};
    p.plans = plan;
    p.plan_bytes = cuda::lora::window_plan_bytes(cuda::lora::kWindowRows, max_rank);
    p.num_tokens = num_tokens;
    p.window_rows = cuda::lora::kWindowRows;
    p.max_rank = max_rank;
    p.tag = plan_tag(batch, num_tokens, num_slots, max_rank);
    p.rows = cuda::lora::batch_rows(batch, num_slots);
    p.slot_ranks = cuda::ConstIndexVector(slot_ranks);
    p.num_windows =
        halves.windows ? static_cast<int32_t>(ceil_div(num_tokens, int64_t{p.window_rows})) : 0;
    p.grouped = plan + windows_plan_bytes(num_tokens, max_rank);
    if (halves.grouped) return cuda::lora::plan_grouped(p, ctx.device.index, ctx.stream);
    cuda::lora::plan_windows(p, ctx.stream);
  } else {
    throw_error(ErrorCode::kUnsupported, "lora_plan: built without CUDA");
  }
}

void lora_plan(const ExecContext& ctx, TensorView plan, const LoraBatch& batch, int64_t num_tokens,
               int32_t num_slots, int32_t max_rank, ConstTensorView slot_ranks) {
  HEDDLE_CHECK(num_tokens >= 0, "num_tokens is ", num_tokens, ", expected at least 0");
  HEDDLE_CHECK(num_slots >= 0, "num_slots is ", num_slots, ", expected at least 0");
  HEDDLE_CHECK(max_rank >= 0 && max_rank <= kMaxLoraRank, "max_rank is ", max_rank,
               ", expected 0 to ", kMaxLoraRank);
  check_batch(ctx, batch, num_tokens);
  if (slot_ranks) {
    Dim slots("num_slots", num_slots);
    check_device(ctx, {{"slot_ranks", slot_ranks}});
    check_shape("slot_ranks", slot_ranks, {&slots});
    check_dtype("slot_ranks", slot_ranks, {DType::kInt32, DType::kInt64});
  }
  check_plan(ctx, plan, num_tokens, max_rank);
  if (ctx.device.type != DeviceType::kCuda) {
    throw_error(ErrorCode::kUnsupported, "lora_plan: ", ctx.device, " needs no plan");
  }
  if constexpr (kWithCuda) {
    if (num_tokens == 0) return;
    if (validating()) {
      const LoraTable slots_alone{.num_slots = num_slots};
      cuda::lora::validate_batch(ctx, batch, num_tokens, &slots_alone, nullptr);
    }
    make_plan(ctx, batch, num_tokens, num_slots, max_rank, slot_ranks, plan.raw(),
              {.windows = true, .grouped = has_grouped_plan(num_tokens)});
  } else {
    throw_error(ErrorCode::kUnsupported, "lora_plan: built without CUDA");
  }
}

size_t lora_plan_bytes(int64_t num_tokens, int max_rank) {
  check_sizes(num_tokens, max_rank);
  return windows_plan_bytes(num_tokens, max_rank) +
         (has_grouped_plan(num_tokens) ? cuda::lora::grouped_plan_bytes(num_tokens) : 0);
}

}  // namespace heddle
