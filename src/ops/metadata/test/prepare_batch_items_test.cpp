// How the work of a launch of prepare_batch is partitioned, without a GPU.
#include <gtest/gtest.h>

#include "ops/metadata/prepare_batch/prepare_batch_cuda_params.h"

namespace heddle::cuda::metadata {
namespace {

constexpr int kSms = 132;

/// A vector of so many elements, which are never read.
IndexList vector_of(int64_t size) {
  static std::byte memory{};
  return {&memory, size, 1, false};
}

PrepareBatchParams decode_of(int64_t num_seqs, int64_t num_tokens) {
  PrepareBatchParams p;
  p.num_seqs = num_seqs;
  p.num_tokens = num_tokens;
  p.has_token_outputs = true;
  return p;
}

TEST(PrepareBatchItems, OfASmallBatchAreForABlockOnEachMultiprocessor) {
  const PrepareBatchItems few = select_prepare_batch_items(decode_of(256, 1024), kSms);
  EXPECT_EQ(few.tokens_per_item, 1);
  EXPECT_EQ(few.blocks, 1u + 1024 / 8);  // the first one has the requests
  const PrepareBatchItems many = select_prepare_batch_items(decode_of(256, 33'024), kSms);
  EXPECT_EQ(many.tokens_per_item, 32);
  EXPECT_EQ(many.token_items, 1032);
  PrepareBatchParams grouped = decode_of(256, 1024);
  grouped.adapter_rows = vector_of(1024);
  const PrepareBatchItems with_adapters = select_prepare_batch_items(grouped, kSms);
  EXPECT_EQ(with_adapters.tokens_per_item, 2);
  EXPECT_EQ(with_adapters.adapter_items, 512);
  EXPECT_EQ(with_adapters.blocks, 1u + 2 * 512 / 8);
  const PrepareBatchItems most = select_prepare_batch_items(decode_of(256, 1 << 20), kSms);
  EXPECT_EQ(most.tokens_per_item, 32);
  EXPECT_EQ(most.blocks, 1u + 4 * kSms);
}

TEST(PrepareBatchItems, DependOnExtentsAlone) {
  PrepareBatchParams p = decode_of(256, 256);
  p.pages = vector_of(513);
  p.max_pages = 513;
  p.page_size = 16;
  p.adapter_indptr = vector_of(33);
  PrepareBatchItems items = select_prepare_batch_items(p, kSms);
  EXPECT_EQ(items.page_items, 5);
  EXPECT_EQ(items.table_items, 0);
  EXPECT_EQ(items.slot_items, 33);
  EXPECT_EQ(items.blocks, 1u + (256 + 5 + 33 + 7) / 8);
  p.num_seqs = 257;
  items = select_prepare_batch_items(p, kSms);
  EXPECT_EQ(items.tokens_per_item, 1);
  EXPECT_EQ(items.blocks, 1u + (256 + 5 + 33 + 15) / 16);
}

TEST(SelectPrepareBatchKernel, IsSmallWhereAllSumsFit32Bits) {
  const auto is_small = [](const auto& change) {
    PrepareBatchParams p = decode_of(256, kSmallSum - 1);
    change(p);
    return select_prepare_batch_kernel(p) != PrepareBatchKernel::kGeneral;
  };
  EXPECT_TRUE(is_small([](PrepareBatchParams&) {}));
  EXPECT_FALSE(is_small([](PrepareBatchParams& p) { p.num_tokens = kSmallSum; }));
  EXPECT_FALSE(is_small([](PrepareBatchParams& p) { p.has_token_outputs = false; }));
  EXPECT_FALSE(is_small([](PrepareBatchParams& p) { p.page_size = 16; }));  // unknown pages
  EXPECT_TRUE(is_small([](PrepareBatchParams& p) {
    p.page_size = 16;
    p.pages_are_given = true;
    p.seq_page_table.width = 2048;
  }));
}

TEST(PrepareBatchItems, GoRoundAsManyBlocksAsRunAtATime) {
  EXPECT_EQ(select_prepare_batch_items(decode_of(257, 1 << 20), kSms).blocks, 1u + 2 * kSms);
  EXPECT_EQ(select_prepare_batch_items(decode_of(70'000, 1 << 24), kSms).blocks, 1u + 2 * kSms);
}

TEST(PrepareBatchItems, WithoutOutputsThatAreSharedOneBlockIsEnough) {
  PrepareBatchParams p;
  p.num_seqs = 9;
  EXPECT_EQ(select_prepare_batch_items(p, kSms).blocks, 1u);
}

TEST(SelectPrepareBatchKernel, GoesByExtentsAndStrides) {
  using enum PrepareBatchKernel;
  PrepareBatchParams p = decode_of(256, 256);
  p.positions = vector_of(256);
  EXPECT_EQ(select_prepare_batch_kernel(p), kSmallContiguous);
  p.positions.stride = 2;
  EXPECT_EQ(select_prepare_batch_kernel(p), kSmallGeneral);
  p.positions = vector_of(256);
  p.positions.is_int64 = true;
  EXPECT_EQ(select_prepare_batch_kernel(p), kSmallGeneral);
  p.positions = vector_of(256);
  p.accepted_extra = int64_t{1} << 40;  // does not fit 32 bits
  EXPECT_EQ(select_prepare_batch_kernel(p), kSmallGeneral);
  p.accepted_extra = 0;
  p.num_seqs = 257;
  EXPECT_EQ(select_prepare_batch_kernel(p), kGeneral);
}

TEST(PrepareBatchItems, APackedVectorKeepsStrideAndWidth) {
  IndexList t = vector_of(4);
  t.stride = -3;
  t.is_int64 = true;
  const auto vector = packed<MutableIndexVector>(t);
  EXPECT_TRUE(vector.is_int64());
  EXPECT_EQ(vector.address(1), t.data - 24);
  t.size = 0;
  EXPECT_FALSE(packed<MutableIndexVector>(t).is_given());
}

}  // namespace
}  // namespace heddle::cuda::metadata
