#include "ops/attention/run/select_kernel.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "ops/attention/kv_append/select_append.h"

namespace heddle {
namespace {

using namespace cuda::attention;

constexpr DeviceInfo kH200{90, 132}, kA100{80, 108}, kSmallChip{89, 20};

template <class T>
std::string text(const T& value) {
  std::ostringstream os;
  os << value;
  return os.str();
}

/// A batch of sequences of `keys` keys each, 32 query and 8 kv heads of 128, in pages of 16 of a
/// pool.
AttentionCall decode(int64_t num_seqs, int64_t keys) {
  AttentionCall call;
  call.num_tokens = call.num_seqs = num_seqs;
  call.table_keys = num_seqs * keys;
  call.page_size = 16;
  call.num_kv_heads = 8;
  call.group_size = 4;
  call.head_dim = 128;
  return call;
}
AttentionCall prefill(int64_t num_seqs, int64_t tokens) {
  AttentionCall call = decode(num_seqs, tokens);
  call.is_decode = false;
  call.num_tokens = num_seqs * tokens;
  return call;
}
/// The same call with something else.
template <class Change>
AttentionCall with(AttentionCall call, Change&& change) {
  change(call);
  return call;
}

struct Row {
  AttentionCall call;
  DeviceInfo info;
  std::string choice;
};

void expect_rows(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    EXPECT_EQ(text(select_attention_kernel(row.call, row.info)), row.choice)
        << row.call << " on " << row.info.compute_capability << " x " << row.info.num_sms;
  }
}

// Few short sequences get clusters, then as many blocks as multiprocessors, then two for each
// multiprocessor.
TEST(SelectAttention, BlocksOfDecode) {
  const auto usual = [](const std::string& blocks) {
    return "decode: heads as 128, 8 rows, " + blocks +
           ", 8 units, shared, stale start, whole tiles";
  };
  expect_rows({
      {decode(1, 512), kH200, usual("32 blocks in clusters of 4")},
      {decode(1, 512), kA100, usual("216 blocks")},
      {decode(4, 512), kH200, usual("128 blocks in clusters of 4")},
      {decode(6, 512), kH200, usual("192 blocks in clusters of 4")},
      {decode(7, 512), kH200, usual("264 blocks")},
      {decode(1, 513), kH200, usual("64 blocks in clusters of 8")},
      {decode(2, 2048), kH200, usual("128 blocks in clusters of 8")},
      {decode(3, 2048), kH200, usual("192 blocks in clusters of 8")},
      {decode(4, 2048), kH200, usual("264 blocks")},
      {decode(1, 2049), kH200, usual("128 blocks in clusters of 8")},
      {decode(2, 32768), kH200, usual("264 blocks")},
      {decode(3, 32768), kH200, usual("192 blocks in clusters of 8")},
      {decode(8, 2048), kH200, usual("264 blocks, 2 side by side")},
      {decode(256, 8192), kA100,
       "decode: heads as 128, 8 rows, 216 blocks, 2 side by side, 8 units, shared, whole tiles"},
      {decode(1, 8192), kSmallChip, usual("40 blocks, 2 side by side")},
  });
}

TEST(SelectAttention, HeadsAndGroupsOfDecode) {
  expect_rows({
      {with(decode(8, 2048), [](auto& c) { c.head_dim = 64, c.group_size = 4; }), kH200,
       "decode: heads as 64, 8 rows, 264 blocks, 2 side by side, 8 units, shared, stale "
       "start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.head_dim = 65, c.group_size = 8; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, shared, stale "
       "start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.head_dim = 80, c.group_size = 9; }), kH200,
       "decode: heads as 128, 16 rows, 264 blocks, 2 side by side, 8 units, shared, stale "
       "start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.head_dim = 128, c.group_size = 16; }), kH200,
       "decode: heads as 128, 16 rows, 264 blocks, 2 side by side, 8 units, shared, stale "
       "start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.head_dim = 128, c.group_size = 17; }), kH200,
       "decode: heads as 128, 16 rows, 264 blocks, 2 side by side, 16 units, shared, stale "
       "start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.head_dim = 129, c.group_size = 16; }), kH200,
       "decode: heads as 256, 8 rows, 264 blocks, 2 side by side, 16 units, shared, stale "
       "start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.head_dim = 256, c.group_size = 1; }), kH200,
       "decode: heads as 256, 8 rows, 264 blocks, 2 side by side, 8 units, shared, stale "
       "start, whole tiles"},
  });
}

TEST(SelectAttention, WhatDecodeCanDoWithout) {
  expect_rows({
      {with(decode(8, 2048), [](auto& c) { c.rotates = true; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, rotates, 8 units, shared, "
       "stale start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.has_codes = true; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, codes, 8 units, shared, "
       "stale start, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.has_scratch = false; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, stale start, "
       "whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.is_kv_aligned = false; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, shared, stale start"},
      {with(decode(8, 2048), [](auto& c) { c.page_size = 24; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, shared, stale start"},
      {with(decode(8, 2048), [](auto& c) { c.has_pool = false; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, shared, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.num_seqs = c.num_tokens = 129; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, shared, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.table_keys = int64_t{1} << 31; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, shared, whole tiles"},
      {with(decode(8, 2048), [](auto& c) { c.is_q_aligned = false; }), kH200,
       "decode: heads as 128, 8 rows, 264 blocks, 2 side by side, 8 units, shared, stale "
       "start, whole tiles"},
      {decode(16, 2048), DeviceInfo{80, 1024},
       "decode: heads as 128, 8 rows, 2048 blocks, 8 units, shared, stale start, whole tiles"},
      {decode(16, 2048), DeviceInfo{80, 1025},
       "decode: heads as 128, 8 rows, 2050 blocks, 8 units, stale start, whole tiles"},
  });
}

TEST(SelectAttention, Prefill) {
  expect_rows({
      {prefill(1, 4096), kH200, "prefill sm90: heads as 128, 128 rows, 1032 items"},
      {prefill(16, 512), kA100, "prefill: heads as 128, 128 rows, 2176 blocks"},
      {with(prefill(1, 4096), [](auto& c) { c.head_dim = 64; }), kH200,
       "prefill sm90: heads as 64, 128 rows, 1032 items"},
      {with(prefill(1, 4096), [](auto& c) { c.head_dim = 64; }), DeviceInfo{100, 132},
       "prefill: heads as 64, 128 rows, 1032 blocks"},
      {with(prefill(1, 4096), [](auto& c) { c.head_dim = 192; }), kH200,
       "prefill: heads as 256, 64 rows, 2056 blocks"},
      {with(prefill(1, 4096), [](auto& c) { c.rotates = true; }), kH200,
       "general prefill: heads as 128, 128 rows, 1032 blocks, rotates"},
      {with(prefill(1, 4096), [](auto& c) { c.transforms_scores = true; }), kH200,
       "general prefill: heads as 128, 128 rows, 1032 blocks"},
      {with(prefill(1, 4096), [](auto& c) { c.has_tree_masks = true; }), kH200,
       "general prefill: heads as 128, 128 rows, 1032 blocks"},
      {with(prefill(1, 4096), [](auto& c) { c.is_q_aligned = false; }), kH200,
       "general prefill: heads as 128, 128 rows, 1032 blocks"},
      {with(prefill(1, 4096), [](auto& c) { c.is_kv_aligned = false, c.head_dim = 256; }), kH200,
       "general prefill: heads as 256, 32 rows, 4104 blocks"},
      {with(prefill(1, 4096), [](auto& c) { c.has_codes = true; }), kH200,
       "prefill sm90: heads as 128, 128 rows, 1032 items, codes"},
      {with(prefill(1, 4096), [](auto& c) { c.has_codes = true; }), kA100,
       "general prefill: heads as 128, 128 rows, 1032 blocks, codes"},
      {with(prefill(1, 4096), [](auto& c) { c.has_codes = true, c.head_dim = 256; }), kH200,
       "general prefill: heads as 256, 32 rows, 4104 blocks, codes"},
  });
}

TEST(SelectAppend, VectorsOrElements) {
  const auto choice = [](const AppendCall& call) {
    return text(select_append_kernel(call, kH200));
  };
  EXPECT_EQ(choice({.num_tokens = 1, .num_kv_heads = 8, .head_dim = 128}),
            "vectors: 16 a head, 8 warps a token");
  EXPECT_EQ(choice({.num_tokens = 4096, .num_kv_heads = 8, .head_dim = 128}),
            "vectors: 16 a head, 2 warps a token");
  EXPECT_EQ(choice({.num_tokens = 32, .num_kv_heads = 8, .head_dim = 80, .element_bytes = 4}),
            "vectors: 20 a head, 10 warps a token");
  EXPECT_EQ(choice({.num_tokens = 32, .num_kv_heads = 8, .head_dim = 100, .is_aligned = false}),
            "elements: 100 a head, 13 warps a token");
  EXPECT_EQ(choice({.num_tokens = 32,
                    .num_kv_heads = 8,
                    .head_dim = 128,
                    .num_pairs = 64,
                    .num_q_heads = 32}),
            "vectors: 16 a head, 8 warps a token, blocks of 320 threads, 8 a row, speculative");
  EXPECT_EQ(choice({.num_tokens = 8192,
                    .num_kv_heads = 8,
                    .head_dim = 128,
                    .num_pairs = 64,
                    .num_q_heads = 32}),
            "vectors: 16 a head, 2 warps a token, blocks of 160 threads, 8 a row");
  EXPECT_EQ(choice({.num_tokens = 32,
                    .num_kv_heads = 8,
                    .head_dim = 128,
                    .num_pairs = 60,
                    .num_q_heads = 32}),
            "elements: 128 a head, 8 warps a token, blocks of 320 threads, 60 a row, speculative");
  EXPECT_EQ(choice({.num_tokens = 32,
                    .num_kv_heads = 1,
                    .head_dim = 64,
                    .num_pairs = 32,
                    .is_q_aligned = false}),
            "elements: 64 a head, 1 warps a token, blocks of 64 threads, 32 a row, speculative");
}

TEST(SelectAppend, Codes) {
  const auto choice = [](const AppendCall& call) {
    return text(select_append_kernel(call, kH200));
  };
  AppendCall call{.num_tokens = 32, .num_kv_heads = 8, .head_dim = 128, .stores_codes = true};
  call.is_aligned = false;  // of two dtypes
  EXPECT_EQ(choice(call), "codes: 128 a head, 16 warps a token");
  call.num_tokens = 4096;
  EXPECT_EQ(choice(call), "codes: 128 a head, 4 warps a token");
  call.num_pairs = 64;
  call.num_q_heads = 32;
  EXPECT_EQ(choice(call), "codes: 128 a head, 4 warps a token, blocks of 512 threads, 8 a row");
}

TEST(SelectAttention, ChoicesCompareAndCallsPrintThemselves) {
  const AttentionCall call = with(decode(2, 100), [](auto& c) { c.has_pool = false; });
  EXPECT_EQ(select_attention_kernel(call, kH200), select_attention_kernel(call, kH200));
  EXPECT_NE(select_attention_kernel(call, kH200), select_attention_kernel(decode(2, 100), kH200));
  EXPECT_EQ(text(call),
            "batch_decode: 2 tokens of 2 sequences, heads 8 x 4 of 128, room for 200 keys in "
            "pages of 16, page addresses");
}

}  // namespace
}  // namespace heddle
