// Which kernel a call of speculation takes on a GPU, without a GPU.
#include "ops/speculation/shared/select_kernel.h"

#include <sstream>

#include <gtest/gtest.h>

namespace heddle::cuda::speculation {
namespace {

using enum SpeculationKernel;

/// A call with a list on a chip that has clusters.
constexpr SpeculationCall clustered(int64_t num_rows, int64_t tokens_per_row,
                                    bool has_next_step = false) {
  return {.num_rows = num_rows,
          .tokens_per_row = tokens_per_row,
          .is_listed = true,
          .has_list_sums = true,
          .has_clusters = true,
          .has_next_step = has_next_step};
}

TEST(SelectSpeculationKernel, GoesByTokensRowsAndTensors) {
  struct Row {
    SpeculationCall call;
    SpeculationChoice choice;
  };
  constexpr Row kRows[] = {
      // A request with 1, 4, 5, 16 and 17 tokens.
      {{.num_rows = 64, .tokens_per_row = 1}, {kLaneGroups, 1, 64, 0}},
      {{.num_rows = 64, .tokens_per_row = 4}, {kLaneGroups, 4, 64, 2}},
      {{.num_rows = 64, .tokens_per_row = 5}, {kLaneGroups, 8, 64, 3}},
      {{.num_rows = 64, .tokens_per_row = 16}, {kLaneGroups, 16, 64, 4}},
      {{.num_rows = 64, .tokens_per_row = 17}, {kGeneral, 1, 64, 0}},
      // Nothing but an empty list.
      {{.num_rows = 0, .is_listed = true}, {kLaneGroups, 1, 64, 0}},
      // Larger blocks rather than more than 32 of them, up to 256 threads.
      {{.num_rows = 512, .tokens_per_row = 4}, {kLaneGroups, 32, 64, 2}},
      {{.num_rows = 513, .tokens_per_row = 4}, {kLaneGroups, 17, 128, 2}},
      {{.num_rows = 70000, .tokens_per_row = 4}, {kLaneGroups, 1094, 256, 2}},
      // A list is made by one block, by a cluster of up to 8, or by as many as there are words for,
      // with tickets.
      {{.num_rows = 128, .tokens_per_row = 4, .is_listed = true, .has_list_sums = true},
       {kLaneGroups, 1, 512, 2}},
      {{.num_rows = 129, .tokens_per_row = 4, .is_listed = true, .has_list_sums = true},
       {kLaneGroups, 9, 64, 2, 1, true}},
      {clustered(129, 4), {kLaneGroups, 5, 128, 2, 5, false}},
      {clustered(1024, 4), {kLaneGroups, 8, 512, 2, 8, false}},
      {clustered(1025, 4), {kLaneGroups, 17, 256, 2, 1, true}},
      {clustered(4096, 1), {kLaneGroups, 8, 512, 0, 8, false}},
      // Twice the threads for the next step.
      {clustered(64, 4, true), {kLaneGroups, 1, 256, 2}},
      {clustered(65, 4, true), {kLaneGroups, 5, 64, 2, 5, false}},
      {clustered(512, 4, true), {kLaneGroups, 8, 256, 2, 8, false}},
      {clustered(513, 4, true), {kLaneGroups, 17, 128, 2, 1, true}},
      {{.num_rows = 256, .is_listed = true}, {kLaneGroups, 1, 256, 0}},
      {{.num_rows = 512, .is_listed = true}, {kLaneGroups, 1, 512, 0}},
      {{.num_rows = 513, .is_listed = true}, {kGeneral, 1, 256, 0}},
      {{.num_rows = 256, .tokens_per_row = 4, .is_listed = true}, {kGeneral, 1, 256, 0}},
      {{.num_rows = kMaxListBlocks * 512, .is_listed = true, .has_list_sums = true},
       {kLaneGroups, static_cast<unsigned>(kMaxListBlocks), 512, 0, 1, true}},
      {{.num_rows = kMaxListBlocks * 512 + 1, .is_listed = true, .has_list_sums = true},
       {kGeneral, 1, 256, 0}},
      // Large numbers, strides.
      {{.num_rows = 65, .is_large = true}, {kGeneral, 2, 64, 0}},
      {{.num_rows = 65, .has_gaps = true}, {kGeneral, 2, 64, 0}},
      {{.num_rows = 0, .has_gaps = true}, {kGeneral, 1, 64, 0}},
      {{.num_rows = 0, .has_gaps = true, .is_listed = true}, {kGeneral, 1, 32, 0}},
      {{.num_rows = 33, .has_gaps = true, .is_listed = true}, {kGeneral, 1, 64, 0}},
      {{.num_rows = 70000, .has_gaps = true, .is_listed = true}, {kGeneral, 1, 256, 0}},
  };
  for (const auto& [call, choice] : kRows) {
    EXPECT_EQ(select_speculation_kernel(call), choice)
        << call.num_rows << ' ' << call.tokens_per_row << ": " << select_speculation_kernel(call);
  }
}

TEST(SelectSpeculationKernel, PrintsItsChoice) {
  std::ostringstream line;
  line << select_speculation_kernel({.num_rows = 64, .tokens_per_row = 4}) << ", "
       << select_speculation_kernel({.num_rows = 65, .has_gaps = true}) << ", "
       << select_speculation_kernel(clustered(129, 4)) << ", "
       << select_speculation_kernel(clustered(1025, 4));
  EXPECT_EQ(line.str(),
            "lane_groups lanes=4 blocks=4 threads=64, general blocks=2 threads=64, "
            "lane_groups lanes=4 blocks=5 threads=128 cluster=5, "
            "lane_groups lanes=4 blocks=17 threads=256 tickets");
}

}  // namespace
}  // namespace heddle::cuda::speculation
