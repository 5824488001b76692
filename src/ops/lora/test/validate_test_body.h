#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/lora/test/lora_test_body.h"
#include "poison.h"
#include "scoped_validation.h"

// The bodies of the tests of HEDDLE_VALIDATE=1, the same for every device.

namespace heddle::testing {

/// Four rows of one feature and two slots of rank 1; slot 1 has no address in the pointer table. T:
/// dtype of x and the weights.
template <class T>
struct ValidatedSite {
  using Parts = std::vector<const char*>;

  std::vector<T> x = std::vector<T>(4, from_float<T>(1.0f));
  std::vector<T> weights{from_float<T>(1.0f), from_float<T>(2.0f)};
  std::vector<int64_t> addresses{reinterpret_cast<int64_t>(weights.data()), 0};
  PoisonedBuffer<float> y{4};
  LoraTable pointers = LoraTable::from_pointers(host_view(addresses.data(), {2}), kDType<T>,
                                                LoraLayout::kRankMajor, 1, 1);
  LoraTable table =
      LoraTable::from_stack(host_view(weights.data(), {2, 1, 1}), LoraLayout::kRankMajor);
  LoraRun run;

  explicit ValidatedSite(const LoraRun& run) : run(run) {}

  /// Every op that takes the batch, with the table for A and for B: an error that holds all parts,
  /// or none where there are none.
  void run_all(const LoraBatch& batch, const LoraTable& host_table, const Parts& parts) {
    if (!batch.pair_starts) run_halves(batch, host_table, parts);
    const auto apply = [&](const LoraTable& a, const LoraTable& b) {
      call(batch, parts, [&](const ExecContext& ctx, const LoraBatch& rows) {
        const LoraSlice slice{out()};
        lora_apply(ctx, {&slice, 1}, in(), there(a), there(b), rows);
      });
    };
    apply(host_table, table);
    apply(table, host_table);
  }
  void run_halves(const LoraBatch& batch, const LoraTable& host_table, const Parts& parts) {
    if (host_table.stack != nullptr) {
      call(batch, parts, [&](const ExecContext& ctx, const LoraBatch& rows) {
        lora_shrink(ctx, out(), in(), stack(), rows);
      });
      call(batch, parts, [&](const ExecContext& ctx, const LoraBatch& rows) {
        lora_expand(ctx, out(), in(), stack(), rows);
      });
    }
    call(batch, parts, [&](const ExecContext& ctx, const LoraBatch& rows) {
      lora_shrink(ctx, out(), in(), there(host_table), 0, rows);
    });
    call(batch, parts, [&](const ExecContext& ctx, const LoraBatch& rows) {
      lora_expand(ctx, out(), in(), there(host_table), 0, 1, rows);
    });
  }
  /// One call, for each of the parts anew.
  template <class Op>
  void call(const LoraBatch& batch, const Parts& parts, const Op& op) {
    const auto once = [&] {
      Workspace workspace =
          batch.pair_starts ? run.pairs_workspace(4, 1, 0, 1, 1) : run.workspace(4, 1, 1, 1);
      op(run.with(workspace), run.batch(batch, 4, 2, 1));
    };
    if (parts.empty()) once();
    for (const char* part : parts) expect_invalid({part}, once);
    run.mirror.back();
  }

  [[nodiscard]] TensorView out() { return run.mirror(y.view({4, 1})); }
  [[nodiscard]] ConstTensorView in() const {
    return run.mirror(ConstTensorView(host_view(x.data(), {4, 1})));
  }
  [[nodiscard]] ConstTensorView stack() const {
    return run.mirror(ConstTensorView(host_view(weights.data(), {2, 1, 1})));
  }
  [[nodiscard]] LoraTable there(const LoraTable& host) const {
    const int64_t features = 1;
    return run.table(host, {&features, 1});
  }
};

template <class T>
void expect_slots_are_below_their_number(const LoraRun& run) {
  ValidatedSite<T> site(run);
  const std::vector<int32_t> ids{0, -5, 1, 2};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {4}));
  site.run_all(batch, site.table, {});
  EXPECT_TRUE(site.y.untouched(3));
  EXPECT_FALSE(site.y.untouched(2));
  const ScopedValidation on;
  site.run_all(batch, site.table, {"slot_ids[3] is 2, expected below num_slots = 2"});
  const std::vector<int32_t> first_of_two{0, 7, 1, 2}, fine{0, -5, 1, -1};
  site.run_all(LoraBatch::from_ids(host_view(first_of_two.data(), {4})), site.table,
               {"slot_ids[1] is 7, expected below num_slots = 2"});
  site.run_all(LoraBatch::from_ids(host_view(fine.data(), {4})), site.table, {});
}

