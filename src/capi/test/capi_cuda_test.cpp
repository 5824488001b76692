// LoRA (stacked weights, adapter tables and plans), batch metadata, speculation, rms_norm and Mamba states through the C interface on
// a GPU.
#include <algorithm>
#include <vector>

#include "cuda_test.h"
#include <gtest/gtest.h>

#include "heddle/c_api.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/kv_cache.h"
#include "heddle/ops/lora.h"
#include "heddle/ops/norm.h"

#include "capi/test/capi_test_body.h"
#include "compare.h"
#include "device_buffer.h"
#include "random.h"

namespace heddle::testing {
namespace {

constexpr int64_t kTokens = 13, kIn = 256, kOut = 96, kRank = 8, kSlots = 3;
constexpr DLDataType kHalf{kDLFloat, 16, 1};

/// A DLTensor of memory on the current device.
class OnDevice {
 public:
  template <class T>
  OnDevice(const DeviceBuffer<T>& buffer, std::initializer_list<int64_t> shape)
      : tensor_(buffer.data(), shape) {
    tensor_.get()->device = {kDLCUDA, buffer.device().index};
  }
  [[nodiscard]] DLTensor* get() const { return tensor_.get(); }

 private:
  CTensor tensor_;
};

class CApiCuda : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    heddle_context_options options;
    heddle_context_options_init(&options);
    options.device = {kDLCUDA, current_device()};
    expect_ok(heddle_context_create(&context_, &options));
  }
  void TearDown() override {
    heddle_context_destroy(context_);
    CudaTest::TearDown();
  }

  heddle_context* context_ = nullptr;
};

/// A linear site with its adapters, on both sides; `want` is y after the adapters of scale 2, in double.
struct Site {
  std::vector<half> x = random_normal<half>(kTokens * kIn);
  std::vector<half> a = random_normal<half>(kSlots * kRank * kIn);
  std::vector<half> b = random_normal<half>(kSlots * kOut * kRank);
  std::vector<half> y = random_normal<half>(kTokens * kOut);
  std::vector<int64_t> ids;
  std::vector<double> want;
  DeviceBuffer<half> x_there{x}, a_there{a}, b_there{b}, y_there{y};
  DeviceBuffer<int64_t> ids_there{kTokens};

  Site() {
    for (int64_t t = 0; t < kTokens; ++t) ids.push_back(random_int(-1, kSlots - 1));
    ids_there.upload(ids);
    for (const half v : y) want.push_back(to_float(v));
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t slot = ids[size_t(t)];
      for (int64_t r = 0; slot >= 0 && r < kRank; ++r) {
        const double h = dot(&a[size_t((slot * kRank + r) * kIn)], &x[size_t(t * kIn)]);
        for (int64_t n = 0; n < kOut; ++n) {
          want[size_t(t * kOut + n)] += 2 * h * to_float(b[size_t((slot * kOut + n) * kRank + r)]);
        }
      }
    }
  }
  /// Of kIn elements, in double.
  static double dot(const half* u, const half* v) {
    double sum = 0;
    for (int64_t k = 0; k < kIn; ++k) sum += double{to_float(u[k])} * double{to_float(v[k])};
    return sum;
  }
  void expect_y() const {
    EXPECT_LT(relative_error<half>(y_there.download(), want), 2e-3);
    EXPECT_TRUE(y_there.guards_intact());
  }
};

TEST_F(CApiCuda, StackedWeights) {
  const Site site;
  const DeviceBuffer<float> h(kTokens * kRank);
  const OnDevice ids(site.ids_there, {kTokens}), x(site.x_there, {kTokens, kIn}),
      a(site.a_there, {kSlots, kRank, kIn}), b(site.b_there, {kSlots, kOut, kRank}),
      y(site.y_there, {kTokens, kOut}), rows(h, {kTokens, kRank});
  heddle_lora_batch batch{};
  batch.slot_ids = ids.get();
  expect_ok(heddle_lora_shrink(context_, rows.get(), x.get(), a.get(), &batch, 1.0f, false,
                               HEDDLE_LORA_RANK_MAJOR));
  expect_ok(heddle_lora_expand(context_, y.get(), rows.get(), b.get(), &batch, 0, 2.0f, true,
                               HEDDLE_LORA_RANK_MINOR));
  site.expect_y();
}

