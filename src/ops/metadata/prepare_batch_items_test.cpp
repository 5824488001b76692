// How the GPU's launch of prepare_batch is cut up, without a GPU.
#include <gtest/gtest.h>

#include "ops/metadata/prepare_batch_cuda_params.h"

namespace heddle::cuda {
namespace {

constexpr int kSms = 132;

/// A vector of so many elements, which nobody reads.
Indices vector_of(int64_t size) {
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

TEST(PrepareBatchItems, AreSmallForFewTokensAndLargeForMany) {
  const PrepareBatchItems few = select_prepare_batch_items(decode_of(256, 1024), kSms);
  EXPECT_EQ(few.threads, 256);
  EXPECT_EQ(few.tokens_per_item, 32);
  EXPECT_EQ(few.token_items, 32);
  EXPECT_EQ(few.blocks, 33u);  // the first one has the requests
  const PrepareBatchItems many = select_prepare_batch_items(decode_of(257, 33'024), kSms);
  EXPECT_EQ(many.threads, 512);
  EXPECT_EQ(many.tokens_per_item, 256);
  EXPECT_EQ(many.token_items, 129);
}

TEST(PrepareBatchItems, DependOnExtentsAlone) {
  PrepareBatchParams p = decode_of(256, 256);
  p.pages = vector_of(513);
  p.adapter_indptr = vector_of(33);
  const PrepareBatchItems items = select_prepare_batch_items(p, kSms);
  EXPECT_EQ(items.page_items, 2);
  EXPECT_EQ(items.table_items, 0);
  EXPECT_EQ(items.blocks, 1u + 8 + 2 + 2);  // tokens, pages, slots
}

TEST(PrepareBatchItems, GoRoundAsManyBlocksAsRunAtATime) {
  EXPECT_EQ(select_prepare_batch_items(decode_of(256, 1 << 20), kSms).blocks, 1u + 4 * kSms);
  EXPECT_EQ(select_prepare_batch_items(decode_of(70'000, 1 << 20), kSms).blocks, 1u + 2 * kSms);
}

TEST(PrepareBatchItems, WithoutOutputsThatAreSharedOneBlockIsEnough) {
  PrepareBatchParams p;
  p.num_seqs = 9;
  EXPECT_EQ(select_prepare_batch_items(p, kSms).blocks, 1u);
}

TEST(PrepareBatchItems, APackedVectorKeepsStrideAndWidth) {
  Indices t = vector_of(4);
  t.stride = -3;
  t.wide = true;
  EXPECT_EQ(Packed(t).step, -23);  // 24 bytes down, and the lowest bit
  t.size = 0;
  EXPECT_EQ(Packed(t).data, nullptr);
}

}  // namespace
}  // namespace heddle::cuda
