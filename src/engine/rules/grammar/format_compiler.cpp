#include "engine/rules/grammar/format_compiler.h"

#include <algorithm>
#include <new>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "heddle/core/error.h"

#include "core/math.h"
#include "engine/rules/schema/schema_grammar.h"

namespace heddle::grammar {
namespace {

constexpr int kNice = 3;  // steps of the engine get twice as much of a processor
constexpr int64_t kBitsOfWord = 32;
constexpr size_t kMaxFormatBytes = size_t{1} << 20;
constexpr size_t kLongestReason = 300;
constexpr size_t kMaxTokenSets = 8;  // that are kept

/// The control tokens whose text is in the format: the marks of its structural tag. No other is
/// ever a part of an answer with a format.
std::vector<int32_t> marks_of(const AnswerFormat& format, const tokenizer::Tokenizer& tokenizer,
                              std::span<const int32_t> end_tokens, int64_t num_tokens) {
  std::vector<int32_t> marks;
  if (format.kind != AnswerFormat::Kind::kStructuralTag) return marks;
  for (int32_t id = 0; id < num_tokens; ++id) {
    if (!tokenizer.is_control(id) || std::ranges::find(end_tokens, id) != end_tokens.end())
      continue;
    const std::string_view text = tokenizer.token_bytes(id);
    if (!text.empty() && format.source.find(text) != std::string::npos) marks.push_back(id);
  }
  return marks;
}

TokenBytes bytes_of(const tokenizer::Tokenizer& tokenizer, const std::vector<int32_t>& end_tokens,
                    const std::vector<int32_t>& marks, int64_t num_logits) {
  TokenBytes bytes{.end_tokens = end_tokens};
  bytes.tokens.resize(static_cast<size_t>(num_logits));
  const int64_t count = std::min<int64_t>(num_logits, tokenizer.vocab_size());
  for (int32_t id = 0; id < count; ++id) {
    const bool is_text = !tokenizer.is_control(id) || std::ranges::binary_search(marks, id);
    if (is_text) bytes.tokens[static_cast<size_t>(id)] = tokenizer.token_bytes(id);
  }
  return bytes;
}

/// A token of the mask at or after `first`, in a circle, an end token where there is no other; -1:
/// there is none.
int64_t next_allowed(std::span<const int32_t> words, int64_t first, int64_t num_tokens,
                     std::span<const int32_t> end_tokens) {
  int64_t end = -1;
  for (int64_t i = 0; i < num_tokens; ++i) {
    const int64_t token = (first + i) % num_tokens;
    const auto word = static_cast<uint32_t>(words[static_cast<size_t>(token / kBitsOfWord)]);
    if ((word >> (token % kBitsOfWord) & 1) == 0) continue;
    if (!std::ranges::binary_search(end_tokens, static_cast<int32_t>(token))) return token;
    end = token;
  }
  return end;
}

/// Draws answers, as long ones as there are, so that a grammar which takes ever longer is found
/// here and not in a step.
void try_out(const CompiledFormat& format, int64_t num_tokens,
             std::span<const int32_t> end_tokens) {
  constexpr int kTries = 2, kTriedTokens = 64;
  std::vector<int32_t> words(static_cast<size_t>(ceil_div(num_tokens, kBitsOfWord)));
  uint32_t random = 1;
  for (int i = 0; i < kTries; ++i) {
    const std::unique_ptr<Matcher> matcher = format.matcher();
    for (int length = 0; length < kTriedTokens && !matcher->has_ended(); ++length) {
      matcher->fill(words);
      random = random * 1664525u + 1013904223u;  // a generator of Numerical Recipes
      const auto first = static_cast<int64_t>(random % static_cast<uint64_t>(num_tokens));
      const int64_t token = next_allowed(words, first, num_tokens, end_tokens);
      HEDDLE_CHECK(token >= 0, "the tokens of the model have no text that it allows");
      if (!matcher->accept(static_cast<int32_t>(token))) break;
    }
  }
}

/// One line of what the library says.
std::string reason_of(const std::exception& failure) {
  std::string text = failure.what();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  if (text.size() > kLongestReason) text.resize(kLongestReason);
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

void check_size(const AnswerFormat& format) {
  size_t num_bytes = format.source.size();
  for (const std::string& choice : format.choices) num_bytes += choice.size();
  HEDDLE_CHECK(num_bytes <= kMaxFormatBytes, "format has ", num_bytes, " bytes, expected at most ",
               kMaxFormatBytes);
}

template <class T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_text(std::string& key, const std::string& text) {
  append(key, text.size());
  key += text;
}

}  // namespace

const CompiledFormat& FormatCompiler::Job::result() const {
  if (failure_) std::rethrow_exception(failure_);
  return *result_;
}

FormatCompiler::FormatCompiler(const Limits& limits) : limits_(limits) {
  constexpr int kMaxThreads = 8;
  const auto half = static_cast<int>(std::thread::hardware_concurrency() / 2);
  if (limits_.num_threads == 0) limits_.num_threads = std::clamp(half, 1, kMaxThreads);
}

FormatCompiler::~FormatCompiler() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    first_.clear();
    last_.clear();
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<const FormatCompiler::Job> FormatCompiler::begin(const AnswerFormat& format,
                                                                 const RowText& text,
                                                                 int64_t num_logits) {
  if (!has_library()) (void)make_token_set({});  // says so
  check_size(format);
  auto job = std::make_shared<Job>();
  job->format_ = format;
  job->tokenizer_ = text.tokenizer;
  job->num_logits_ = num_logits;
  for (const int32_t id : text.end_tokens) {
    if (id < num_logits) job->end_tokens_.push_back(id);
  }
  std::ranges::sort(job->end_tokens_);
  HEDDLE_CHECK(!job->end_tokens_.empty(),
               "format: the model has no end token, so no answer could end with its format");
  const int64_t num_tokens = std::min<int64_t>(num_logits, text.tokenizer->vocab_size());
  job->marks_ = marks_of(format, *text.tokenizer, job->end_tokens_, num_tokens);
  append(job->key_, text.tokenizer.get());
  append(job->key_, num_logits);
  for (const auto* list : {&job->end_tokens_, &job->marks_}) {
    append(job->key_, list->size());
    for (const int32_t id : *list) append(job->key_, id);
  }
  append(job->key_, format.kind);
  append_text(job->key_, format.source);
  for (const std::string& choice : format.choices) append_text(job->key_, choice);

  const std::lock_guard lock(mutex_);
  if (const auto known = by_key_.find(job->key_); known != by_key_.end()) {
    jobs_.splice(jobs_.end(), jobs_, known->second);
    return *known->second;
  }
  HEDDLE_CHECK(first_.size() + last_.size() < limits_.max_pending, "format: ", limits_.max_pending,
               " formats wait to be compiled; try again later");
  while (std::ssize(threads_) < limits_.num_threads) {
    threads_.emplace_back([this] { run(first_); });
  }
  if (std::ssize(threads_) == limits_.num_threads) {
    threads_.emplace_back([this] { run(last_); });
  }
  first_.push_back(job);
  by_key_.emplace(job->key_, jobs_.insert(jobs_.end(), job));
  arrived_.notify_all();
  return job;
}

void FormatCompiler::run(Pending& pending) noexcept {
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [&] { return is_stopping_ || !pending.empty(); });
    if (is_stopping_) return;
    Pending one;
    one.splice(one.begin(), pending, pending.begin());
    lock.unlock();
    const bool is_done = compile(*one.front(), &pending == &last_);
    lock.lock();
    if (is_done) {
      finish(*one.front());
    } else {
      last_.splice(last_.end(), one);
      arrived_.notify_all();
    }
  }
}