/// How a call names the adapters of its rows.
enum class Rows { kIds, kPlannedIds, kPairs };

/// The ids of the site as two pairs for each token, the first of scale 0.75, the second of scale 0.25.
struct Pairs {
  DeviceBuffer<int32_t> starts{kTokens + 1};
  DeviceBuffer<int64_t> slots{2 * kTokens};
  DeviceBuffer<float> scales{2 * kTokens};

  explicit Pairs(const Site& site) {
    std::vector<int32_t> all_starts;
    std::vector<int64_t> all_slots;
    std::vector<float> all_scales;
    for (int32_t t = 0; t <= kTokens; ++t) all_starts.push_back(2 * t);
    for (const int64_t id : site.ids) {
      all_slots.insert(all_slots.end(), {id, id});
      all_scales.insert(all_scales.end(), {0.75f, 0.25f});
    }
    starts.upload(all_starts);
    slots.upload(all_slots);
    scales.upload(all_scales);
  }
};

/// y of the site by lora_apply with adapter tables.
void apply_tables(heddle_context* context, const Site& site, Rows rows) {
  const int64_t in = kIn, out = kOut;
  heddle_lora_table tables[2];
  heddle_adapter_table* halves[2] = {};
  expect_ok(heddle_adapter_table_create_aligned(context, &halves[0], kSlots, &in, 1, kRank, kHalf,
                                                HEDDLE_LORA_RANK_MAJOR));
  expect_ok(heddle_adapter_table_create(context, &halves[1], kSlots, &out, 1, kRank, kHalf,
                                        HEDDLE_LORA_RANK_MINOR));
  for (int i = 0; i < 2; ++i) {
    heddle_lora_table_init(&tables[i]);
    tables[i].adapters = halves[i];
  }
  const DeviceBuffer<half>* weights[2] = {&site.a_there, &site.b_there};
  const int64_t widths[2] = {kIn, kOut};
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    for (int i = 0; i < 2; ++i) {
      OnDevice weight(*weights[i], {i == 0 ? kRank : kOut, i == 0 ? kIn : kRank});
      weight.get()->byte_offset = size_t(slot * kRank * widths[i]) * sizeof(half);
      expect_ok(heddle_adapter_table_set(context, halves[i], slot, 0, weight.get(),
                                         i == 0 ? 9.0f : 2.0f));
    }
  }
  const DeviceBuffer<uint8_t> memory(heddle_lora_plan_bytes(kTokens, kRank));
  const OnDevice ids(site.ids_there, {kTokens}), x(site.x_there, {kTokens, kIn}),
      y(site.y_there, {kTokens, kOut}), plan(memory, {static_cast<int64_t>(memory.size())});
  const Pairs pairs(site);
  const OnDevice starts(pairs.starts, {kTokens + 1}), slots(pairs.slots, {2 * kTokens}),
      scales(pairs.scales, {2 * kTokens});
  const int64_t max_pairs = 2;
  heddle_lora_batch batch{};
  if (rows == Rows::kPairs) {
    batch.pair_starts = starts.get();
    batch.pair_slots = slots.get();
    batch.pair_scales = scales.get();
    batch.max_pairs = &max_pairs;
  } else {
    batch.slot_ids = ids.get();
  }
  if (rows == Rows::kPlannedIds) {
    expect_ok(heddle_lora_plan(context, plan.get(), &batch, kTokens, kSlots, kRank, nullptr));
    batch.plan = plan.get();
  }
  DLTensor* const ys[] = {y.get()};
  expect_ok(heddle_lora_apply(context, ys, 1, x.get(), &tables[0], &tables[1], &batch));
  site.expect_y();
  for (heddle_adapter_table* half_table : halves) heddle_adapter_table_destroy(half_table);
}

