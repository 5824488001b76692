#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/core/thread_pool.h"

#include "tokenizer/huggingface/json_node.h"
#include "tokenizer/huggingface/pattern.h"

namespace heddle::tokenizer {

/// The pre-tokenizers of a tokenizer.json: each splits what the one before it left, and may spell
/// it otherwise. What comes out are the words that the model knows nothing around of.
class Splitter {
 public:
  /// `node`: the file's "pre_tokenizer", maybe null.
  explicit Splitter(const JsonNode& node);

  /// Calls word(part) for the words of `text`, none of them empty, in order. `begins_text`: nothing
  /// lies before it. The views hold for the call alone.
  void split(std::string_view text, bool begins_text,
             FunctionRef<void(std::string_view)> word) const;

  /// Whether words are to be spelled in the alphabet of byte_alphabet.h after the last split, which
  /// split() leaves to the caller.
  [[nodiscard]] bool spells_bytes_last() const { return spells_bytes_last_; }
  /// Whether a text's first word is another than the same word elsewhere, and what makes it so.
  [[nodiscard]] bool prepends_to_first() const;
  [[nodiscard]] size_t num_stages() const { return stages_.size(); }

 private:
  /// What becomes of a match, the delimiter.
  enum class Behavior : uint8_t {
    kRemoved,
    kIsolated,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous,  // neighbouring matches are one part
  };
  struct Split {
    Pattern pattern;
    Behavior behavior;
    bool invert;
  };
  /// Characters that `is_delimiter` holds for.
  struct SplitByCharacter {
    bool (*is_delimiter)(char32_t);
    Behavior behavior;
  };
  struct Words {};  // runs of word characters, and of what is neither those nor white space
  struct AddPrefixSpace {};  // where a part begins otherwise
  struct Spell {};
  struct Metaspace {
    enum class Prepend : uint8_t { kFirst, kNever, kAlways } prepend;
    std::string replacement;
    bool split;
    Pattern pattern;  // the replacement
  };
  using Stage = std::variant<Split, SplitByCharacter, Words, AddPrefixSpace, Spell, Metaspace>;
  struct Part {
    size_t begin, end;
    bool is_match;
  };

  void read_stage(const JsonNode& node);
  void read_byte_level(const JsonNode& node);
  static Behavior read_behavior(const JsonNode& node);
  static Metaspace read_metaspace(const JsonNode& node);
  static void merge(Behavior behavior, std::vector<Part>& parts);
  static std::vector<Part> parts_of(const Stage& stage, std::string_view text);
  void run(size_t stage, std::string_view text, bool begins_text,
           FunctionRef<void(std::string_view)> word) const;
  void run_rewriting(const Stage& stage, size_t next, std::string_view text, bool begins_text,
                     FunctionRef<void(std::string_view)> word) const;

  std::vector<Stage> stages_;
  bool spells_bytes_last_ = false;
};

}  // namespace heddle::tokenizer
