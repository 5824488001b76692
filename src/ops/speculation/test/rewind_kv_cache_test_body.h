#pragma once

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/speculation/test/speculation_cases.h"
#include "ops/speculation/test/speculation_test_body.h"
#include "scoped_validation.h"

// The bodies of the tests of rewind_kv_cache, the same for every device.

namespace heddle::testing::rewind_kv_cache_cases {

constexpr int64_t kBefore = IndexBuffer::kBefore;

struct Released {
  IndexBuffer blocks;
  MaskBuffer mask;
  IndexBuffer ids, num{1};
  Released(int64_t rows, int64_t capacity) : blocks(rows), mask(rows), ids(capacity) {}

  ReleasedBlocks view() { return {blocks.view(), mask.view(), ids.view(), num.view()}; }
  [[nodiscard]] Ints list() const {
    Ints list = ids.values();
    list.resize(size_t(num.get(0)));
    return list;
  }
  [[nodiscard]] bool gaps_intact() const {
    return blocks.gaps_intact() && mask.gaps_intact() && ids.gaps_intact() && num.gaps_intact();
  }
};

/// Runs the op on `kv`, of which `num_active` requests are active, and compares it with `rewind` of
/// each of those.
template <class Rewind>
void expect_rewound(const SpeculationRun& device, std::vector<ref::KvRequest> kv,
                    const Ints& accepted, const Ints& prefill, const Drafts& drafts,
                    const Ints& rejected, int64_t block_size, int64_t num_active,
                    const Rewind& rewind) {
  const int64_t rows = int64_t(kv.size()), max_blocks = int64_t(kv[0].ids.size());
  KvBuffers got(kv, max_blocks);
  IndexBuffer accepted_counts(accepted), prefill_status(prefill);
  Released released(rows + 1, rows * max_blocks);
  const bool all = num_active == std::ssize(accepted);
  rewind_kv_cache(device, released.view(), got.state(), accepted_counts.view(),
                  prefill_status.view(), drafts, block_size, all ? Count() : Count(num_active));
  const Ints mask = released.mask.values();
  Ints list;
  for (int64_t i = 0; i < rows; ++i) {
    ref::Release want;
    if (i < num_active) {
      want = rewind(kv[size_t(i)], rejected[size_t(i)], block_size);
      list.insert(list.end(), want.ids.begin(), want.ids.end());
    }
    EXPECT_TRUE(got.holds(i, kv[size_t(i)])) << "request " << i;
    EXPECT_EQ(released.blocks.get(i), want.block_to_release) << "request " << i;
    EXPECT_EQ(mask[size_t(i)], want.remove) << "request " << i;
  }
  EXPECT_EQ(released.list(), list);
  EXPECT_EQ(released.blocks.get(rows), 0);
  EXPECT_EQ(mask.back(), 0);
  EXPECT_TRUE(got.gaps_intact());
  EXPECT_TRUE(released.gaps_intact());
}

inline void equals_taking_tokens_off_one_by_one(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(300); ++round) {
    const int64_t requests = random_int(1, 20), max_drafts = random_int(0, 9);
    const int64_t block_size = random_int(1, 6), num_active = random_int(0, requests);
    const int64_t max_blocks = (max_drafts + block_size) / block_size + random_int(1, 3);
    const bool ragged = random_int(0, 1) == 1;
    Ints accepted, prefill, rejected, starts{0};
    for (int64_t i = 0; i < requests; ++i) {
      const int64_t n = ragged ? random_int(0, max_drafts) : max_drafts;
      starts.push_back(starts.back() + n);
      accepted.push_back(random_int(0, n));
      prefill.push_back(random_int(0, 3) == 0 ? 1 : pick<int64_t>({0, 0, 2}));
      rejected.push_back(prefill.back() == 1 ? 0 : n - accepted.back());
    }
    IndexBuffer indptr(starts);
    expect_rewound(device,
                   random_kv(requests + random_int(0, 2), max_blocks, block_size, max_drafts),
                   accepted, prefill,
                   ragged ? Drafts::ragged(indptr.view(), max_drafts) : Drafts::uniform(max_drafts),
                   rejected, block_size, num_active, ref::rewind_token_by_token);
  }
}

