#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"

#include "core/device_graph.h"
#include "core/device_tensor.h"
#include "model/adapters/lora_tables.h"
#include "model/test/adapter_cases.h"

namespace heddle::model {

/// Adapters of all dtypes and of ranks that go up and down, in tables, against the reference.
class LoraTablesCase {
 public:
  static constexpr int kNumAdapters = 5, kNumRows = kNumAdapters + 1;  // a row of each, one of none
  static constexpr int64_t kNumLayers = 2;

  LoraTablesCase() {
    const auto add = [&]<class T>(const char* dtype, int64_t rank,
                                  const std::vector<int>& targets) {
      const size_t i = adapters_.size();
      adapters_.push_back(random_adapter<T>(dtype, rank, targets, files_[i], deltas_[i]));
    };
    add.operator()<half>("F16", 3, {llama::kQ, llama::kV, llama::kGate});
    add.operator()<float>("F32", 17, {llama::kV, llama::kDown});
    add.operator()<bfloat16>("BF16", 1, {llama::kK, llama::kUp});
    add.operator()<half>("F16", 16, {llama::kO, llama::kDown, llama::kQ});
    add.operator()<float>("F32", 8, {llama::kK});
  }

  /// Tables of all adapters.
  [[nodiscard]] LoraTables make(const ExecContext& ctx, const LoraForm& form) const {
    LoraTables tables(config().dims(), form);
    for (int i = 0; i < kNumAdapters; ++i) EXPECT_EQ(tables.add(ctx, adapter(i)), i);
    return tables;
  }
  /// Tables of all adapters, by copies in host memory.
  [[nodiscard]] LoraTables make_staged(const ExecContext& ctx, const LoraForm& form) const {
    LoraTables tables(config().dims(), form);
    for (int i = 0; i < kNumAdapters; ++i) {
      const LoraTables::HostCopy copy = tables.stage(ctx, adapter(i), {}, [&](size_t num_bytes) {
        return StagingBytes(ctx.device, num_bytes);
      });
      LoraTables::Prepared placed =
          LoraTables::place(ctx, copy, allocate_zeroed(ctx.device, copy.num_bytes()));
      DeviceEvent arrived(ctx.device);
      arrived.record(ctx);
      arrived.wait();
      EXPECT_TRUE(arrived.has_passed());
      EXPECT_EQ(tables.add(ctx, std::move(placed)), i);
    }
    return tables;
  }
  [[nodiscard]] static LoraTables make_empty(const LoraForm& form) {
    return {config().dims(), form};
  }
  [[nodiscard]] const PeftAdapter& adapter(int i) const {
    return adapters_[static_cast<size_t>(i)];
  }

  [[nodiscard]] static size_t workspace_bytes(Device device) {
    return lora_apply_workspace_bytes(device, kNumRows, 48, 3, 24);
  }

  /// Activations of every row for a site.
  template <class X>
  [[nodiscard]] static std::vector<X> random_inputs(int site) {
    return testing::random_normal<X>(static_cast<size_t>(kNumRows * in_features(site)));
  }

  /// What the tables add to the outputs of a site: of each slice [kNumRows, out_features].
  template <class X>
  [[nodiscard]] static std::vector<std::vector<float>> deltas(const ExecContext& ctx,
                                                              const LoraTables& tables,
                                                              int64_t layer, int site,
                                                              const std::vector<X>& inputs) {
    const std::vector<int32_t> ids{0, 1, 2, 3, 4, kNoAdapter};
    const DeviceTensor x(ctx, std::span<const X>(inputs)),
        slots(ctx, std::span<const int32_t>(ids));
    std::vector<DeviceTensor> y;
    std::vector<LoraSlice> slices;
    const BlockSite& shape = block().site(site);
    for (int p = shape.first; p < shape.first + shape.count; ++p) {
      y.emplace_back(ctx.device, DType::kFloat32,
                     std::initializer_list<int64_t>{kNumRows, block().slice(p).dims.out});
      slices.push_back({y.back().view()});
    }
    const ConstTensorView rows(x.view().raw(), kDType<X>, ctx.device,
                               {kNumRows, in_features(site)});
    for (const SiteTable& table : tables.site(layer, site)) {
      lora_apply(ctx, slices, rows, table.a.view(), table.b.view(),
                 LoraBatch::from_ids(slots.view()));
    }
    std::vector<std::vector<float>> values;
    for (const DeviceTensor& tensor : y) {
      values.emplace_back(static_cast<size_t>(tensor.view().num_elements()));
      copy_to_host(ctx, std::span(values.back()), tensor.view());
    }
    return values;
  }

