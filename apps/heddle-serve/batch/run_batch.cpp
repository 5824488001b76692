#include "batch/run_batch.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "batch/answer_file.h"
#include "batch/batch_line.h"
#include "generate/line_reader.h"
#include "generate/progress.h"
#include "memory.h"
#include "open_model.h"
#include "request_json/shown.h"
#include "routes/access.h"
#include "routes/request_ids.h"
#include "routes/routes.h"
#include "service/service.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;
using boost::system::error_code;

constexpr int kExitFailed = 1, kExitOfSignals = 128;
constexpr std::chrono::milliseconds kProgressPause{200};

/// Keeps the response in place of sending it.
class Collector final : public Responder {
 public:
  void forget_body() override {}
  std::string take_body() override { return {}; }
  void set_header(const std::string& /*name*/, std::string /*value*/) override {}
  net::awaitable<void> send(HttpResponse response) override {
    response_ = std::move(response);
    co_return;
  }
  net::awaitable<void> begin(const HttpResponse& /*head*/) override {
    throw bad_request("stream: answers in a batch file are whole; leave it out", "stream");
    co_return;
  }
  net::awaitable<void> write(std::string_view /*piece*/) override { co_return; }
  net::awaitable<void> end() override { co_return; }
  [[nodiscard]] bool is_gone() const override { return false; }
  void on_gone(std::function<void()> /*call*/) override {}

  [[nodiscard]] const HttpResponse& response() const { return response_; }

 private:
  HttpResponse response_{.status = 500};
};

app::ServeOptions options_of(const app::BatchOptions& options) {
  app::ServeOptions serve = options.serve;
  serve.max_waiting = int64_t{1} << 40;  // no line is refused because others wait
  return serve;
}

/// Lines that are not empty.
int64_t count_lines(const std::string& path) {
  app::LineReader lines(path);
  HEDDLE_CHECK(lines.is_regular(), "--input-file ", app::shown(path), ": expected a file");
  int64_t count = 0;
  for (std::string line; lines.next(line) == app::LineReader::Status::kLine;) {
    count += line.empty() ? 0 : 1;
  }
  HEDDLE_CHECK(count > 0, "--input-file ", app::shown(path), ": has no lines");
  return count;
}

class Batch {
 public:
  Batch(const app::BatchOptions& options, const std::function<Engine()>& open)
      : options_(options),
        num_lines_(count_lines(options.input)),
        lines_(options.input),
        access_(options_of(options)),
        answers_(options.output, options.input),
        service_(io_, options_of(options), std::make_shared<Buffers>(options.serve.max_buffered),
                 fetched_adapters(options.serve.fetch), open(), [] {}),
        routes_(service_, access_, limits_, [] { return 0; }),
        signals_(io_, SIGINT, SIGTERM),
        pause_(io_),
        progress_(shows_progress_, num_lines_, app::Progress::Clock::now()) {}

  int run() {
    answers_.clear();
    signals_.async_wait([this](error_code error, int signal) {
      if (!error) stopped_by_ = signal;
      signals_.clear();  // a second one ends the process
    });
    // So that the batch stays full while the texts of the next requests are tokenized.
    num_open_ = std::min<int64_t>(2 * service_.engine().options().max_batch, num_lines_);
    for (int64_t i = num_open_; i > 0; --i) {
      net::co_spawn(io_, answer_lines(), [this](const std::exception_ptr& failure) {
        if (failure && !failure_) failure_ = failure;
        if (--num_open_ > 0) return;
        signals_.cancel();
        pause_.cancel();
      });
    }
    if (!options_.quiet) net::co_spawn(io_, show_progress(), net::detached);
    io_.run();
    if (shows_progress_) std::cerr << progress_.end() << std::flush;
    if (failure_) std::rethrow_exception(failure_);
    report();
    if (stopped_by_ != 0) return kExitOfSignals + stopped_by_;
    return num_failed_ > 0 || num_done_ < num_lines_ ? kExitFailed : 0;
  }

 private:
  std::unique_ptr<FetchedAdapters> fetched_adapters(const app::FetchOptions& options) {
    if (options.sources.empty()) return nullptr;
    return std::make_unique<FetchedAdapters>(io_, options);
  }

  [[nodiscard]] bool is_stopped() const {
    return stopped_by_ != 0 || failure_ != nullptr || !service_.ended_by().empty();
  }

  net::awaitable<void> answer_lines() {
    std::string text;
    while (!is_stopped() && lines_.next(text) == app::LineReader::Status::kLine) {
      if (!text.empty()) co_await answer(text, lines_.line_number());
    }
  }

  net::awaitable<void> answer(const std::string& text, int64_t number) {
    BatchLine line;
    const std::string id = request_id_of({});
    std::string refusal;
    try {
      read_batch_line(text, line);
      const auto [first, is_new] = line_of_.try_emplace(line.custom_id, number);
      HEDDLE_CHECK(is_new, "custom_id ", app::quote(line.custom_id), " is that of line ",
                   first->second);
    } catch (const Error& error) {
      refusal = "line " + std::to_string(number) + ": " + error.what();
    }
    if (!refusal.empty()) {
      ++num_failed_;
      answers_.write(refused_line(line.custom_id, id, refusal));
    } else {
      line.request.headers.emplace_back(kRequestIdHeader, id);
      Collector collector;
      co_await routes_.handle(line.request, collector, reserve_.refill());
      if (collector.response().status != 200) ++num_failed_;
      answers_.write(answered_line(line.custom_id, id, collector.response()));
    }
    ++num_done_;
  }

  net::awaitable<void> show_progress() {
    while (num_open_ > 0) {
      pause_.expires_after(kProgressPause);
      error_code woken;
      co_await pause_.async_wait(net::redirect_error(net::use_awaitable, woken));
      co_await service_.refresh();
      const EngineStats stats = service_.now().stats;
      std::cerr << progress_.update(num_done_, stats, app::Progress::Clock::now()) << std::flush;
    }
  }

  void report() const {
    if (!service_.ended_by().empty()) spdlog::error("{}", service_.ended_by());
    if (num_done_ < num_lines_) {
      spdlog::warn("{} of {} lines were not answered", num_lines_ - num_done_, num_lines_);
    }
    if (options_.quiet) return;
    std::cerr << "heddle: " << num_done_ << " lines answered, " << num_failed_
              << " of them with an error, in " << app::shown(options_.output) << "\n";
  }

  const app::BatchOptions& options_;
  const bool shows_progress_ = !options_.quiet && ::isatty(STDERR_FILENO) == 1;
  const int64_t num_lines_;
  app::LineReader lines_;
  MemoryReserve reserve_;
  net::io_context io_{1};
  Access access_;
  RateLimits limits_;
  AnswerFile answers_;
  Service service_;
  Routes routes_;
  net::signal_set signals_;
  net::steady_timer pause_;
  app::Progress progress_;
  std::unordered_map<std::string, int64_t> line_of_;  // each custom_id
  int64_t num_open_ = 0, num_done_ = 0, num_failed_ = 0;
  int stopped_by_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

int run_batch(const app::BatchOptions& options) {
  return run_batch(options, [&options] {
    return app::open_model(options.serve.model, options.quiet, [&options](const Engine& engine) {
      if (!options.quiet) app::tell_engine(engine);
    });
  });
}

int run_batch(const app::BatchOptions& options, const std::function<Engine()>& open) {
  Batch batch(options, [&open] {
    Engine engine = open();
    spdlog::set_level(spdlog::level::warn);  // no line for each request
    return engine;
  });
  return batch.run();
}

}  // namespace heddle::serve
