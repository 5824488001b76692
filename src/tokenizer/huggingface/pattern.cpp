#include "tokenizer/huggingface/pattern.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "tokenizer/huggingface/characters.h"

namespace heddle::tokenizer {
namespace {

// PCRE2's steps: what all calls for a text may take for each of its bytes and beyond them, and
// what a call gets at first. A call that needs more starts over with twice as much.
constexpr uint64_t kStepsPerByte = 1024, kMoreSteps = 1u << 13;
constexpr uint32_t kFirstSteps = 256;

constexpr size_t kLongestExpression = 1u << 16;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using CodePointer = std::unique_ptr<pcre2_code, Free>;

/// The successive matches of an expression in a text.
class Matcher {
 public:
  Matcher(const pcre2_code* code, std::string_view expression, std::string_view text)
      : code_(code),
        expression_(expression),
        text_(text),
        steps_left_(kStepsPerByte * text.size() + kMoreSteps),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (data_ == nullptr || context_ == nullptr) {
      throw_error(ErrorCode::kOutOfMemory, "PCRE2 is out of memory");
    }
  }

  /// The next match: of those that begin at the end of the last one or after it, the first. An
  /// empty one where the last ended does not count.
  std::optional<std::pair<size_t, size_t>> next() {
    while (from_ <= text_.size()) {
      const auto match = find(from_);
      if (!match) break;
      if (match->first == match->second && match->second == last_end_) {
        if (from_ == text_.size()) break;
        (void)take_character(text_, from_);
        continue;
      }
      from_ = last_end_ = match->second;
      return match;
    }
    return std::nullopt;
  }

 private:
  std::optional<std::pair<size_t, size_t>> find(size_t from) {
    for (uint64_t steps = kFirstSteps;; steps *= 2) {
      if (steps > steps_left_ || steps > UINT32_MAX) {
        throw_error(ErrorCode::kUnsupported, "the expression ", files::quote(expression_),
                    " takes too many steps on a text of ", text_.size(), " bytes");
      }
      steps_left_ -= steps;
      pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(steps));
      const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                                    from, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
      if (found == PCRE2_ERROR_MATCHLIMIT) continue;
      if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
      if (found < 0) {
        throw_error(ErrorCode::kUnsupported, "PCRE2 gives up on the expression ",
                    files::quote(expression_), " and a text of ", text_.size(),
                    " bytes with error ", found);
      }
      const size_t* const ends = pcre2_get_ovector_pointer(data_.get());
      return std::pair(ends[0], std::max(ends[0], ends[1]));
    }
  }

  const pcre2_code* code_;
  std::string_view expression_, text_;
  uint64_t steps_left_;
  size_t from_ = 0, last_end_ = std::string_view::npos;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

}  // namespace

struct Pattern::Expression {
  CodePointer code;
};

Pattern::Pattern(std::string text, std::unique_ptr<const Expression> expression)
    : text_(std::move(text)), expression_(std::move(expression)) {}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Pattern Pattern::of_string(std::string text) { return Pattern(std::move(text), nullptr); }

Pattern Pattern::of_expression(std::string_view expression, const std::string& where) {
  HEDDLE_CHECK(expression.size() <= kLongestExpression, where, " has ", expression.size(),
               " bytes, at most ", kLongestExpression, " are supported");
  const std::string translated = to_pcre2(expression, where);
  int error = 0;
  size_t offset = 0;
  auto result = std::make_unique<Expression>();
  result->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(), PCRE2_UTF, &error, &offset, nullptr));
  if (result->code == nullptr) {
    throw_error(ErrorCode::kUnsupported, where, " is ", files::quote(expression),
                ", which PCRE2 refuses with error ", error);
  }
  // Where no executable memory is to be had this fails, and PCRE2 interprets the pattern instead.
  (void)pcre2_jit_compile(result->code.get(), PCRE2_JIT_COMPLETE);
  return Pattern(std::string(expression), std::move(result));
}

void Pattern::split(std::string_view text, FunctionRef<void(size_t, size_t, bool)> part) const {
  size_t done = 0;
  const auto take = [&](size_t begin, size_t end) {
    if (begin > done) part(done, begin, false);
    part(begin, end, true);
    done = end;
  };
  if (expression_ == nullptr) {
    for (size_t at; (at = text.find(text_, done)) != text.npos;) take(at, at + text_.size());
  } else if (!text.empty()) {
    Matcher matcher(expression_->code.get(), text_, text);
    while (const auto match = matcher.next()) take(match->first, match->second);
  }
  if (done < text.size()) part(done, text.size(), false);
}

}  // namespace heddle::tokenizer
