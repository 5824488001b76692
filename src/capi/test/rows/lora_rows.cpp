#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/c_api.h"
#include "heddle/ops/lora.h"

#include "capi/test/rows/rows.h"
#include "capi/test/rows/weights.h"

namespace heddle::testing {
namespace {

/// Token t has the pairs [2 t, 2 t + 2).
auto pairs_batch(const int64_t* max_pairs) {
  std::vector<int32_t> starts;
  for (int32_t t = 0; t <= kLoraTokens; ++t) starts.push_back(2 * t);
  return fields<heddle_lora_batch, LoraBatch>(
      absent(), absent(), absent(), absent(), absent(), absent(),
      in<int32_t>("pair_starts", {kLoraTokens + 1}, starts).optional(),
      in<int64_t>("pair_slots", {2 * kLoraTokens},
                  {0, 2, 2, -1, 1, 1, 0, 0, 2, 1, -1, 0, 1, 2, 2, 2, 0, -1})
          .optional(),
      in<float>("pair_scales", {2 * kLoraTokens}).optional(),
      both(max_pairs, max_pairs == nullptr ? std::nullopt : std::optional(*max_pairs)));
}

/// The halves of a site of one slice.
auto half_a() {
  return adapters(DType::kFloat16, LoraLayout::kRankMajor,
                  in<half>("weight", {kLoraRank, kLoraIn}));
}
auto half_b() {
  return adapters(DType::kFloat16, LoraLayout::kRankMinor,
                  in<half>("weight", {kLoraOut, kLoraRank}));
}

/// lora_shrink and lora_expand of each kind of weights.
std::vector<Row> half_rows() {
  const auto shrink = [](const auto&... args) { lora_shrink(args...); };
  const auto expand = [](const auto&... args) { lora_expand(args...); };
  const auto h = out<float>("y", {kLoraTokens, kLoraRank});
  const auto x = in<half>("x", {kLoraTokens, kLoraIn}),
             a = in<half>("a", {kLoraSlots, kLoraRank, kLoraIn}),
             stack = in<half>("a.stack", {kLoraSlots, kLoraRank, kLoraIn});
  const auto rank_major = both(HEDDLE_LORA_RANK_MAJOR, LoraLayout::kRankMajor),
             rank_minor = both(HEDDLE_LORA_RANK_MINOR, LoraLayout::kRankMinor);
  const auto segments = fields<heddle_lora_batch, LoraBatch>(
      absent(), in<int32_t>("seg_starts", {2}, {2, 0}).optional(),
      in<int32_t>("seg_ends", {2}, {9, 1}).optional(),
      in<int32_t>("seg_slots", {2}, {1, 2}).optional(), absent(), absent(), absent(), absent(),
      absent(), both(nullptr, std::nullopt));
  const auto stacked = made(
      [](auto*, DLTensor* weights) {
        heddle_lora_table table;
        heddle_lora_table_init(&table);
        table.stack = weights;
        return table;
      },
      [](auto&, TensorView t) { return LoraTable::from_stack(t, LoraLayout::kRankMajor); },
      stack.null_says("a has 0 of adapters, stack and pointers"));
  const auto by_address = made(
      [](auto*, DLTensor*, DLTensor* pointers) {
        return heddle_lora_table{nullptr,           nullptr,   pointers, HEDDLE_LORA_RANK_MAJOR,
                                 {kDLFloat, 16, 1}, kLoraRank, kLoraIn,  0};
      },
      [](auto&, TensorView, TensorView pointers) {
        return LoraTable::from_pointers(pointers, DType::kFloat16, LoraLayout::kRankMajor,
                                        kLoraRank, kLoraIn);
      },
      stack.used_as(CallTensor::Use::kMemory),
      in<int64_t>("a.pointers", {kLoraSlots})
          .addresses(kLoraRank * kLoraIn * int64_t{sizeof(half)})
          .null_says("a has 0 of adapters, stack and pointers"));
  const auto clear = [](int32_t slot) {
    return [=](auto* context, auto*, auto*, auto* table, auto...) {
      return heddle_adapter_table_clear(context, const_cast<heddle_adapter_table*>(table->adapters),
                                        slot);
    };
  };
  const auto set = [](std::vector<int64_t> shape) {
    return [=](auto* context, auto*, auto* rows, auto* table, auto...) {
      const auto resized = shaped(shape);
      const DLTensor weight = resized(rows);
      return heddle_adapter_table_set(context, const_cast<heddle_adapter_table*>(table->adapters),
                                      0, 0, &weight, 1.0f);
    };
  };
  const auto y = in_place<half>("y", {kLoraTokens, kLoraOut});
  const auto rows = in<float>("h", {kLoraTokens, kLoraRank});
  return {
      row("lora_shrink", heddle_lora_shrink, shrink, h, x, a, ids_batch(), 0.5f, false, rank_major)
          .refuses<3>("batch is NULL", nullptr)
          .refuses<6>("layout is 2", 2),
      row("lora_shrink of segments", heddle_lora_shrink, shrink, h, x, a, segments, 0.5f, false,
          rank_major),
      row("lora_shrink_table, stack", heddle_lora_shrink_table, shrink, h, x, stacked, 0,
          ids_batch(), 0.5f, false)
          .refuses<2>("a has 2 of adapters, stack and pointers, expected one of them",
                      [](heddle_lora_table table) {
                        table.pointers = table.stack;
                        return table;
                      })
          .refuses<2>("layout is 2",
                      [](heddle_lora_table table) {
                        table.layout = 2;
                        return table;
                      }),
      row("lora_shrink_table, pointers", heddle_lora_shrink_table, shrink, h, x, by_address, 0,
          ids_batch(), 0.5f, false),
      row("lora_shrink_table, adapters", heddle_lora_shrink_table, shrink, h, x, half_a(), 0,
          ids_batch(), 0.5f, false)
          .refuses_call("slot is 3, expected 0 to 2", clear(kLoraSlots))
          .refuses_call("weight.size(1) is 33, expected features[slice] = 256", set({8, 33}))
          .refuses_call("the rank of weight is 6, expected a multiple of 4", set({6, kLoraIn}))
          .refuses_call("table is NULL",
                        [](auto* context, auto...) {
                          return heddle_adapter_table_clear(context, nullptr, 0);
                        }),
      row("lora_expand", heddle_lora_expand, expand, y, rows,
          in<half>("b", {kLoraSlots, kLoraOut - 8, kLoraRank}), ids_batch(), 8, 2.0f, true,
          rank_minor),
      row("lora_expand_table", heddle_lora_expand_table, expand, y, rows, half_b(), 0, kLoraOut,
          ids_batch(), 0, 2.0f, true)};
}

}  // namespace

/// lora_apply to a site of one slice, with a batch of each kind.
std::vector<Row> lora_rows() {
  const auto apply = [](auto* context, DLTensor* y, auto... args) {
    return heddle_lora_apply(context, &y, 1, args...);
  };
  const auto cpp_apply = [](auto& ctx, const auto& y, const auto&... args) {
    const LoraSlice slices[] = {{y}};
    lora_apply(ctx, slices, args...);
  };
  const auto y = in_place<half>("ys[0]", {kLoraTokens, kLoraOut});
  const auto x = in<half>("x", {kLoraTokens, kLoraIn});
  static constexpr int64_t kOne = 1, kTwo = 2;
  // A plan holds addresses, and so other bytes for each call.
  const auto plan_to = [](auto* context, auto* plan, auto* ranks, auto* batch) {
    return heddle_lora_plan(context, plan, batch, kLoraTokens, kLoraSlots, kLoraRank, ranks);
  };
  const auto bytes = int64_t(lora_plan_bytes(kLoraTokens, kLoraRank));
  std::vector<Row> rows{
      row("lora_apply", apply, cpp_apply, y, x, half_a(), half_b(), ids_batch())
          .refuses<4>("batch is NULL", nullptr)
          .refuses_call("ys is NULL",
                        [](auto* context, auto*, auto... args) {
                          return heddle_lora_apply(context, nullptr, 1, args...);
                        }),
      row("lora_apply, first pairs", apply, cpp_apply, y, x, half_a(), half_b(),
          pairs_batch(&kOne)),
      row("lora_apply, pairs", apply, cpp_apply, y, x, half_a(), half_b(), pairs_batch(&kTwo))
          .refuses<4>("the batch has pairs and slot_ids or segments",
                      [](heddle_lora_batch batch) {
                        batch.slot_ids = batch.pair_slots;
                        return batch;
                      }),
      row("lora_apply, all pairs", apply, cpp_apply, y, x, half_a(), half_b(), pairs_batch(nullptr))
          .only_on(RunsOn::kCpu, HEDDLE_INVALID_ARGUMENT),
      row(
          "lora_plan",
          [=](auto* context, auto* plan, auto* ranks, auto* given, auto... args) {
            heddle_lora_batch batch = *given;
            batch.plan = plan;
            const heddle_status status = plan_to(context, plan, ranks, given);
            return status == HEDDLE_OK ? apply(context, args..., &batch) : status;
          },
          [=](auto& ctx, const auto& plan, const auto& ranks, const auto& given,
              const auto&... args) {
            LoraBatch batch = given;
            lora_plan(ctx, plan, batch, kLoraTokens, kLoraSlots, kLoraRank, ranks);
            batch.plan = plan;
            cpp_apply(ctx, args..., batch);
          },
          out<uint8_t>("plan", {bytes}).used_as(CallTensor::Use::kScratch),
          in<int32_t>("slot_ranks", {kLoraSlots}, {8, 8, 8}).optional(), ids_batch(), y, x,
          half_a(), half_b())
          .refuses<0>("plan.size(0) is 256, expected at least", shaped({256}))
          .refuses<0>("plan is NULL", static_cast<DLTensor*>(nullptr))
          .only_on(RunsOn::kGpu)};
  for (Row& half : half_rows()) rows.push_back(std::move(half));
  return rows;
}

}  // namespace heddle::testing
