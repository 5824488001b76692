#pragma once

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ops/lora/test/lora_test_body.h"
#include "poison.h"

// The bodies of the tests of calls that do nothing, or something that is easily told; the same for
// every device.

namespace heddle::testing {

/// Two slots of rank 2, in_features 3, out_features 4, all ones; every test changes one thing. T:
/// dtype of x and the weights.
template <class T>
struct LoraCall {
  std::vector<T> x = ones(15), a = ones(12), b = ones(16);
  std::vector<int32_t> ids{0, 1, -1, 2, -7};  // the last three: no adapter
  PoisonedBuffer<float> h{10}, y{20};
  LoraWeight a_entries[2] = {{.data = a.data(), .rank = 2, .row_stride = 3},
                             {.data = a.data() + 6, .rank = 2, .row_stride = 3}};
  LoraWeight b_entries[2] = {{.data = b.data(), .rank = 2, .scale = 3.0f, .row_stride = 2},
                             {.data = b.data() + 8, .rank = 2, .row_stride = 2}};
  LoraTable a_table{.entries = a_entries, .num_slots = 2, .max_rank = 2, .dtype = kDType<T>};
  LoraTable b_table{.entries = b_entries,
                    .num_slots = 2,
                    .max_rank = 2,
                    .dtype = kDType<T>,
                    .layout = LoraLayout::kRankMinor};
  LoraRun run;

  explicit LoraCall(const LoraRun& run) : run(run) {}

  [[nodiscard]] static std::vector<T> ones(size_t n) {
    return std::vector<T>(n, from_float<T>(1.0f));
  }
  [[nodiscard]] LoraBatch batch() const {
    return LoraBatch::from_ids(host_view(ids.data(), {int64_t(ids.size())}));
  }
  void shrink(const LoraBatch& rows, int64_t n = 5) {
    call(rows, n, [&](const ExecContext& ctx, const LoraBatch& there) {
      lora_shrink(ctx, run.mirror(h.view({n, 2})),
                  run.mirror(host_view(std::as_const(x).data(), {n, 3})), table(a_table, 3), 0,
                  there);
    });
  }
  void expand(const LoraBatch& rows, int64_t n = 5, int64_t offset = 0) {
    call(rows, n, [&](const ExecContext& ctx, const LoraBatch& there) {
      lora_expand(ctx, run.mirror(y.view({n, 4})), run.mirror(ConstTensorView(h.view({n, 2}))),
                  table(b_table, 4), 0, 4, there, offset, 1.0f, false);
    });
  }
  void apply(const LoraBatch& rows, int64_t n = 5) {
    apply(rows, y.view({n, 4}), host_view(std::as_const(x).data(), {n, 3}));
  }
  void apply(const LoraBatch& rows, const TensorView& out, const ConstTensorView& in) {
    call(rows, in.size(0), [&](const ExecContext& ctx, const LoraBatch& there) {
      const LoraSlice slice{run.mirror(out)};
      lora_apply(ctx, {&slice, 1}, run.mirror(in), table(a_table, 3), table(b_table, 4), there);
    });
  }

 private:
  [[nodiscard]] LoraTable table(const LoraTable& host, int64_t features) const {
    return run.table(host, {&features, 1});
  }
  template <class Call>
  void call(const LoraBatch& rows, int64_t n, const Call& op) {
    Workspace workspace =
        rows.pair_starts ? run.pairs_workspace(n, 3, 0, 1, 2) : run.workspace(n, 3, 1, 2);
    op(run.with(workspace), run.batch(rows, n, a_table.num_slots, 2));
    run.mirror.back();
  }
};

template <class T>
void expect_rows_without_an_adapter_are_not_touched(const LoraRun& run) {
  LoraCall<T> c(run);
  c.shrink(c.batch());
  c.expand(c.batch());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(c.h[i], 3.0f);
  for (size_t i = 4; i < 10; ++i) EXPECT_TRUE(c.h.untouched(i));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(c.y[i], 18.0f);  // 2 ranks * 3, and the entry's scale of 3
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(c.y[i], 6.0f);
  for (size_t i = 8; i < 20; ++i) EXPECT_TRUE(c.y.untouched(i));
}

template <class T>
void expect_null_weights_and_no_slots_touch_nothing(const LoraRun& run) {
  LoraCall<T> c(run);
  c.a_entries[0].data = c.a_entries[1].data = nullptr;
  c.a_entries[0].rank = 9999;  // of no interest without data
  c.shrink(c.batch());
  c.apply(c.batch());
  c.a_table.num_slots = c.b_table.num_slots = 0;
  c.a_table.entries = nullptr;
  c.shrink(c.batch());
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(c.h.untouched(i));
  for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(c.y.untouched(i));
}

template <class T>
void expect_segments_without_slots_use_their_own_number(const LoraRun& run) {
  LoraCall<T> c(run);
  const std::vector<int64_t> starts{3, 0, 1}, ends{5, 1, 2};  // the third slot is not there
  c.b_entries[1].data = c.a_entries[1].data = nullptr;
  c.shrink(LoraBatch::from_segments(host_view(starts.data(), {3}), host_view(ends.data(), {3})));
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(c.h.untouched(i));
  for (size_t i = 6; i < 10; ++i) EXPECT_EQ(c.h[i], 3.0f);
}

template <class T>
void expect_empty_batches_are_legal(const LoraRun& run) {
  LoraCall<T> c(run);
  const LoraBatch none = LoraBatch::from_ids(host_view(c.ids.data(), {0}));
  c.shrink(none, 0);
  c.expand(none, 0);
  c.apply(none, 0);
  const std::vector<int64_t> empty(1);
  const ConstTensorView no_segments = host_view(empty.data(), {0});
  c.shrink(LoraBatch::from_segments(no_segments, no_segments, no_segments));
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(c.h.untouched(i));
  for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(c.y.untouched(i));
}

/// More rows than a grid has blocks in its second and third axis.
template <class T>
void expect_takes_any_number_of_rows(const LoraRun& run, int64_t n = 70000) {
  LoraCall<T> c(run);
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < n; ++t) ids.push_back(t % 3 - 1);
  const std::vector<T> x = c.ones(size_t(3 * n));
  std::vector<float> y(size_t(4 * n), 1.0f);
  c.apply(LoraBatch::from_ids(host_view(std::as_const(ids).data(), {n})),
          host_view(y.data(), {n, 4}), host_view(x.data(), {n, 3}));
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t slot = ids[i / 4];  // y + 2 ranks * 3, and the scale of 3 of slot 0
    ASSERT_EQ(y[i], slot == 0 ? 19.0f : slot == 1 ? 7.0f : 1.0f) << "row " << i / 4;
  }
}

}  // namespace heddle::testing
