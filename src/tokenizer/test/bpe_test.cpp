#include "tokenizer/bpe.h"

#include <string>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle::tokenizer {
namespace {

/// The definition: look for the strongest rule, apply it at the leftmost place, start over.
std::vector<int32_t> encode_plainly(const std::array<int32_t, 256>& byte_tokens,
                                    const std::vector<MergeRule>& rules, std::string_view word) {
  std::vector<int32_t> ids;
  for (const char c : word) {
    const int32_t id = byte_tokens[static_cast<uint8_t>(c)];
    if (id >= 0) ids.push_back(id);
  }
  for (;;) {
    size_t best_rank = rules.size(), best_place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      size_t rank = rules.size();  // the last rule for the pair counts
      for (size_t r = 0; r < rules.size(); ++r) {
        if (rules[r].left == ids[i] && rules[r].right == ids[i + 1]) rank = r;
      }
      if (rank < best_rank) best_rank = rank, best_place = i;
    }
    if (best_rank == rules.size()) return ids;
    ids[best_place] = rules[best_rank].merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_place) + 1);
  }
}

TEST(BytePairEncoder, MergesTheStrongestPairFirst) {
  using testing::random_int;
  for (int round = 0; round < 300; ++round) {
    const auto num_letters = static_cast<int32_t>(random_int(1, 4));
    std::array<int32_t, 256> byte_tokens;
    byte_tokens.fill(-1);
    for (int32_t i = 0; i < num_letters; ++i) byte_tokens[size_t('a' + i)] = i;
    std::vector<MergeRule>
        rules;  // each new token of two older ones; now and then a pair comes twice
    int32_t vocab_size = num_letters;
    for (int64_t n = random_int(0, 30); n > 0; --n, ++vocab_size) {
      rules.push_back({static_cast<int32_t>(random_int(0, vocab_size - 1)),
                       static_cast<int32_t>(random_int(0, vocab_size - 1)), vocab_size});
    }
    std::shuffle(rules.begin(), rules.end(), testing::rng());
    const BytePairEncoder encoder(byte_tokens, rules, vocab_size);
    BytePairEncoder::Scratch scratch;
    for (int words = 0; words < 10; ++words) {
      std::string word;
      for (int64_t n = random_int(0, 40); n > 0; --n) {
        word += static_cast<char>('a' + random_int(0, num_letters));  // one letter has no token
      }
      std::vector<int32_t> ids = {-7};  // encode appends
      encoder.encode(word, scratch, ids);
      auto want = encode_plainly(byte_tokens, rules, word);
      want.insert(want.begin(), -7);
      EXPECT_EQ(ids, want) << word;
    }
  }
}

}  // namespace
}  // namespace heddle::tokenizer