template <class T>
void expect_a_used_slot_has_an_address(const LoraRun& run) {
  ValidatedSite<T> site(run);
  const std::vector<int64_t> ids{0, -1, 1, 0}, unused{0, -1, 0, 0};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {4}));
  site.run_all(batch, site.pointers, {});
  EXPECT_TRUE(site.y.untouched(2));
  const ScopedValidation on;
  site.run_all(batch, site.pointers, {"slot_ids[2] is 1, but ", ".pointers[1] is null"});
  site.run_all(LoraBatch::from_ids(host_view(unused.data(), {4})), site.pointers, {});
}

template <class T>
void expect_entries_may_lack_a_slice(const LoraRun& run) {
  ValidatedSite<T> site(run);
  const ScopedValidation on;
  const LoraWeight none[2] = {};
  const std::vector<int64_t> ids{0, 1, 1, 0};
  const LoraTable empty{.entries = none, .num_slots = 2, .max_rank = 1, .dtype = kDType<T>};
  site.run_all(LoraBatch::from_ids(host_view(ids.data(), {4})), empty, {});
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(site.y.untouched(i));
}

template <class T>
void expect_segments_stay_within_the_rows_and_apart(const LoraRun& run) {
  ValidatedSite<T> site(run);
  struct Case {
    std::vector<int64_t> starts, ends, slots;
    std::vector<const char*> parts;
  };
  const std::vector<Case> cases{
      {{2, 0, -1}, {4, 2, -1}, {0, 1, 77}, {}},
      {{0}, {5}, {0}, {"seg_ends[0] is 5, expected at most num_tokens = 4"}},
      {{0, -1}, {1, 2}, {0, 0}, {"seg_starts[1] is -1, expected at least 0"}},
      {{4}, {6}, {0}, {"seg_starts[0] is 4, expected below num_tokens = 4"}},
      {{2, 0}, {4, 3}, {0, 1}, {"seg_starts[0] is 2, expected at least seg_ends[1] = 3"}},
      {{0, 0}, {1, 1}, {0, 1}, {"seg_starts[1] is 0, expected at least seg_ends[0] = 1"}},
      {{0, 2}, {1, 3}, {0, 2}, {"seg_slots[1] is 2, expected below num_slots = 2"}},
  };
  const ScopedValidation on;
  for (const Case& c : cases) {
    const auto n = static_cast<int64_t>(c.starts.size());
    const LoraBatch batch =
        LoraBatch::from_segments(host_view(c.starts.data(), {n}), host_view(c.ends.data(), {n}),
                                 host_view(c.slots.data(), {n}));
    site.run_all(batch, site.table, c.parts);
  }
  const std::vector<int64_t> start{1}, end{3}, slot{1};
  const LoraBatch null_slot = LoraBatch::from_segments(
      host_view(start.data(), {1}), host_view(end.data(), {1}), host_view(slot.data(), {1}));
  site.run_all(null_slot, site.pointers, {"seg_slots[0] is 1, but "});
  const std::vector<int64_t> starts{0, 1, 2}, ends{1, 2, 3};  // the third is slot 2
  const LoraBatch own_number =
      LoraBatch::from_segments(host_view(starts.data(), {3}), host_view(ends.data(), {3}));
  site.run_all(own_number, site.table, {"seg_slots[2] is 2, expected below num_slots = 2"});
}

template <class T>
void expect_starts_of_pairs_are_in_order(const LoraRun& run) {
  ValidatedSite<T> site(run);
  struct Case {
    std::vector<int64_t> starts, slots;
    int64_t max_pairs;
    std::vector<const char*> parts;
  };
  const std::vector<Case> cases{
      {{0, 0, 2, 2, 3}, {1, -9, 0, 77}, 2, {}},
      {{1, 1, 2, 2, 3}, {1, 0, 0}, 2, {"pair_starts[0] is 1, expected 0"}},
      {{0, 2, 1, 2, 3},
       {1, 0, 0},
       2,
       {"pair_starts[2] is 1, expected at least pair_starts[1] = 2"}},
      {{0, 1, 1, 2, 4}, {1, 0, 0}, 2, {"pair_starts[4] is 4, expected at most num_pairs = 3"}},
      {{0, 0, 3, 3, 3},
       {1, 0, 0},
       2,
       {"pair_starts[2] is 3, expected at most pair_starts[1] + max_pairs = 2"}},
      {{0, 1, 2, 2, 3}, {1, 0, 2}, 2, {"pair_slots[2] is 2, expected below num_slots = 2"}},
  };
  const auto batch_of = [](const Case& c) {
    return LoraBatch::from_pairs(host_view(c.starts.data(), {5}),
                                 host_view(c.slots.data(), {int64_t(c.slots.size())}), {},
                                 c.max_pairs);
  };
  for (const Case& c : cases) site.run_all(batch_of(c), site.table, {});
  const ScopedValidation on;
  for (const Case& c : cases) site.run_all(batch_of(c), site.table, c.parts);
  site.run_all(batch_of(cases[0]), site.pointers, {"pair_slots[0] is 1, but ", "is null"});
}

}  // namespace heddle::testing
