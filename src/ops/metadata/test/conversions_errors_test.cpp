#include <gtest/gtest.h>

#include "heddle/config.h"
#include "heddle/ops/metadata.h"

#include "expect_error.h"
#include "ops/metadata/test/index_tensor_cases.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using ref::Matrix;
using ref::Vector;
using testing::expect_error;
using testing::expect_invalid;
using testing::expect_unsupported;
using testing::IndexTensor;

const Matrix kTables{2, 3, {1, 2, 3, 4, 5, 6}};

struct Tensors {
  IndexTensor flat{Vector{0, 0, 0, 0}}, tables{kTables}, two{Vector{1, 1}}, other{Vector{1, 1}};
  IndexTensor cu{Vector{0, 2, 4}}, three{Vector{1, 1, 1}}, matrix{kTables};
};

TEST(ConversionErrors, NameTensorAxisAndBothValues) {
  Tensors t;
  expect_invalid({"input_lengths.size(0) is 3, expected num_seqs = 2"}, [&] {
    block_tables_to_ragged({}, t.flat.view(), t.tables.view(), t.three.view(), t.two.view());
  });
  expect_invalid({"ragged has rank 2, expected 1"}, [&] {
    block_tables_to_ragged({}, t.matrix.view(), t.tables.view(), t.two.view(), t.two.view());
  });
  expect_invalid({"cu_seqlens.size(0) is 2, expected num_seqs + 1 = 3"},
                 [&] { block_tables_to_padded({}, t.tables.view(), t.flat.view(), t.two.view()); });
  expect_invalid({"prompt_lengths.size(0) is 3, expected num_seqs = 2"}, [&] {
    copy_next_input_ids_inplace({}, t.tables.view(), t.flat.view(), t.cu.view(), t.two.view(),
                                t.two.view(), t.three.view());
  });
  expect_invalid({"cu_slots.size(0) is 4, expected num_seqs + 1 = 3"}, [&] {
    prepare_position_slot_ids({}, t.flat.view(), t.flat.view(), t.two.view(), t.cu.view(),
                              t.flat.view());
  });
  expect_invalid({"cu_slots.size(0) is 2, expected num_seqs + 1 = 3"}, [&] {
    slots_filtering({}, t.flat.view(), t.flat.view(), t.two.view(), t.two.view());
  });
  std::vector<float> floats(4);
  expect_unsupported({"ragged is f32, supported: i32, i64"}, [&] {
    block_tables_to_ragged({}, host_view(floats.data(), {4}), t.tables.view(), t.two.view(),
                           t.two.view());
  });
  ExecContext cuda;
  cuda.device = {DeviceType::kCuda, 0};
  const auto filter = [&] {
    slots_filtering(cuda, t.flat.view(), t.flat.view(), t.cu.view(), t.two.view());
  };
  if (kWithCuda) {
    expect_invalid({"filtered_slots is on cpu, the context runs on cuda:0"}, filter);
  } else {
    expect_unsupported({"slots_filtering: built without CUDA"}, filter);
  }
}

TEST(ConversionErrors, ATotalThatDisagreesWithTheLengthsIsAnError) {
  Tensors t;
  const auto run = [&](int64_t total) {
    block_tables_to_ragged({}, t.flat.view(), t.tables.view(), t.two.view(), t.other.view(),
                           std::nullopt, total);
  };
  expect_invalid({"input_lengths and cache_lengths sum to 4, expected total = 5"}, [&] { run(5); });
  t.flat.expect({0, 0, 0, 0});
  run(4);
  t.flat.expect({1, 2, 4, 5});
}

TEST(ConversionValidation, NamesRowAndValueOfTables) {
  const testing::ScopedValidation validation;
  Tensors t;
  const auto ragged = [&](Vector input, Vector cache) {
    IndexTensor in(input), ca(cache);
    block_tables_to_ragged({}, t.flat.view(), t.tables.view(), in.view(), ca.view());
  };
  ragged({1, 2}, {1, 0});
  expect_invalid({"cache_lengths[1] is -1, expected at least 0"}, [&] { ragged({1, 2}, {1, -1}); });
  expect_invalid({"input_lengths[0] is -2, expected at least 0"}, [&] { ragged({-2, 2}, {1, 0}); });
  expect_invalid({"input_lengths[1] + cache_lengths[1] is 4, expected at most width = 3"}, [&] {
    ragged({0, 2}, {0, 2});
  });
  expect_invalid({"up to row 1 sum to 5, expected at most the size of ragged = 4"}, [&] {
    ragged({1, 2}, {1, 1});
  });

  const auto padded = [&](Vector starts) {
    IndexTensor cu(starts);
    block_tables_to_padded({}, t.tables.view(), t.flat.view(), cu.view());
  };
  padded({0, 3, 4});
  expect_invalid({"cu_seqlens[2] is 1, expected at least cu_seqlens[1] = 3"}, [&] {
    padded({0, 3, 1});
  });
  expect_invalid({"cu_seqlens[2] is 5, expected at most size of ragged = 4"}, [&] {
    padded({0, 3, 5});
  });
  expect_invalid({"cu_seqlens[1] - cu_seqlens[0] is 4, expected at most width = 3"}, [&] {
    padded({0, 4, 4});
  });
}

