#include "cpu/validate_indices.h"

#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"

namespace heddle::cpu {
namespace {

using testing::expect_invalid;

TEST(ValidateIndices, IdsAreWithinTheirRange) {
  const std::vector<int32_t> ids{0, 3, -1, 4};
  check_indices("ids", host_view(ids.data(), {2}), 0, 4, "num_slots");
  check_indices("ids", host_view(ids.data(), {3}), kAnyNegative, 4, "num_slots");
  check_indices("ids", host_view(ids.data(), {0}), 0, 0, "num_slots");
  expect_invalid({"ids[2] is -1, expected at least 0"},
                 [&] { check_indices("ids", host_view(ids.data(), {4}), 0, 4, "num_slots"); });
  expect_invalid({"ids[3] is 4, expected below num_slots = 4"}, [&] {
    check_indices("ids", host_view(ids.data(), {4}), kAnyNegative, 4, "num_slots");
  });
  expect_invalid({"table[1, 2] is 7, expected below num_blocks = 7"},
                 [] { check_index("table", 1, 2, 7, 0, 7, "num_blocks"); });
  expect_invalid({"table[1, 2] is -7, expected at least 0"},
                 [] { check_index("table", 1, 2, -7, 0, 7, "num_blocks"); });
}

TEST(ValidateIndices, CountsIncludeTheirLimit) {
  const std::vector<int64_t> lens{1, 16, 17};
  check_counts("lens", host_view(lens.data(), {2}), 1, 16, "page_size");
  expect_invalid({"lens[2] is 17, expected 1 to page_size = 16"},
                 [&] { check_counts("lens", host_view(lens.data(), {3}), 1, 16, "page_size"); });
  expect_invalid({"lens[0] is 1, expected 2 to page_size = 16"},
                 [&] { check_counts("lens", host_view(lens.data(), {3}), 2, 16, "page_size"); });
}

TEST(ValidateIndices, StartsAscendWithinTheirRows) {
  const std::vector<int64_t> indptr{0, 2, 2, 5}, falling{0, 3, 2}, negative{-1, 3};
  check_indptr("indptr", host_view(indptr.data(), {4}), 5, "num_tokens");
  expect_invalid({"indptr[3] is 5, expected at most num_tokens = 4"},
                 [&] { check_indptr("indptr", host_view(indptr.data(), {4}), 4, "num_tokens"); });
  expect_invalid({"indptr[2] is 2, expected at least indptr[1] = 3"},
                 [&] { check_indptr("indptr", host_view(falling.data(), {3}), 5, "num_tokens"); });
  expect_invalid({"indptr[0] is -1, expected at least 0"},
                 [&] { check_indptr("indptr", host_view(negative.data(), {2}), 5, "num_tokens"); });
}

}  // namespace
}  // namespace heddle::cpu