  /// Every site of every layer adds what the reference adds, up to `limit` of it or of 1.
  template <class X>
  void expect_the_sums_of_the_reference(const ExecContext& ctx, const LoraTables& tables,
                                        double limit) const {
    for (int64_t layer = 0; layer < kNumLayers; ++layer) {
      for (int site = 0; site < llama::kNumSites; ++site) {
        const std::vector<X> x = random_inputs<X>(site);
        const std::vector<std::vector<float>> got = deltas(ctx, tables, layer, site, x);
        for (size_t s = 0; s < got.size(); ++s) {
          expect_slice(got[s], testing::to_double(x), layer,
                       block().site(site).first + static_cast<int>(s), limit);
        }
      }
    }
  }

  /// Many changes of entries at once are those that they say, and no others.
  static void expect_that_changes_are_made(const ExecContext& ctx) {
    constexpr int32_t kNumSlots = 250;
    constexpr int64_t kFeatures = 8;
    AdapterTable table(ctx, kNumSlots, {&kFeatures, 1}, 4, DType::kFloat32, LoraLayout::kRankMajor);
    const DeviceTensor weights(ctx.device, DType::kFloat32, {kNumSlots, 2, kFeatures});
    std::vector<LoraEntryChange> changes;
    for (int32_t slot = 0; slot < kNumSlots; ++slot) {
      if (slot % 7 == 3) continue;
      const ConstTensorView weight(weights.view().raw() + slot * 2 * kFeatures * 4, DType::kFloat32,
                                   ctx.device, {2, kFeatures});
      changes.push_back(table.change(ctx, slot, 0, weight, static_cast<float>(slot)));
    }
    AdapterTable::apply(ctx, changes);
    std::vector<LoraEntryChange> back;
    for (int32_t slot = 0; slot < kNumSlots; slot += 5) {
      back.push_back(table.change_to_none(ctx, slot, 0));
    }
    AdapterTable::apply(ctx, back);
    std::vector<LoraWeight> entries(kNumSlots);
    copy_to_host(ctx, std::as_writable_bytes(std::span(entries)),
                 reinterpret_cast<const std::byte*>(table.view().entries));
    for (int32_t slot = 0; slot < kNumSlots; ++slot) {
      const LoraWeight& entry = entries[static_cast<size_t>(slot)];
      const bool is_there = slot % 7 != 3 && slot % 5 != 0;
      EXPECT_EQ(entry.data, is_there ? weights.view().raw() + slot * 2 * kFeatures * 4 : nullptr);
      EXPECT_EQ(entry.rank, is_there ? 2 : 0);
      EXPECT_EQ(is_there ? entry.scale : 0.0f, is_there ? static_cast<float>(slot) : 0.0f);
    }
  }

 private:
  /// A reference whose base weights are zero: with an adapter merged, its delta is left.
  static ref::Llama zero_model() {
    ref::Llama zero;
    zero.config = config();
    zero.layers.resize(kNumLayers);
    for (ref::Layer& layer : zero.layers) {
      for (int p = 0; p < llama::kNumSlices; ++p) {
        const auto [in, out] = block().slice(p).dims;
        layer.projection[p].assign(static_cast<size_t>(in * out), 0.0);
      }
    }
    return zero;
  }
  static DecoderConfig config() {
    return {.num_layers = kNumLayers,
            .hidden_size = 24,
            .intermediate_size = 40,
            .num_q_heads = 6,
            .num_kv_heads = 2,
            .head_dim = 8};
  }
  static const BlockShape& block() {
    static const BlockShape shape = config().block();
    return shape;
  }
  static int64_t in_features(int site) { return block().dims_of(block().site(site)).in; }

  void expect_slice(const std::vector<float>& got, const std::vector<double>& x, int64_t layer,
                    int slice, double limit) const {
    const auto in = static_cast<std::ptrdiff_t>(x.size() / kNumRows);
    const size_t out = got.size() / kNumRows;
    for (size_t row = 0; row < kNumRows; ++row) {
      const ref::Llama& delta = deltas_[row];
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(row) * in;
      const std::vector<double> want = ref::matvec(
          delta.layers[static_cast<size_t>(layer)].projection[slice], {first, first + in});
      for (size_t i = 0; i < out; ++i) {
        EXPECT_LE(std::abs(double{got[row * out + i]} - want[i]), limit * (1 + std::abs(want[i])))
            << "slice " << slice << " of layer " << layer << ", row " << row << ", output " << i;
      }
    }
  }

  std::vector<ref::Llama> deltas_{kNumRows, zero_model()};  // the last row has no adapter
  std::array<std::string, kNumAdapters> files_;
  std::vector<PeftAdapter> adapters_;
};

}  // namespace heddle::model