TEST(ConversionValidation, NamesRowAndValueOfIdsAndSlots) {
  const testing::ScopedValidation validation;
  Tensors t;
  const auto next = [&](Vector cache, Vector prompt) {
    IndexTensor ca(cache), pr(prompt);
    copy_next_input_ids_inplace({}, t.tables.view(), t.flat.view(), t.cu.view(), ca.view(),
                                t.two.view(), pr.view());
  };
  next({0, 0}, {0, 0});
  next({7, 0}, {99, 0});  // a row that is still in its prompt writes nothing
  expect_invalid({"cache_lengths[1] + input_lengths[1] is 2, with 2 ids behind it, "
                  "expected to end at most at max_length = 3"},
                 [&] {
                   next({0, 1}, {0, 0});
                 });
  expect_invalid({"cache_lengths[1] is -4, expected at least 0"}, [&] { next({0, -4}, {0, 0}); });
  expect_invalid({"prompt_lengths[0] is -1, expected at least 0"}, [&] { next({0, 0}, {-1, 0}); });
  IndexTensor descending(Vector{0, 2, 1}), negative(Vector{0, -4});
  expect_invalid({"cu_accepted_ids[2] is 1, expected at least cu_accepted_ids[1] = 2"}, [&] {
    copy_next_input_ids_inplace({}, t.tables.view(), t.flat.view(), descending.view(), t.two.view(),
                                t.two.view(), t.two.view());
  });
  expect_invalid({"input_lengths[1] is -4, expected at least 0"}, [&] {
    copy_next_input_ids_inplace({}, t.tables.view(), t.flat.view(), t.cu.view(), t.two.view(),
                                negative.view(), t.two.view());
  });

  const auto positions = [&](Vector cache, Vector starts, Vector slots) {
    IndexTensor ca(cache), cu(starts), cs(slots);
    prepare_position_slot_ids({}, t.flat.view(), t.flat.view(), ca.view(), cu.view(), cs.view());
  };
  positions({5, 6}, {0, 1, 4}, {0, 9});
  expect_invalid({"cu_seqlens[2] is 5, expected at most size of position_ids = 4"}, [&] {
    positions({5, 6}, {0, 1, 5}, {0, 9});
  });
  expect_invalid({"cu_slots[0] is -3, expected at least 0"}, [&] {
    positions({5, 6}, {0, 1, 4}, {-3, 9});
  });
  expect_invalid({"cache_lengths[0] is -5, expected at least 0"}, [&] {
    positions({-5, 6}, {0, 1, 4}, {0, 9});
  });
  expect_invalid({"cu_seqlens[1] is 2, expected at most size of slot_indices = 1"}, [&] {
    prepare_position_slot_ids({}, {}, t.flat.view().narrow(0, 0, 1), t.two.view(), t.cu.view(),
                              t.two.view());
  });

  const auto filtering = [&](Vector starts, Vector from) {
    IndexTensor out(Vector{0, 0, 0, 0}), cu(starts), fr(from);
    slots_filtering({}, out.view(), t.flat.view(), cu.view(), fr.view());
  };
  filtering({0, 2, 4}, {0, 2});
  filtering({0, 0, 4}, {77, 0});  // of an empty row the source is not looked at
  expect_invalid({"cu_slots[2] is 5, expected at most size of filtered_slots = 4"}, [&] {
    filtering({0, 2, 5}, {0, 2});
  });
  expect_invalid({"slots_start[1] is 3, with 2 slots from there, "
                  "expected within the size of slots = 4"},
                 [&] {
                   filtering({0, 2, 4}, {0, 3});
                 });
}

}  // namespace
}  // namespace heddle
