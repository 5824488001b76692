#pragma once

#include <memory>
#include <string_view>

#include "heddle/core/thread_pool.h"

namespace heddle::tokenizer {

/// Splits text into the words within which byte pairs merge: runs of letters, digits, signs or
/// spaces, by the patterns of a family of tokenizers.
class PreTokenizer {
 public:
  /// `name` is a GGUF file's tokenizer.ggml.pre; one that is not known throws kUnsupported.
  explicit PreTokenizer(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Calls word(part) for the parts of `text`, in order and without gaps; views into `text`, which
  /// must be UTF-8.
  void split(std::string_view text, FunctionRef<void(std::string_view)> word) const;

  /// Whether a word that is a token becomes that token, even if the merges lead elsewhere.
  [[nodiscard]] bool prefers_whole_words() const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace heddle::tokenizer
