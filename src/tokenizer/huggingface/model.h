#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"

namespace heddle::tokenizer {

/// What makes ids of words.
class Model {
 public:
  /// Buffers of one caller, so that words share their memory, and what it asks for.
  struct Scratch {
    BytePairEncoder::Scratch pairs;
    const std::vector<bool>* forbidden = nullptr;  // by id: what no text becomes; nullptr: none
  };

  virtual ~Model() = default;

  /// Appends the ids of `word` [1 or more bytes of UTF-8].
  virtual void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const = 0;
};

}  // namespace heddle::tokenizer