inline void equals_the_published_formulas_on_any_state(const SpeculationRun& device) {
  for (int round = 0; round < device.rounds(300); ++round) {
    const int64_t requests = random_int(1, 20), block_size = random_int(1, 6);
    const int64_t max_drafts = random_int(0, block_size), max_blocks = random_int(1, 4);
    std::vector<ref::KvRequest> kv;
    Ints accepted, prefill, rejected;
    for (int64_t i = 0; i < requests; ++i) {
      Ints ids;
      for (int64_t b = 0; b < max_blocks; ++b) ids.push_back(random_int(-1, 99));
      kv.push_back({random_int(0, block_size), random_int(0, 99), random_int(-1, max_blocks + 2),
                    random_int(-1, 99), ids});
      const int64_t far = pick<int64_t>({-7, max_drafts + 7});
      accepted.push_back(random_int(0, 4) == 0 ? far : random_int(0, max_drafts));
      prefill.push_back(random_int(0, 3) == 0);
      const int64_t clamped = std::clamp<int64_t>(accepted.back(), 0, max_drafts);
      rejected.push_back(prefill.back() == 1 ? 0 : max_drafts - clamped);
    }
    expect_rewound(device, kv, accepted, prefill, Drafts::uniform(max_drafts), rejected, block_size,
                   requests, ref::rewind_one_block);
  }
}

inline void takes_any_number_of_requests(const SpeculationRun& device) {
  const int64_t requests = device.many(70000);
  Ints accepted, prefill, rejected;
  for (int64_t i = 0; i < requests; ++i) {
    accepted.push_back(random_int(0, 5));
    prefill.push_back(i % 7 == 0);
    rejected.push_back(i % 7 == 0 ? 0 : 5 - accepted.back());
  }
  expect_rewound(device, random_kv(requests, 5, 2, 5), accepted, prefill, Drafts::uniform(5),
                 rejected, 2, requests, ref::rewind_token_by_token);
}

/// One request with the blocks 10, 11, 12 of four tokens.
struct Example {
  const SpeculationRun* device;
  std::vector<ref::KvRequest> kv;
  Released released{1, 8};

  Example(const SpeculationRun& on, int64_t offset)
      : device(&on), kv{{offset, 8 + offset + 1, 3, 12, {10, 11, 12, -1}}} {}
  /// Rewinds by S - accepted.
  ref::KvRequest run(int64_t num_speculative_tokens, int64_t accepted, int64_t prefill = 0) {
    KvBuffers buffers(kv, 4);
    IndexBuffer accepted_counts(Ints{accepted}), status(Ints{prefill});
    rewind_kv_cache(*device, released.view(), buffers.state(), accepted_counts.view(),
                    status.view(), Drafts::uniform(num_speculative_tokens), 4);
    EXPECT_TRUE(buffers.gaps_intact());
    return {buffers.offset.get(0), buffers.length.get(0), buffers.count.get(0),
            buffers.last_id.get(0), buffers.ids.row(0)};
  }
};

inline void expect_kv(const ref::KvRequest& got, const ref::KvRequest& want) {
  EXPECT_EQ(got.offset, want.offset);
  EXPECT_EQ(got.length, want.length);
  EXPECT_EQ(got.count, want.count);
  EXPECT_EQ(got.last_id, want.last_id);
  EXPECT_EQ(got.ids, want.ids);
}

inline void keeps_everything_when_all_is_accepted(const SpeculationRun& device) {
  Example example(device, 2);
  expect_kv(example.run(3, 3), example.kv[0]);
  EXPECT_EQ(example.released.blocks.get(0), 12);  // as published: an id, and the mask false
  EXPECT_EQ(example.released.mask.values(), Ints{0});
  EXPECT_EQ(example.released.num.get(0), 0);
  EXPECT_EQ(example.released.ids.get(0), kBefore);
}

inline void stays_within_the_block_up_to_its_first_token(const SpeculationRun& device) {
  Example example(device, 2);
  expect_kv(example.run(3, 1), {0, 9, 3, 12, {10, 11, 12, -1}});
  EXPECT_EQ(example.released.mask.values(), Ints{0});
}

inline void releases_the_block_of_a_rejected_first_token(const SpeculationRun& device) {
  Example example(device, 2);
  expect_kv(example.run(3, 0), {3, 8, 2, 11, {10, 11, -1, -1}});
  EXPECT_EQ(example.released.blocks.get(0), 12);
  EXPECT_EQ(example.released.mask.values(), Ints{1});
  EXPECT_EQ(example.released.list(), Ints{12});
}

inline void releases_several_blocks_last_one_first(const SpeculationRun& device) {
  Example example(device, 2);
  expect_kv(example.run(8, 0), {2, 3, 1, 10, {10, -1, -1, -1}});
  EXPECT_EQ(example.released.blocks.get(0), 12);
  EXPECT_EQ(example.released.list(), (Ints{12, 11}));
}

inline void releases_the_last_block_of_a_request(const SpeculationRun& device) {
  Example example(device, 2);
  expect_kv(example.run(11, 0), {3, 0, 0, -1, {-1, -1, -1, -1}});
  EXPECT_EQ(example.released.list(), (Ints{12, 11, 10}));
}

