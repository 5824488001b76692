#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/c_api.h"
#include "heddle/ops/linear.h"
#include "heddle/ops/lora.h"

#include "capi/test/row.h"

// Arguments of several families: packed weights, adapter tables, batches of ids.

namespace heddle::testing {

/// Small random bytes, which are finite weights of every type.
inline std::vector<uint8_t> stored_weights(WeightType type, int64_t num_weights) {
  std::vector<uint8_t> stored(stored_bytes(type, num_weights));
  for (uint8_t& byte : stored) byte = static_cast<uint8_t>(random_int(0, 50));
  return stored;
}
/// A random Q4_1 weight; `name` is what errors call its data.
inline auto packed_weight(std::string name, int64_t out_features, int64_t in_features) {
  constexpr WeightType kType = WeightType::kQ4_1;
  const std::vector<uint8_t> stored = stored_weights(kType, out_features * in_features);
  std::vector<uint8_t> packed(packed_bytes(kType, out_features, in_features));
  pack_rows({}, std::as_writable_bytes(std::span(packed)), kType, out_features, in_features, 0,
            out_features, std::as_bytes(std::span(stored)));
  const auto size = int64_t(packed.size());
  return made(
      [=](auto*, DLTensor* data) {
        return heddle_packed_weight{HEDDLE_Q4_1, out_features, in_features, data};
      },
      [=](auto&, TensorView data) {
        return PackedWeight{kType, out_features, in_features, data.raw()};
      },
      in<uint8_t>(std::move(name), {size}, std::move(packed)).checked_by_c());
}

inline constexpr int64_t kLoraTokens = 9, kLoraIn = 256, kLoraOut = 96;
inline constexpr int32_t kLoraRank = 8, kLoraSlots = 3;

/// Some rows have no adapter; slot 1 has no weights in adapter tables.
inline auto ids_batch() {
  return fields<heddle_lora_batch, LoraBatch>(
      in<int64_t>("slot_ids", {kLoraTokens}, {0, -1, 2, 2, 1, 0, 1, 2, 0}).optional(), absent(),
      absent(), absent(), in<float>("row_scale", {kLoraTokens}).optional(), absent(), absent(),
      absent(), absent(), both(nullptr, std::nullopt));
}
/// An adapter table of the C interface while it lives, with the functions of CppAdapterTable.
class CAdapterTable : public heddle_lora_table {
 public:
  CAdapterTable(heddle_context* context, const std::vector<int64_t>& features, DType dtype,
                LoraLayout layout_of_table, LoraAlignment fit) {
    const auto create = fit == LoraAlignment::kNone ? heddle_adapter_table_create
                                                    : heddle_adapter_table_create_aligned;
    heddle_adapter_table* made = nullptr;
    check(create(context, &made, kLoraSlots, features.data(), int32_t(features.size()), kLoraRank,
                 c_dtype(dtype), heddle_lora_layout(layout_of_table)));
    owned_.reset(made);
    heddle_lora_table_init(this);
    adapters = made;
  }
  void set(heddle_context* context, int32_t slot, int32_t slice, const DLTensor* weight,
           float scale) {
    check(heddle_adapter_table_set(context, owned_.get(), slot, slice, weight, scale));
  }
  void clear(heddle_context* context, int32_t slot) {
    check(heddle_adapter_table_clear(context, owned_.get(), slot));
  }

 private:
  struct Destroy {
    void operator()(heddle_adapter_table* table) const { heddle_adapter_table_destroy(table); }
  };
  static void check(heddle_status status) {
    if (status != HEDDLE_OK) throw FailedArgument{status};
  }

  std::unique_ptr<heddle_adapter_table, Destroy> owned_;
};
struct CppAdapterTable {
  std::unique_ptr<AdapterTable> owned;

  CppAdapterTable(const ExecContext& ctx, const std::vector<int64_t>& features, DType dtype,
                  LoraLayout layout, LoraAlignment fit)
      : owned(std::make_unique<AdapterTable>(ctx, kLoraSlots, features, kLoraRank, dtype, layout,
                                             fit)) {}
  void set(const ExecContext& ctx, int32_t slot, int32_t slice, TensorView weight, float scale) {
    owned->set(ctx, slot, slice, weight, scale);
  }
  void clear(const ExecContext& ctx, int32_t slot) { owned->clear(ctx, slot); }
  operator LoraTable() const { return owned->view(); }  // NOLINT(google-explicit-constructor)
};

/// A table with a slice for each weight: slots 0 and 2 have them, slot 1 had them. Where the rank
/// is major, the half A, it is aligned.
template <class Table>
auto table_maker(std::vector<int64_t> features, DType dtype, LoraLayout layout) {
  return [=](auto&& context, auto... weights) {
    const bool is_aligned = layout == LoraLayout::kRankMajor;
    Table table(context, features, dtype, layout,
                is_aligned ? LoraAlignment::k16Bytes : LoraAlignment::kNone);
    for (int32_t slot = 0; slot < kLoraSlots; ++slot) {
      int32_t slice = 0;
      (table.set(context, slot, slice++, weights, float(slot) + 0.5f), ...);
    }
    table.clear(context, 1);
    return table;
  };
}
template <class... Weights>
auto adapters(DType dtype, LoraLayout layout, const Weights&... weights) {
  const size_t axis = layout == LoraLayout::kRankMajor ? 1 : 0;
  const std::vector<int64_t> features{weights.shape[axis]...};
  return made(table_maker<CAdapterTable>(features, dtype, layout),
              table_maker<CppAdapterTable>(features, dtype, layout), weights...);
}

}  // namespace heddle::testing
