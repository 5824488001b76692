// linear_site through the C interface: the bits of C++, with and without adapters and biases.
#include "heddle/ops/linear_site.h"

#include <gtest/gtest.h>

#include "heddle/c_linear_site.h"

#include "capi/test/capi_test_body.h"
#include "capi/test/packed_bytes.h"

namespace heddle::testing {
namespace {

constexpr int64_t kTokens = 5, kIn = 40, kSlots = 3;
constexpr int32_t kRank = 8;
constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};

/// Two products that share x, and adapters for them.
struct Site {
  static constexpr int64_t kIns[2] = {kIn, kIn}, kOuts[2] = {33, 7};

  Array<bfloat16> x = random_array<bfloat16>({kTokens, kIn});
  Array<bfloat16> w0 = random_array<bfloat16>({kOuts[0], kIn}),
                  w1 = random_array<bfloat16>({kOuts[1], kIn});
  Array<bfloat16> bias = random_array<bfloat16>({kOuts[0]});
  Array<float> y0{{kTokens, kOuts[0]}}, y1{{kTokens, kOuts[1]}};
  Array<bfloat16> a = random_array<bfloat16>({kRank, kIn}),
                  b0 = random_array<bfloat16>({kOuts[0], kRank}),
                  b1 = random_array<bfloat16>({kOuts[1], kRank});
  Array<int64_t> ids{{kTokens}, {0, -1, 2, 2, 1}};
  Array<float> scale = random_array({kTokens});

  /// What C++ makes of it, in slot 2 of its tables.
  void run_in_cpp(const ExecContext& ctx, bool has_adapters) {
    const LinearSlice slices[2] = {{.y = y0.view(), .weight = w0.view(), .bias = bias.view()},
                                   {.y = y1.view(), .weight = w1.view()}};
    AdapterTable table_a(ctx, kSlots, kIns, kRank, DType::kBFloat16, LoraLayout::kRankMajor);
    AdapterTable table_b(ctx, kSlots, kOuts, kRank, DType::kBFloat16, LoraLayout::kRankMinor);
    table_a.set(ctx, 2, 0, a.view());
    table_a.set(ctx, 2, 1, a.view());
    table_b.set(ctx, 2, 0, b0.view(), 0.5f);
    table_b.set(ctx, 2, 1, b1.view());
    const LinearAdapters adapters{
        table_a.view(), table_b.view(), {.slot_ids = ids.view(), .row_scale = scale.view()}};
    linear_site(ctx, slices, x.view(), LinearPath::kDecode, has_adapters ? &adapters : nullptr);
  }
  [[nodiscard]] std::array<heddle_linear_slice, 2> slices(Array<float>& to0, Array<float>& to1) {
    return {{{to0.c(), w0.c(), bias.c(), nullptr}, {to1.c(), w1.c(), nullptr, nullptr}}};
  }
};

/// An adapter table while it lives.
struct Table {
  heddle_adapter_table* handle = nullptr;
  heddle_lora_table table;