/// Returns false where it takes more than the first attempt has.
bool FormatCompiler::compile(Job& job, bool is_last) noexcept {
  try {
    const std::shared_ptr<const TokenSet> token_set = token_set_of(job);
    const AnswerFormat format = without_schemas(job.format_);
    const LimitedWork limited(is_last ? limits_.last : limits_.first);
    std::shared_ptr<const CompiledFormat> compiled = grammar::compile(*token_set, format);
    try_out(*compiled, job.num_logits_, job.end_tokens_);
    job.result_ = std::move(compiled);
  } catch (const LimitPassed& passed) {
    if (!is_last && passed.kind() == LimitPassed::Kind::kTime) return false;
    job.failure_ = std::current_exception();
  } catch (const std::bad_alloc&) {
    job.failure_ = std::current_exception();
  } catch (const std::exception& failure) {
    try {
      throw_error(ErrorCode::kInvalidArgument, "format: ", reason_of(failure));
    } catch (...) {
      job.failure_ = std::current_exception();
    }
  }
  return true;
}

/// With the lock. Formats that were refused are kept, too: they are asked for again.
void FormatCompiler::finish(Job& job) {
  const size_t compiled = job.result_ == nullptr ? 0 : job.result_->num_bytes();
  job.num_bytes_ = static_cast<int64_t>(compiled + 2 * job.key_.size() + sizeof(Job));
  job.is_done_ = true;
  evict();
  done_.notify_all();
}

/// Drops those that were used the longest ago, until what no request has is within its bound.
void FormatCompiler::evict() {
  const auto is_unused = [](const std::shared_ptr<Job>& job) {
    return job->is_done_ && job.use_count() == 1;
  };
  int64_t num_bytes = 0;
  for (const std::shared_ptr<Job>& job : jobs_) num_bytes += is_unused(job) ? job->num_bytes_ : 0;
  for (auto next = jobs_.begin(); next != jobs_.end() && num_bytes > limits_.cache_bytes;) {
    if (!is_unused(*next)) {
      ++next;
      continue;
    }
    num_bytes -= (*next)->num_bytes_;
    by_key_.erase((*next)->key_);
    next = jobs_.erase(next);
  }
}

std::shared_ptr<const TokenSet> FormatCompiler::token_set_of(const Job& job) {
  const std::lock_guard lock(token_sets_mutex_);
  for (auto each = token_sets_.begin(); each != token_sets_.end(); ++each) {
    if (each->tokenizer == job.tokenizer_ && each->end_tokens == job.end_tokens_ &&
        each->marks == job.marks_ && each->num_logits == job.num_logits_) {
      std::rotate(each, each + 1, token_sets_.end());
      return token_sets_.back().token_set;
    }
  }
  auto made =
      make_token_set(bytes_of(*job.tokenizer_, job.end_tokens_, job.marks_, job.num_logits_));
  if (token_sets_.size() == kMaxTokenSets) token_sets_.erase(token_sets_.begin());
  token_sets_.push_back({.tokenizer = job.tokenizer_,
                         .end_tokens = job.end_tokens_,
                         .marks = job.marks_,
                         .num_logits = job.num_logits_,
                         .token_set = made});
  return made;
}

void FormatCompiler::wait(const Job& job) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&job] { return job.is_done(); });
}

void FormatCompiler::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, time);
}

}  // namespace heddle::grammar
