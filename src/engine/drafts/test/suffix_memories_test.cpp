#include "engine/drafts/suffix_memories.h"

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "heap_count.h"
#include "random.h"

namespace heddle {
namespace {

using Tokens = std::vector<int32_t>;

SuffixMemoryKey key_of(uint64_t adapter, uint64_t salt = 0) {
  return {.salt = {salt, salt}, .adapters = {adapter, adapter}};
}

TEST(SuffixMemories, HaveOneMemoryForEachAdapterAndSalt) {
  SuffixMemories memories;
  memories.add(key_of(1), Tokens{1, 2, 3});
  memories.add(key_of(2), Tokens{1, 2, 4});
  memories.add(key_of(1, 9), Tokens{1, 2, 5});
  EXPECT_EQ(memories.num_memories(), 3U);
  const std::map<int32_t, SuffixMemoryKey> keys = {
      {3, key_of(1)}, {4, key_of(2)}, {5, key_of(1, 9)}};
  for (const auto& [token, key] : keys) {
    const SuffixMemory* memory = memories.find(key);
    ASSERT_NE(memory, nullptr);
    std::array<int32_t, 1> drafts{};
    ASSERT_EQ(memory->propose(Tokens{1, 2}, drafts), 1U);
    EXPECT_EQ(drafts[0], token);
  }
  EXPECT_EQ(memories.find(key_of(2, 9)), nullptr);
  EXPECT_EQ(memories.find({.salt = {1, 1}, .adapters = {0, 0}}), nullptr);
}

TEST(SuffixMemories, ForgetTheLeastRecentlyUsedOnes) {
  SuffixMemories memories({.max_bytes = 40000});
  for (uint64_t i = 0; i < 200; ++i) {
    memories.add(key_of(i), Tokens{1, 2, 3});
    ASSERT_LE(memories.num_bytes(), 40000U);
    ASSERT_NE(memories.find(key_of(0)), nullptr) << "it is used all the time";
    ASSERT_NE(memories.find(key_of(i)), nullptr);
  }
  EXPECT_GE(memories.num_memories(), 3U);
  EXPECT_LT(memories.num_memories(), 20U);
  EXPECT_EQ(memories.find(key_of(1)), nullptr);
  EXPECT_NE(memories.find(key_of(198)), nullptr);
  memories.clear();
  EXPECT_EQ(memories.num_bytes(), 0U);
  EXPECT_EQ(memories.find(key_of(0)), nullptr);
}

TEST(SuffixMemories, OneMemoryMayHaveAllBytesAndNoMore) {
  SuffixMemories memories({.max_bytes = 40000});
  for (int i = 0; i < 100; ++i) {
    Tokens answer(200);
    for (int32_t& token : answer) token = static_cast<int32_t>(testing::random_int(0, 1000));
    memories.add(key_of(3), answer);
    ASSERT_LE(memories.num_bytes(), 40000U);
    ASSERT_NE(memories.find(key_of(3)), nullptr);
  }
  EXPECT_GT(memories.num_bytes(), 20000U);
  for (const size_t too_few : {0, 100, 600}) {
    SuffixMemories none({.max_bytes = too_few});
    none.add(key_of(3), Tokens{1, 2, 3});
    EXPECT_LE(none.num_bytes(), too_few);
  }
}

TEST(SuffixMemories, ACursorOfAForgottenMemoryStartsAnew) {
  SuffixMemories memories({.max_bytes = 8000});
  memories.add(key_of(1), Tokens{1, 2, 3, 4, 5});
  SuffixMemory::Cursor cursor;
  for (const int32_t token : {1, 2, 3}) memories.find(key_of(1))->append(cursor, token);
  EXPECT_EQ(memories.find(key_of(1))->num_matched(cursor), 3);
  for (uint64_t i = 2; i < 20; ++i) memories.add(key_of(i), Tokens{7, 8});
  ASSERT_EQ(memories.find(key_of(1)), nullptr);
  memories.add(key_of(1), Tokens{8, 9, 10, 11, 12, 13, 14});
  EXPECT_EQ(memories.find(key_of(1))->num_matched(cursor), 0);
  for (const int32_t token : {10, 11}) memories.find(key_of(1))->append(cursor, token);
  std::array<int32_t, 2> drafts{};
  ASSERT_EQ(memories.find(key_of(1))->propose(cursor, drafts), 2U);
  EXPECT_EQ(drafts, (std::array<int32_t, 2>{12, 13}));
}

TEST(SuffixMemories, ForgetAKeyWhereMemoryRunsOut) {
  for (int64_t at = 1;; ++at) {
    SuffixMemories memories;
    memories.add(key_of(1), Tokens{1, 2, 3});
    const size_t before = memories.num_bytes();
    const Tokens answer = {4, 5, 6};
    int64_t left = at;
    {
      const testing::FailingAllocation failing(left);
      memories.add(key_of(2), answer);
    }
    ASSERT_NE(memories.find(key_of(1)), nullptr);
    if (left > 0) {
      EXPECT_NE(memories.find(key_of(2)), nullptr);
      EXPECT_GE(at, 5) << "of the list, of the table and three of the memory";
      break;
    }
    ASSERT_EQ(memories.find(key_of(2)), nullptr);
    ASSERT_EQ(memories.num_bytes(), before);
    memories.add(key_of(2), answer);
    ASSERT_NE(memories.find(key_of(2)), nullptr);
  }
}

}  // namespace
}  // namespace heddle