TEST_F(CApiCuda, AdapterTables) { apply_tables(context_, Site(), Rows::kIds); }

TEST_F(CApiCuda, AdapterTablesWithAPlan) { apply_tables(context_, Site(), Rows::kPlannedIds); }

TEST_F(CApiCuda, AdapterTablesWithPairs) { apply_tables(context_, Site(), Rows::kPairs); }

TEST_F(CApiCuda, MetadataOfABatch) {
  const DeviceBuffer<int32_t> tables(std::vector<int32_t>{1, 2, 3, 4, 5, 6}), ragged(4),
      positions(3);
  const DeviceBuffer<int64_t> input(std::vector<int64_t>{1, 2}), cache(std::vector<int64_t>{1, 0});
  const OnDevice c_tables(tables, {2, 3}), c_ragged(ragged, {4}), c_positions(positions, {3});
  const OnDevice c_input(input, {2}), c_cache(cache, {2});
  expect_ok(heddle_block_tables_to_ragged(context_, c_ragged.get(), c_tables.get(), c_input.get(),
                                          c_cache.get(), nullptr, nullptr));
  EXPECT_EQ(ragged.download(), (std::vector<int32_t>{1, 2, 4, 5}));
  heddle_prepare_batch_outputs outputs;
  heddle_prepare_batch_inputs inputs;
  heddle_prepare_batch_outputs_init(&outputs);
  heddle_prepare_batch_inputs_init(&inputs);
  inputs.cache_lengths = c_cache.get();
  inputs.input_lengths = c_input.get();
  outputs.positions = c_positions.get();
  expect_ok(heddle_prepare_batch(context_, &outputs, &inputs));
  EXPECT_EQ(positions.download(), (std::vector<int32_t>{1, 0, 1}));
  EXPECT_TRUE(ragged.guards_intact() && positions.guards_intact());
}

TEST_F(CApiCuda, AStepOfSpeculation) {
  // One request with two drafts, of which the first is confirmed; five tokens in blocks 4 9 3 of two.
  const DeviceBuffer<int32_t> input(std::vector<int32_t>{1, 7, 3}),
      output(std::vector<int32_t>{7, 5, 6}), ids(std::vector<int32_t>{4, 9, 3, -1}), slots(1);
  const DeviceBuffer<int64_t> offset(std::vector<int64_t>{0}), length(std::vector<int64_t>{5}),
      counts(std::vector<int64_t>{3}), last_id(std::vector<int64_t>{3}), sampled(1), released(2),
      num_released(1);
  const OnDevice c_input(input, {3}), c_output(output, {3}), c_ids(ids, {1, 4}),
      c_slots(slots, {1, 1}), c_offset(offset, {1}), c_length(length, {1}), c_counts(counts, {1}),
      c_last_id(last_id, {1}), c_sampled(sampled, {1}), c_released(released, {2}),
      c_num_released(num_released, {1});
  const heddle_kv_block_state state{c_offset.get(), c_length.get(), c_counts.get(), c_last_id.get(),
                                    c_ids.get()};
  heddle_speculative_step_outputs outputs;
  heddle_speculative_step_outputs_init(&outputs);
  outputs.sampled_tokens = c_sampled.get();
  outputs.released.released_ids = c_released.get();
  outputs.released.num_released = c_num_released.get();
  outputs.next_slots = c_slots.get();
  const heddle_count one{1, nullptr}, none{0, nullptr};
  const heddle_drafts drafts{2, nullptr, false};
  expect_ok(heddle_speculative_step(context_, &outputs, &state, c_input.get(), c_output.get(),
                                    nullptr, &one, &none, &drafts, 2, nullptr));
  EXPECT_EQ(sampled.download()[0], 5);
  EXPECT_EQ(num_released.download()[0], 1);
  EXPECT_EQ(released.download(0, 1)[0], 3);
  EXPECT_TRUE(released.untouched(1, 1));
  EXPECT_EQ(length.download()[0], 4);
  EXPECT_EQ(ids.download(), (std::vector<int32_t>{4, 9, -1, -1}));
  EXPECT_EQ(slots.download()[0], -1);  // in a third block
}

