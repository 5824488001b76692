#include "tokenizer/pre_tokenizer.h"

#include <string>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "heddle/core/error.h"

#include "tokenizer/pre_tokenizer_families.h"

namespace heddle::tokenizer {
namespace {

// What \s stands for inside the brackets of a pattern. PCRE2's own \s has U+180E, too.
constexpr const char* kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, Free>;
using MatchData = std::unique_ptr<pcre2_match_data, Free>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free>;

Code compile(std::string pattern) {
  constexpr std::string_view kSpaceInSet = R"(\s)";
  for (size_t at; (at = pattern.find(kSpaceInSet)) != std::string::npos;) {
    pattern.replace(at, kSpaceInSet.size(), kWhiteSpace);
  }
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF,
                          &error, &offset, nullptr));
  if (code == nullptr) {
    throw_error(ErrorCode::kUnsupported, "PCRE2 refuses the pre-tokenizer's pattern at offset ",
                offset, " with error ", error);
  }
  // Where no executable memory is to be had this fails, and PCRE2 interprets the pattern instead.
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct PreTokenizer::State {
  std::vector<Code> patterns;
  MatchContext context;
  bool prefers_whole_words = false;

  /// Splits `text` by patterns[stage] and the later ones.
  void split(size_t stage, std::string_view text, pcre2_match_data* match,
             FunctionRef<void(std::string_view)> word) const;
};

PreTokenizer::PreTokenizer(std::string_view name) {
  const PreTokenizerFamily& family = find_pre_tokenizer_family(name);
  auto state = std::make_unique<State>();
  for (const char* pattern : family.patterns) {
    if (pattern != nullptr) state->patterns.push_back(compile(pattern));
  }
  // No pattern can backtrack more than once over the same text, so even a gigabyte of spaces is no
  // reason to give up.
  state->context.reset(pcre2_match_context_create(nullptr));
  if (state->context == nullptr) throw_error(ErrorCode::kOutOfMemory, "PCRE2 is out of memory");
  pcre2_set_match_limit(state->context.get(), UINT32_MAX);
  state->prefers_whole_words = family.prefers_whole_words;
  state_ = std::move(state);
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

bool PreTokenizer::prefers_whole_words() const { return state_->prefers_whole_words; }

void PreTokenizer::split(std::string_view text, FunctionRef<void(std::string_view)> word) const {
  const MatchData match(pcre2_match_data_create(1, nullptr));
  if (match == nullptr) throw_error(ErrorCode::kOutOfMemory, "PCRE2 is out of memory");
  state_->split(0, text, match.get(), word);
}

void PreTokenizer::State::split(size_t stage, std::string_view text, pcre2_match_data* match,
                                FunctionRef<void(std::string_view)> word) const {
  if (stage == patterns.size()) return word(text);
  size_t done = 0;
  while (done < text.size()) {
    const int found = pcre2_match(patterns[stage].get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), done, PCRE2_NO_UTF_CHECK, match, context.get());
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      throw_error(ErrorCode::kOutOfMemory, "PCRE2 gives up on a text of ", text.size(),
                  " bytes with error ", found);
    }
    // No pattern matches an empty text, so every turn of this loop gets further.
    const size_t* const ends = pcre2_get_ovector_pointer(match);
    const size_t begin = found < 0 ? text.size() : ends[0];
    const size_t end = found < 0 ? text.size() : ends[1];
    if (begin > done) split(stage + 1, text.substr(done, begin - done), match, word);
    if (end > begin) split(stage + 1, text.substr(begin, end - begin), match, word);
    done = end;
  }
}

}  // namespace heddle::tokenizer