inline void falls_no_further_than_to_no_blocks(const SpeculationRun& device) {
  Example example(device, 2);  // 20 tokens of 11: wrong, but nothing before the row is written
  expect_kv(example.run(20, 0), {2, -9, 0, -1, {-1, -1, -1, -1}});
  EXPECT_EQ(example.released.list(), (Ints{12, 11, 10}));
  example.kv[0] = {0, 0, 0, 7, {5, 6, 6, 6}};
  expect_kv(example.run(1, 0), {3, -1, 0, -1, {-1, 6, 6, 6}});  // entry 0 is cleared
  EXPECT_EQ(example.released.mask.values(), Ints{1});
  EXPECT_EQ(example.released.num.get(0), 0);
}

inline void clamps_accepted_counts(const SpeculationRun& device) {
  Example example(device, 2);
  expect_kv(example.run(2, 5), example.kv[0]);
  expect_kv(example.run(2, -5), {0, 9, 3, 12, {10, 11, 12, -1}});
  expect_kv(example.run(0, 5), example.kv[0]);
  expect_kv(example.run(0, -5), example.kv[0]);
}

inline void only_prefill_status_one_is_prefill(const SpeculationRun& device) {
  Example example(device, 2);
  expect_kv(example.run(2, 0, 1), example.kv[0]);
  expect_kv(example.run(2, 0, 2), {0, 9, 3, 12, {10, 11, 12, -1}});
  expect_kv(example.run(2, 0, -1), {0, 9, 3, 12, {10, 11, 12, -1}});
}

inline void requests_past_the_starts_have_no_drafts(const SpeculationRun& device) {
  Example example(device, 2);
  const std::vector<ref::KvRequest> kv{example.kv[0], example.kv[0]};
  KvBuffers buffers(kv, 4);
  IndexBuffer accepted(Ints{0, 0}), status(Ints{0, 0}), indptr(Ints{0, 3});
  rewind_kv_cache(device, {}, buffers.state(), accepted.view(), status.view(),
                  Drafts::ragged(indptr.view(), 5), 4);
  EXPECT_EQ(buffers.offset.values(), (Ints{3, 2}));
}

inline void validation_looks_at_the_starts_of_active_decode_requests_only(
    const SpeculationRun& device) {
  const ScopedValidation validation;
  const Example example(device, 2);
  const std::vector<ref::KvRequest> kv(3, example.kv[0]);
  const auto run = [&](const Ints& starts, const Count& num_active) {
    KvBuffers buffers(kv, 4);
    IndexBuffer accepted(Ints{0, 0, 0}), status(Ints{0, 1, 0}), indptr(starts);
    rewind_kv_cache(device, {}, buffers.state(), accepted.view(), status.view(),
                    Drafts::ragged(indptr.view(), 5), 4, num_active);
    return buffers.offset.values();
  };
  EXPECT_EQ(run({0, 3, -7, 99}, 2), (Ints{3, 2, 2}));
  EXPECT_EQ(run({0, 3, 3, 4}, {}), (Ints{3, 2, 1}));
  expect_invalid({"draft_indptr[2] is -7, expected at least draft_indptr[1] = 3"}, [&] {
    run({0, 3, -7, 99}, {});
  });
}

inline void a_list_that_is_too_short_holds_the_first_ids(const SpeculationRun& device) {
  Example example(device, 2);
  example.released.ids = IndexBuffer(2);
  example.run(11, 0);
  EXPECT_EQ(example.released.num.get(0), 3);
  EXPECT_EQ(example.released.ids.values(), (Ints{12, 11}));
  EXPECT_TRUE(example.released.gaps_intact());
}

inline void the_count_may_lie_on_the_device(const SpeculationRun& device) {
  for (const int32_t active : {-1, 0, 1, 2, 9}) {
    Example example(device, 2);
    const std::vector<ref::KvRequest> kv{example.kv[0], example.kv[0]};
    KvBuffers buffers(kv, 4);
    IndexBuffer accepted(Ints{0, 0}), status(Ints{0, 0});
    Released released(2, 4);
    rewind_kv_cache(device, released.view(), buffers.state(), accepted.view(), status.view(),
                    Drafts::uniform(3), 4, ConstTensorView(host_view(&active, {1})));
    const int64_t rewound = std::clamp(active, 0, 2);
    EXPECT_EQ(buffers.offset.values(), (Ints{rewound > 0 ? 3 : 2, rewound > 1 ? 3 : 2}));
    EXPECT_EQ(released.blocks.values(), (Ints{rewound > 0 ? 12 : 0, rewound > 1 ? 12 : 0}));
    EXPECT_EQ(released.num.get(0), rewound);
  }
}