TEST_F(CApiCuda, NgramDrafts) {
  const DeviceBuffer<int32_t> tokens(std::vector<int32_t>{7, 8, 1, 7, 8, 2, 7, 8}), drafts(2);
  const DeviceBuffer<int64_t> lengths(std::vector<int64_t>{8}), count(1);
  const OnDevice c_tokens(tokens, {1, 8}), c_drafts(drafts, {1, 2}), c_lengths(lengths, {1}),
      c_count(count, {1});
  expect_ok(heddle_propose_ngram_drafts(context_, c_drafts.get(), c_count.get(), c_tokens.get(),
                                        c_lengths.get(), 2, nullptr, nullptr));
  EXPECT_EQ(drafts.download(), (std::vector<int32_t>{1, 7}));
  EXPECT_EQ(count.download()[0], 2);
}

TEST_F(CApiCuda, AnOperationWithoutKernelIsRefused) {
  const DeviceBuffer<float> data(8);
  const OnDevice x(data, {2, 4});
  expect_failure(HEDDLE_UNSUPPORTED, "silu_and_mul",
                 heddle_silu_and_mul(context_, x.get(), x.get(), x.get()));
  EXPECT_TRUE(data.untouched(0, 8));
}

TEST_F(CApiCuda, RmsNorm) {
  const DeviceBuffer<half> x(random_normal<half>(2 * 40)), weight(random_normal<half>(40));
  const DeviceBuffer<half> got(2 * 40), want(2 * 40);
  const OnDevice y(got, {2, 40}), in(x, {2, 40}), w(weight, {40});
  expect_ok(heddle_rms_norm(context_, y.get(), in.get(), w.get(), nullptr));
  rms_norm(cuda_context(), want.view({2, 40}), x.view({2, 40}), weight.view({40}));
  EXPECT_TRUE(same_bits<half>(got.download(), want.download()));

  const std::vector<half> start = random_normal<half>(2 * 40);
  const DeviceBuffer<half> sum(start), same_sum(start);
  const DeviceBuffer<float8_e4m3> got8(2 * 40), want8(2 * 40);
  const DeviceBuffer<float> scales(2), want_scales(2);
  const OnDevice y8(got8, {2, 40}), residual(sum, {2, 40}), row_scales(scales, {2});
  heddle_rms_norm_options options;
  heddle_rms_norm_options_init(&options);
  options.row_scales = row_scales.get();
  expect_ok(
      heddle_fused_add_rms_norm(context_, y8.get(), residual.get(), in.get(), w.get(), &options));
  RmsNormOptions per_row;
  per_row.output_scale.per_row = want_scales.view({2});
  fused_add_rms_norm(cuda_context(), want8.view({2, 40}), same_sum.view({2, 40}), x.view({2, 40}),
                     weight.view({40}), per_row);
  EXPECT_TRUE(same_bits<half>(sum.download(), same_sum.download()));
  EXPECT_TRUE(same_bits<float8_e4m3>(got8.download(), want8.download()));
  EXPECT_TRUE(same_bits<float>(scales.download(), want_scales.download()));
  EXPECT_TRUE(got8.guards_intact() && scales.guards_intact() && sum.guards_intact());
}

