// How many blocks share a row of logits, and what each keeps of it, without a GPU: for the chunks
// and slots of the kernels.
#include <initializer_list>

#include <gtest/gtest.h>

#include "ops/sampling/sample/sample_select.h"

namespace heddle::cuda::sampling {
namespace {

struct Row {
  int64_t vocab_size;
  RowChoice choice;
};

void expect_choices(std::initializer_list<Row> rows, int max_blocks, int num_slots) {
  for (const auto& [vocab_size, want] : rows) {
    const RowChoice got = select_row(vocab_size, 2048, max_blocks, num_slots);
    EXPECT_EQ(got.num_blocks, want.num_blocks) << vocab_size;
    EXPECT_EQ(got.num_chunks, want.num_chunks) << vocab_size;
    EXPECT_EQ(got.slots_per_row, want.slots_per_row) << vocab_size;
  }
}

TEST(SelectRow, ClustersGoByTheChunks) {
  expect_choices({{1, {1, 1, 4}},
                  {2048, {1, 1, 4}},
                  {2049, {2, 1, 4}},
                  {4096, {2, 1, 4}},
                  {4097, {4, 1, 4}},
                  {8193, {8, 1, 4}},
                  {32000, {8, 2, 4}},
                  {128256, {8, 8, 8}},
                  {131073, {8, 9, 12}},
                  {151936, {8, 10, 12}},
                  {256000, {8, 16, 12}},
                  {1 << 20, {8, 64, 12}}},
                 8, 12);
}

/// Of 132 multiprocessors, where some are left over by clusters of four and eight.
TEST(SelectBlocks, RowsShareWhatThereIs) {
  const auto at_once = [](int blocks) {
    return blocks == 1 ? 132 : blocks == 2 ? 66 : blocks == 4 ? 30 : 14;
  };
  struct Case {
    int64_t num_rows;
    int blocks;
  };
  for (const auto& [num_rows, blocks] :
       {Case{1, 8}, {14, 8}, {15, 4}, {30, 4}, {32, 2}, {66, 2}, {67, 1}, {128, 1}, {132, 1}}) {
    EXPECT_EQ(select_blocks(num_rows, 8, at_once), blocks) << num_rows;
  }
  EXPECT_EQ(select_blocks(8, 1, at_once), 1);
}

TEST(SelectRow, WithoutClustersABlockHasTheRow) {
  expect_choices({{1, {1, 1, 4}},
                  {8192, {1, 4, 4}},
                  {8193, {1, 5, 8}},
                  {32000, {1, 16, 8}},
                  {128256, {1, 63, 8}},
                  {151936, {1, 75, 8}}},
                 1, 8);
}

}  // namespace
}  // namespace heddle::cuda::sampling