  Table(heddle_context* context, const int64_t (&features)[2], heddle_lora_layout layout) {
    expect_ok(heddle_adapter_table_create(context, &handle, kSlots, features, 2, kRank, kBFloat16,
                                          layout));
    heddle_lora_table_init(&table);
    table.adapters = handle;
  }
  ~Table() { heddle_adapter_table_destroy(handle); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
};

TEST(CApiLinearSite, HasTheBitsOfCpp) {
  const Context context(2);
  std::vector<std::byte> memory(size_t{1} << 20);
  for (const bool has_adapters : {false, true}) {
    Site site;
    Workspace workspace(memory);
    ExecContext ctx;
    ctx.workspace = &workspace;
    site.run_in_cpp(ctx, has_adapters);
    const Table a(context, Site::kIns, HEDDLE_LORA_RANK_MAJOR);
    const Table b(context, Site::kOuts, HEDDLE_LORA_RANK_MINOR);
    expect_ok(heddle_adapter_table_set(context, a.handle, 2, 0, site.a.c(), 1.0f));
    expect_ok(heddle_adapter_table_set(context, a.handle, 2, 1, site.a.c(), 1.0f));
    expect_ok(heddle_adapter_table_set(context, b.handle, 2, 0, site.b0.c(), 0.5f));
    expect_ok(heddle_adapter_table_set(context, b.handle, 2, 1, site.b1.c(), 1.0f));
    heddle_lora_batch batch{};
    batch.slot_ids = site.ids.c();
    batch.row_scale = site.scale.c();
    Array<float> y0({kTokens, Site::kOuts[0]}), y1({kTokens, Site::kOuts[1]});
    const auto slices = site.slices(y0, y1);
    expect_ok(heddle_linear_site(context, slices.data(), 2, site.x.c(), HEDDLE_LINEAR_DECODE,
                                 has_adapters ? &a.table : nullptr,
                                 has_adapters ? &b.table : nullptr,
                                 has_adapters ? &batch : nullptr));
    EXPECT_EQ(y0, site.y0);
    EXPECT_EQ(y1, site.y1);
  }
}

TEST(CApiLinearSite, TakesPackedWeightsBesideDenseOnes) {
  const Context context(2);
  std::vector<std::byte> memory(size_t{1} << 20);
  Workspace workspace(memory);
  ExecContext ctx;
  ctx.workspace = &workspace;
  constexpr int64_t kBlockIn = 64, kOut = 20;
  PackedBytes packed(WeightType::kQ4_1, kOut, kBlockIn);
  auto x = random_array<bfloat16>({kTokens, kBlockIn});
  auto dense = random_array<bfloat16>({7, kBlockIn});
  Array<float> y0({kTokens, kOut}), y1({kTokens, 7}), want0({kTokens, kOut}), want1({kTokens, 7});
  const LinearSlice slices[] = {{.y = want0.view(), .packed = packed.view()},
                                {.y = want1.view(), .weight = dense.view()}};
  linear_site(ctx, slices, x.view(), LinearPath::kDecode);

  const auto size = int64_t(packed.size());
  const CTensor data(packed.data(), {size});
  heddle_packed_weight weight{HEDDLE_Q4_1, kOut, kBlockIn, data.get()};
  heddle_linear_slice given[] = {{y0.c(), nullptr, nullptr, &weight},
                                 {y1.c(), dense.c(), nullptr, nullptr}};
  const auto run = [&] {
    return heddle_linear_site(context, given, 2, x.c(), HEDDLE_LINEAR_DECODE, nullptr, nullptr,
                              nullptr);
  };
  expect_ok(run());
  EXPECT_EQ(y0, want0);
  EXPECT_EQ(y1, want1);

  const auto refuse = [&](const char* text) {
    expect_failure(HEDDLE_INVALID_ARGUMENT, text, run());
  };
  given[0].weight = dense.c();
  refuse("slices[0].weight and slices[0].packed are both given");
  given[0].weight = nullptr;
  weight.out_features = 36;
  refuse("slices[0].packed.data.size(0) is ");
  const CTensor crooked(packed.data() + 1, {size});
  weight = {HEDDLE_Q4_1, kOut, kBlockIn, crooked.get()};
  refuse("slices[0].packed.data is not 64-byte aligned");
}

TEST(CApiLinearSite, TellsWhatIsWrong) {
  const Context context(1);
  Site site;
  const auto slices = site.slices(site.y0, site.y1);
  const auto refuse = [&](const char* text, const heddle_linear_slice* given, int32_t num,
                          heddle_linear_path path, const heddle_lora_batch* batch) {
    expect_failure(
        HEDDLE_INVALID_ARGUMENT, text,
        heddle_linear_site(context, given, num, site.x.c(), path, nullptr, nullptr, batch));
  };
  refuse("num_slices is -1, expected at least 1", slices.data(), -1, 0, nullptr);
  refuse("slices is NULL", nullptr, 1, 0, nullptr);
  refuse("path is 256, which is no heddle_linear_path", slices.data(), 2, 256, nullptr);
  refuse("linear_site: path is 9", slices.data(), 2, 9, nullptr);
  const heddle_lora_batch batch{};
  refuse("a is NULL", slices.data(), 2, 0, &batch);
  const heddle_linear_slice no_weight{slices[0].y, nullptr, nullptr, nullptr};
  refuse("slices[0].weight and slices[0].packed are NULL", &no_weight, 1, 0, nullptr);
  const heddle_packed_weight no_data{HEDDLE_Q8_0, 33, 40, nullptr};
  const heddle_linear_slice empty{slices[0].y, nullptr, nullptr, &no_data};
  refuse("slices[0].packed.data is NULL", &empty, 1, 0, nullptr);
}

TEST(CApiLinearSite, SizesOfTheWorkspace) {
  const DLDevice cpu{kDLCPU, 0};
  EXPECT_EQ(heddle_linear_site_workspace_bytes(cpu, 9, 40, 30, 2, 8, 0),
            linear_site_workspace_bytes({}, 9, 40, 30, 2, 8));
  EXPECT_EQ(heddle_linear_site_workspace_bytes(cpu, 9, 40, 30, 2, 8, 3),
            linear_site_workspace_bytes({}, 9, 40, 30, 2, 8, 3));
  EXPECT_EQ(heddle_linear_site_workspace_bytes(cpu, -1, 40, 30, 2, 8, 0), SIZE_MAX);
}

}  // namespace
}  // namespace heddle::testing