// One layer, two slots, S = 1: request 0 has slot 1 and an accepted draft, request 1 none, and request 2 is padding.
TEST_F(CApiCuda, MambaStates) {
  const std::vector<float> conv = random_normal<float>(2 * 2 * 3),
                           scan = random_normal<float>(2 * 2 * 5);
  const DeviceBuffer<float> conv_from(conv), scan_from(scan);
  const DeviceBuffer<float> conv_to(std::vector<float>(2 * 3)), scan_to(std::vector<float>(2 * 5));
  const DeviceBuffer<int32_t> prefill(std::vector{0, 0, 0}), active(std::vector{2});
  const DeviceBuffer<int64_t> slots(std::vector<int64_t>{1, -1, 0});
  const DeviceBuffer<int64_t> accepted(std::vector<int64_t>{1, 0, 1});
  const OnDevice to[] = {{conv_to, {1, 2, 3}}, {scan_to, {1, 2, 5}}};
  const OnDevice from[] = {{conv_from, {1, 2, 2, 3}}, {scan_from, {1, 2, 2, 5}}};
  DLTensor* const current[] = {to[0].get(), to[1].get()};
  const DLTensor* const intermediate[] = {from[0].get(), from[1].get()};
  const OnDevice c_prefill(prefill, {3}), c_slots(slots, {3}), c_accepted(accepted, {3});
  const OnDevice c_active(active, {1});
  const heddle_count num_active{.value = 0, .on_device = c_active.get()};
  expect_ok(heddle_mamba_state_selective_copy(context_, current, intermediate, 2, c_prefill.get(),
                                              c_slots.get(), c_accepted.get(), 1, &num_active));
  std::vector<float> conv_want(2 * 3), scan_want(2 * 5);
  std::copy_n(conv.begin() + 3 * 3, 3, conv_want.begin() + 3);
  std::copy_n(scan.begin() + 3 * 5, 5, scan_want.begin() + 5);
  EXPECT_EQ(conv_to.download(), conv_want);
  EXPECT_EQ(scan_to.download(), scan_want);
  EXPECT_TRUE(conv_to.guards_intact() && scan_to.guards_intact());
}

