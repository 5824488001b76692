#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "engine/rules/grammar/format_compiler.h"
#include "engine/text/row_text.h"

namespace heddle {

/// Which tokens a request may draw next: what its format allows, and, where its thoughts have
/// reached their limit, their end alone.
class RowMask {
 public:
  /// nullptr where the request may draw any token. Begins to compile its format. num_logits: the
  /// size of its vocabulary. Throws Error, which names the field.
  static std::unique_ptr<RowMask> make(const Request& request, const RowText& text,
                                       int64_t num_logits, grammar::FormatCompiler& compiler);

  /// Whether the format is compiled, be it in vain.
  [[nodiscard]] bool is_ready() const { return job_ == nullptr || job_->is_done(); }
  /// Room for all answers with up to max_drafts drafts after them, before the first `fill`. Throws
  /// what compiling the format has ended with.
  void begin(int64_t max_drafts);
  /// The job that it waits for; nullptr: none.
  [[nodiscard]] const grammar::FormatCompiler::Job* job() const { return job_.get(); }

  // In any thread, one at a time. What fails is thrown by `check`.

  /// Of drafts after the answer so far, leaves those that may be drawn, and adds tokens without an
  /// alternative: up to `max_drafts` in all.
  ///   {"name": is all that a schema lets an answer begin with: its tokens are drafts
  void draft(std::span<const int32_t> answer, int64_t max_drafts,
             std::vector<int32_t>& drafts) noexcept;
  /// The tokens that may follow the answer so far, in words(0), and after its first i drafts, in
  /// words(i).
  void fill(std::span<const int32_t> answer, std::span<const int32_t> drafts) noexcept;

  /// [ceil(num_logits / 32)]: bit t % 32 of word t / 32 for token t.
  [[nodiscard]] std::span<const int32_t> words(int64_t i) const;
  /// Throws Error where the token was drawn after i drafts although it may not: no other could be
  /// drawn; and where `fill` has failed.
  void check(int32_t token, int64_t i) const;

 private:
  /// The text of an answer as far as its thoughts matter.
  class Thoughts {
   public:
    Thoughts() = default;
    Thoughts(const ThinkingLimit& limit, const RowText& text);
    [[nodiscard]] bool have_limit() const { return !end_tokens_.empty(); }
    void add(std::string_view bytes);
    /// The token that must come next; -1: any.
    [[nodiscard]] int32_t forced() const;

   private:
    ThinkingLimit limit_{};
    std::vector<int32_t> end_tokens_{};
    std::string begin_{}, tail_{};  // of the answer: its first bytes, its last ones
    bool have_begun_ = false, have_ended_ = false;
    int64_t num_tokens_ = 0;
  };

  /// Calls visit(), which may throw, and takes back the drafts that it accepted.
  template <class Visit>
  void visit_drafts(std::span<const int32_t> answer, const Visit& visit) noexcept;
  void accept(int32_t token);
  [[nodiscard]] bool accept_draft(int32_t token);
  void fill_words(size_t i);
  [[nodiscard]] int32_t only_token(size_t i) const;
  [[nodiscard]] std::span<int32_t> words_of(size_t i);
  [[nodiscard]] std::string_view bytes_of(int32_t token) const;

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::shared_ptr<const grammar::FormatCompiler::Job> job_;
  std::unique_ptr<grammar::Matcher> matcher_;  // nullptr: thoughts alone
  Thoughts thoughts_;
  int64_t num_logits_ = 0;
  size_t num_accepted_ = 0;  // of the answer
  int64_t num_drafted_ = 0;  // accepted after them, for now
  int64_t num_fills_ = 0;
  double num_seconds_ = 0;  // of processor time so far
  std::vector<int32_t> words_;
  size_t filled_at_ = SIZE_MAX;  // tokens of the answer that words(0) follow
  std::string failure_;
};

}  // namespace heddle
