#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "heddle/engine/request.h"

#include "engine/rules/grammar/grammar_library.h"
#include "engine/rules/grammar/work_limit.h"
#include "engine/text/row_text.h"

namespace heddle::grammar {

/// Compiles the formats of requests in threads of its own, and keeps what they come to. A request
/// waits for its format alone: others start meanwhile.
///
/// A format first has a short time, in one of several threads. One that takes longer is begun anew
/// in the last thread, with all the time that a format may take: so formats that take long wait for
/// one another, and no other one for them.
class FormatCompiler {
 public:
  struct Limits {
    WorkLimit first{.seconds = 1, .num_bytes = int64_t{256} << 20};
    WorkLimit last{.seconds = 6, .num_bytes = int64_t{256} << 20};
    int64_t cache_bytes = int64_t{512} << 20;  // of formats that no request has
    int num_threads = 0;                       // for first attempts; 0: half of the processors
    size_t max_pending = 4096;                 // formats that wait for a thread
  };
  FormatCompiler() : FormatCompiler(Limits()) {}
  explicit FormatCompiler(const Limits& limits);
  ~FormatCompiler();
  FormatCompiler(const FormatCompiler&) = delete;
  FormatCompiler& operator=(const FormatCompiler&) = delete;

  /// A format on its way. Shared by all requests with the same one for the same tokens.
  class Job {
   public:
    [[nodiscard]] bool is_done() const { return is_done_; }
    /// The format. Throws the Error that compiling it has ended with. Only when it is done.
    [[nodiscard]] const CompiledFormat& result() const;

   private:
    friend FormatCompiler;
    AnswerFormat format_{};
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer_{};
    std::vector<int32_t> end_tokens_{}, marks_{};
    int64_t num_logits_ = 0;
    std::string key_{};
    std::atomic<bool> is_done_ = false;
    std::shared_ptr<const CompiledFormat> result_{};
    int64_t num_bytes_ = 0;  // of all of it, when it is done
    std::exception_ptr failure_{};
  };

  /// In any thread. Begins to compile the format for the answers to a request; num_logits: the
  /// tokens that it may draw. Throws Error where the format is wrong at first sight, the tokens
  /// have no end, or too many wait.
  [[nodiscard]] std::shared_ptr<const Job> begin(const AnswerFormat& format, const RowText& text,
                                                 int64_t num_logits);
  /// Until it is done.
  void wait(const Job& job);
  /// Until any job is done, or for a time.
  void wait_for(std::chrono::milliseconds time);

 private:
  struct KnownTokenSet {
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer{};
    std::vector<int32_t> end_tokens{}, marks{};
    int64_t num_logits = 0;
    std::shared_ptr<const TokenSet> token_set{};
  };
  using Pending = std::list<std::shared_ptr<Job>>;  // between which jobs move without memory

  void run(Pending& pending) noexcept;
  [[nodiscard]] bool compile(Job& job, bool is_last) noexcept;
  [[nodiscard]] std::shared_ptr<const TokenSet> token_set_of(const Job& job);
  void finish(Job& job);
  void evict();

  Limits limits_;
  std::mutex mutex_;
  std::condition_variable arrived_, done_;
  Pending first_, last_;
  /// The least recently used first, and by key.
  std::list<std::shared_ptr<Job>> jobs_;
  std::map<std::string, std::list<std::shared_ptr<Job>>::iterator> by_key_;
  bool is_stopping_ = false;
  std::mutex token_sets_mutex_;
  std::vector<KnownTokenSet> token_sets_;  // the least recently used first
  std::vector<std::thread> threads_;       // made with the first job
};

}  // namespace heddle::grammar