/// Two sequences of 5 and 3 tokens on pages of 4, one kv head of 16: a cache that C fills and one that C++ does.
TEST_F(CApiCuda, NewTokensAttentionAndStates) {
  const DeviceBuffer<half> k(random_normal<half>(8 * 16)), v(random_normal<half>(8 * 16));
  const DeviceBuffer<half> got(2 * 4 * 4 * 16), want(got.size());
  const std::vector<half> queries = random_normal<half>(8 * 2 * 16);
  const DeviceBuffer<half> q_got(queries), q_want(queries);
  const DeviceBuffer<int32_t> indptr(std::vector<int32_t>{0, 2, 3}),
      pages(std::vector<int32_t>{3, 0, 2}), last(std::vector<int32_t>{1, 3}),
      starts(std::vector<int32_t>{0, 5, 8});
  const OnDevice c_k(k, {8, 1, 16}), c_v(v, {8, 1, 16}), c_q(q_got, {8, 2, 16}),
      c_indptr(indptr, {3}), c_pages(pages, {3}), c_last(last, {2}), c_starts(starts, {3}),
      k_pool(got, {4, 1, 4, 16});
  OnDevice v_pool(got, {4, 1, 4, 16});
  v_pool.get()->byte_offset = got.size() / 2 * sizeof(half);
  heddle_paged_kv cache;
  heddle_paged_kv_init(&cache);
  cache.k = k_pool.get();
  cache.v = v_pool.get();
  const heddle_page_table table{c_indptr.get(), c_pages.get(), c_last.get()};
  const TensorView all = want.view({8, 1, 4, 16});
  const PagedKv same = PagedKv::from_pool(all.narrow(0, 0, 4), all.narrow(0, 4, 4));
  const PageTable same_table{indptr.view({3}), pages.view({3}), last.view({2})};
  const ExecContext ctx = cuda_context();

  expect_ok(heddle_kv_init(context_, &cache, &table, c_k.get(), c_v.get(), c_starts.get()));
  kv_init(ctx, same, same_table, k.view({8, 1, 16}), v.view({8, 1, 16}), starts.view({3}));
  EXPECT_TRUE(same_bits<half>(got.download(), want.download()));
  EXPECT_FALSE(got.untouched(0, got.size()));

  expect_ok(heddle_rope_kv_append(context_, c_q.get(), &cache, &table, c_k.get(), c_v.get(),
                                  c_starts.get(), nullptr, nullptr));
  rope_kv_append(ctx, q_want.view({8, 2, 16}), same, same_table, k.view({8, 1, 16}),
                 v.view({8, 1, 16}), starts.view({3}), {}, {});
  EXPECT_TRUE(same_bits<half>(got.download(), want.download()));
  EXPECT_TRUE(same_bits<half>(q_got.download(), q_want.download()));
  EXPECT_FALSE(same_bits<half>(q_got.download(), queries));

  const DeviceBuffer<half> a_got(queries.size()), a_want(queries.size());
  const DeviceBuffer<float> lse(16), lse_want(16);
  const OnDevice c_a(a_got, {8, 2, 16}), c_a_lse(lse, {8, 2});
  expect_ok(heddle_batch_prefill(context_, c_a.get(), c_a_lse.get(), c_q.get(), c_starts.get(),
                                 &cache, &table, nullptr));
  batch_prefill(ctx, a_want.view({8, 2, 16}), lse_want.view({8, 2}), q_want.view({8, 2, 16}),
                starts.view({3}), same, same_table);
  EXPECT_TRUE(same_bits<half>(a_got.download(), a_want.download()));
  EXPECT_TRUE(same_bits<float>(lse.download(), lse_want.download()));
  EXPECT_FALSE(a_got.untouched(0, a_got.size()));

  const DeviceBuffer<half> d_got(2 * 2 * 16), d_want(d_got.size());
  const OnDevice c_d(d_got, {2, 2, 16}), c_d_lse(lse, {2, 2}), c_d_q(q_got, {2, 2, 16});
  expect_ok(heddle_batch_decode(context_, c_d.get(), c_d_lse.get(), c_d_q.get(), &cache, &table,
                                nullptr));
  batch_decode(ctx, d_want.view({2, 2, 16}), lse_want.view({2, 2}), q_want.view({2, 2, 16}), same,
               same_table);
  EXPECT_TRUE(same_bits<half>(d_got.download(), d_want.download()));
  EXPECT_TRUE(same_bits<float>(lse.download(), lse_want.download()));
  EXPECT_FALSE(d_got.untouched(0, d_got.size()));
  const size_t bytes = heddle_batch_decode_workspace_bytes({kDLCUDA, 0}, 2, 2, 16);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, batch_decode_workspace_bytes({DeviceType::kCuda, 0}, 2, 2, 16));

  const DeviceBuffer<half> o_got(queries.size()), o_want(queries.size());
  const OnDevice c_lse(lse, {8, 2}), c_o(o_got, {8, 2, 16}), c_other(q_want, {8, 2, 16});
  expect_ok(heddle_merge_states(context_, c_o.get(), nullptr, c_q.get(), c_lse.get(), c_other.get(),
                                c_lse.get()));
  merge_states(ctx, o_want.view({8, 2, 16}), {}, q_got.view({8, 2, 16}), lse.view({8, 2}),
               q_want.view({8, 2, 16}), lse.view({8, 2}));
  EXPECT_TRUE(same_bits<half>(o_got.download(), o_want.download()));
}

TEST_F(CApiCuda, TensorsOfTheCpuAreNamed) {
  Array<float> x({2, 4}), a({1, 4, 4}), y({2, 4});
  Array<int32_t> ids({2});
  heddle_lora_batch batch{};
  batch.slot_ids = ids.c();
  expect_failure(HEDDLE_INVALID_ARGUMENT, "y is on cpu, the context runs on cuda:",
                 heddle_lora_shrink(context_, y.c(), x.c(), a.c(), &batch, 1.0f, false,
                                    HEDDLE_LORA_RANK_MAJOR));
}

}  // namespace
}  // namespace heddle::testing
