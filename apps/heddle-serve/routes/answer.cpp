#include "routes/answer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "limits/key_use.h"

namespace heddle::serve {
namespace {

using Clock = std::chrono::steady_clock;
namespace net = boost::asio;

constexpr std::chrono::seconds kPing{15};
constexpr size_t kFewEntries = 4096;  // of tokens; more are written in another thread

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

ApiError error_of(const Completion& completion, const ServedNames& names,
                  const Generation& generation) {
  const std::string what = names.without_folders(completion.error);
  ApiError error = engine_error(completion.error_code, what);
  const bool is_of_format = error.status() == 400 && what.starts_with("format");
  if (!is_of_format) return error;
  // Where no field asks for a format, the tools do: for the calls that the answer may have.
  return bad_request(what, generation.format_field.empty() ? "tools" : generation.format_field);
}

HttpResponse stream_head() {
  return {.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}};
}

/// The rows of one request while they run.
class Run {
 public:
  Run(Service& service, const Generation& generation, AnswerForm& form, Responder& responder,
      RequestLog& log)
      : service_(service),
        generation_(generation),
        form_(form),
        responder_(responder),
        log_(log),
        rows_(service.submit(generation)),
        completions_(rows_->rows.size()),
        last_token_(rows_->rows.size()),
        charged_(rows_->rows.size()) {
    responder_.on_gone([events = rows_->events] { events->wake(); });
  }

  net::awaitable<void> run() {
    while (num_ended_ < completions_.size() && !failed_in_stream()) {
      std::optional<std::vector<Event>> events = co_await rows_->events->next(kPing);
      if (responder_.is_gone()) {
        log_.outcome = "gone";
        co_return;
      }
      if (rows_->events->has_lost()) failed_ = unavailable("out of memory");
      std::string bytes;
      if (events) {
        take_all(*events, bytes);
      } else {
        bytes = form_.ping();
      }
      if (failed_ && !has_begun_) throw *failed_;
      if (generation_.stream && !bytes.empty()) co_await send(std::move(bytes));
    }
    end_log();
    if (!generation_.stream) {
      const auto write = [this] { return form_.whole(completions_); };
      HttpResponse response;
      if (num_entries() <= kFewEntries) {
        response.body = write();
      } else {
        response.body = co_await service_.run_on(Service::Worker::kAnswers, write);
        if (responder_.is_gone()) co_return;
      }
      co_await responder_.send(std::move(response));
      co_return;
    }
    std::string bytes = failed_ ? form_.failure(*failed_) : form_.end(completions_);
    co_await send(std::move(bytes));
    co_await responder_.end();
  }

 private:
  [[nodiscard]] bool failed_in_stream() const { return failed_ && has_begun_; }

  /// About how much a whole answer has of tokens.
  size_t num_entries() const {
    size_t count = 0;
    for (const Completion& answer : completions_) {
      count += answer.token_ids.size() + answer.values.size() + answer.top_token_ids.size() +
               answer.prompt_token_ids.size() + answer.prompt_top_token_ids.size();
    }
    return count;
  }

  size_t row_of(RequestId id) const {
    const auto place = std::ranges::find(rows_->rows, id, &Service::Rows::Row::id);
    return static_cast<size_t>(place - rows_->rows.begin());
  }

  void take_all(std::vector<Event>& events, std::string& bytes) {
    try {
      for (Event& event : events) take(event, bytes);
    } catch (const std::bad_alloc&) {
      bytes.clear();
      failed_ = unavailable("out of memory");
    }
  }

  void take(Event& event, std::string& bytes) {
    const size_t i = row_of(event.request);
    Service::Rows::Row& row = rows_->rows[i];
    const bool has_failed =
        event.completion && event.completion->finish_reason == FinishReason::kError;
    if (!has_failed) {
      rows_->begin(row);
      if (log_.times.first_token < 0) log_.times.first_token = seconds_since(begin_);
      const Clock::time_point now = Clock::now();
      if (last_token_[i] != Clock::time_point()) {
        service_.metrics().observe_token_gap(
            std::chrono::duration<double>(now - last_token_[i]).count());
      }
      last_token_[i] = now;
    }
    charge(i, event);
    const bool ends_all = has_failed && generation_.each.empty();
    if (ends_all) {
      failed_ = error_of(*event.completion, service_.names(), generation_);
    } else if (has_failed) {
      std::string& what = event.completion->error;
      what = service_.names().without_folders(std::move(what));
    }
    if (!ends_all && generation_.stream) {
      bytes += form_.added(i, event);
    }
    if (!event.completion) return;
    ++num_ended_;
    rows_->end(row);
    log_.answer_tokens += std::ssize(event.completion->token_ids);
    log_.prompt_tokens += event.completion->prompt_tokens;
    rows_->count(row, *event.completion);
    completions_[i] = std::move(*event.completion);
  }

  /// Takes the row's tokens from the limits of its key: those that events bring, of which each has
  /// at least one, and at the end what the answer has in all. A prompt counts once.
  void charge(size_t i, const Event& event) {
    if (generation_.use == nullptr) return;
    const bool has_prompt = i % static_cast<size_t>(generation_.best_of) == 0;
    const int64_t prompt = has_prompt ? event.prompt_tokens : 0;
    const int64_t before = std::max(charged_[i], prompt);
    const int64_t after = event.completion
                              ? prompt + std::ssize(event.completion->token_ids)
                              : before + std::max<int64_t>(std::ssize(event.tokens.ids), 1);
    generation_.use->charge(after - charged_[i]);
    charged_[i] = after;
  }

  /// The head of a stream is sent with its first bytes: a request that fails at once has a status.
  net::awaitable<void> send(std::string bytes) {
    if (!has_begun_) {
      has_begun_ = true;
      co_await responder_.begin(stream_head());
      bytes = form_.begin() + bytes;
    }
    if (!bytes.empty()) co_await responder_.write(bytes);
  }

  void end_log() {
    log_.times.end = seconds_since(begin_);
    log_.outcome = failed_ ? "error" : name(completions_.front().finish_reason);
  }

  Service& service_;
  const Generation& generation_;
  AnswerForm& form_;
  Responder& responder_;
  RequestLog& log_;
  Clock::time_point begin_ = Clock::now();
  std::unique_ptr<Service::Rows> rows_;
  std::vector<Completion> completions_;
  std::vector<Clock::time_point> last_token_;
  std::vector<int64_t> charged_;  // tokens of each row
  size_t num_ended_ = 0;
  bool has_begun_ = false;
  std::optional<ApiError> failed_;
};

}  // namespace

net::awaitable<void> answer(Service& service, const Generation& generation, AnswerForm& form,
                            Responder& responder, RequestLog& log) {
  Run run(service, generation, form, responder, log);
  co_await run.run();
}

}  // namespace heddle::serve