inline void empty_batch_and_empty_table(const SpeculationRun& device) {
  KvBuffers none({}, 4);
  IndexBuffer no_counts(0);
  Released released(3, 4);
  rewind_kv_cache(device, released.view(), none.state(), no_counts.view(), no_counts.view(),
                  Drafts::uniform(3), 4);
  EXPECT_EQ(released.blocks.values(), (Ints{0, 0, 0}));
  EXPECT_EQ(released.mask.values(), (Ints{0, 0, 0}));
  EXPECT_EQ(released.num.get(0), 0);

  KvBuffers no_table({{0, 5, 1, 7, {}}}, 0);
  IndexBuffer zero(Ints{0});
  rewind_kv_cache(device, {}, no_table.state(), zero.view(), zero.view(), Drafts::uniform(1), 4);
  EXPECT_TRUE(no_table.holds(0, {3, 4, 0, -1, {}}));
}

inline void errors_name_tensor_axis_and_values(const SpeculationRun& device) {
  KvBuffers kv({{2, 11, 3, 12, {10, 11, 12, -1}}}, 4);
  IndexBuffer one(Ints{0}), two(Ints{0, 0});
  std::vector<float> floats(2);
  const auto run = [&](const ReleasedBlocks& released, ConstTensorView accepted,
                       ConstTensorView prefill, int64_t block_size, const Count& num_active) {
    rewind_kv_cache(device, released, kv.state(), accepted, prefill, Drafts::uniform(3), block_size,
                    num_active);
  };
  expect_invalid({"last_kv_block_offset.size(0) is 1, expected at least num_requests = 2"},
                 [&] { run({}, two.view(), two.view(), 4, {}); });
  expect_invalid({"prefill_status.size(0) is 1, expected at least num_requests = 2"},
                 [&] { run({}, two.view(), one.view(), 4, {}); });
  expect_invalid({"block_size_tokens is 0, expected at least 1"},
                 [&] { run({}, one.view(), one.view(), 0, {}); });
  expect_invalid({"num_active is 2, expected 0 to 1"},
                 [&] { run({}, one.view(), one.view(), 4, 2); });
  expect_invalid({"num_released has rank 1 and 2 elements, expected one element"},
                 [&] { run({.num_released = two.view()}, one.view(), one.view(), 4, {}); });
  expect_unsupported({"remove_mask is i", "supported: bool, u8"},
                     [&] { run({.remove_mask = one.view()}, one.view(), one.view(), 4, {}); });
  expect_unsupported({"accepted_counts is f32, supported: i32, i64"},
                     [&] { run({}, host_view(floats.data(), {1}), one.view(), 4, {}); });
}

inline void validation_names_row_and_value_and_changes_nothing(const SpeculationRun& device) {
  const ScopedValidation validation;
  const ref::KvRequest good{2, 11, 3, 12, {10, 11, 12, -1}};
  const auto run = [&](const ref::KvRequest& second, int64_t accepted, int64_t prefill,
                       int64_t num_speculative_tokens, const Count& num_active = {}) {
    KvBuffers buffers({good, second}, 4);
    IndexBuffer accepted_counts(Ints{0, accepted}), status(Ints{0, prefill});
    try {
      rewind_kv_cache(device, {}, buffers.state(), accepted_counts.view(), status.view(),
                      Drafts::uniform(num_speculative_tokens), 4, num_active);
    } catch (const Error&) {
      EXPECT_TRUE(buffers.holds(0, good));
      EXPECT_TRUE(buffers.holds(1, second));
      throw;
    }
  };
  run(good, 0, 0, 3);
  run(good, 9, 1, 3);  // the count of a prefill request is not looked at
  expect_invalid({"accepted_counts[1] is 4, expected 0 to its drafts = 3"},
                 [&] { run(good, 4, 0, 3); });
  expect_invalid({"accepted_counts[1] is -1, expected 0 to its drafts = 3"},
                 [&] { run(good, -1, 0, 3); });
  run(good, -1, 0, 3, 1);  // padding
  expect_invalid({"kv_block_counts[1] is 5, expected 0 to max_blocks = 4"}, [&] {
    run({2, 11, 5, 12, {10, 11, 12, -1}}, 0, 0, 3);
  });
  expect_invalid({"last_kv_block_offset[1] is 4, expected 0 to below block_size_tokens = 4"}, [&] {
    run({4, 11, 3, 12, {10, 11, 12, -1}}, 0, 0, 3);
  });
  expect_invalid({"kv_block_counts[1] is 1, a rewind of 8 tokens releases 2"}, [&] {
    run({2, 3, 1, 10, {10, -1, -1, -1}}, 0, 0, 8);
  });
  const int32_t three = 3;
  expect_invalid({"num_active is 3, expected 0 to num_requests = 2"},
                 [&] { run(good, 0, 0, 3, ConstTensorView(host_view(&three, {1}))); });
}

}  // namespace heddle::testing::rewind_kv_cache_cases
