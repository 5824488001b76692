#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/decode_state.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

/// Text to ids: one class for each kind of vocabulary.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Appends the ids of `text`, UTF-8 of less than 512 MiB.
  virtual void encode(std::string_view text, ControlTokens control,
                      std::vector<int32_t>& ids) const = 0;
};

/// Ids to text where that is more than the tokens' bytes one after the other.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  virtual void push(int32_t id, DecodeState& state, std::string& text) const = 0;
  virtual void finish(DecodeState& state, std::string& text) const = 0;
};

using IdByBytes = std::unordered_map<std::string_view, int32_t>;

/// What a tokenizer is composed of, whatever file it comes from.
struct Tokenizer::State {
  std::vector<std::string> bytes;  // by id; the indices hold views into them
  std::vector<bool> control;       // by id
  IdByBytes control_ids;           // found before
  IdByBytes ordinary_ids;
  int32_t bos = kNoToken, eos = kNoToken;
  std::vector<int32_t> begin, end;  // of a plain prompt
  std::unique_ptr<const TextEncoder> encoder;
  std::unique_ptr<const TextDecoder> decoder;  // nullptr: the tokens' bytes
};

}  // namespace heddle::tokenizer
