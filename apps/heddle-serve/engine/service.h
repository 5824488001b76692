#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "engine/metrics.h"
#include "engine/model_names.h"
#include "engine/row_news.h"
#include "engine/thread/engine_thread.h"
#include "serve_options.h"

namespace heddle::serve {

/// The engine as the routes see it: what may run, what runs, and the way to and from its thread.
/// Its functions belong to the thread of the network and never wait for a step.
class Service {
 public:
  Service(boost::asio::io_context& network, const app::ServeOptions& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  [[nodiscard]] const app::ServeOptions& options() const { return options_; }
  [[nodiscard]] EngineThread& engine() { return *engine_; }
  [[nodiscard]] ModelNames& names() { return *names_; }
  [[nodiscard]] const ModelNames& names() const { return *names_; }
  [[nodiscard]] Metrics& metrics() { return *metrics_; }
  [[nodiscard]] boost::asio::any_io_executor network() { return network_.get_executor(); }

  /// Rows at work, counted from `submit` to their end.
  class Rows {
   public:
    explicit Rows(Service& service) : service_(service) {}
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    ~Rows();

    struct Row {
      RequestId id = 0;
      std::string adapter{};  // "sql"; of a list "sql+cron"; empty: the base model
      bool has_begun = false, has_ended = false;
    };
    std::vector<Row> rows{};  // in the order of prompts and samples
    std::shared_ptr<RowNews> news{};

    /// The first token of the row was told.
    void begin(Row& row);
    void end(Row& row);

   private:
    Service& service_;
  };
  /// Queues all rows of the request, whose adapters are resolved. Throws ApiError: 429 where too
  /// many wait, 503 where the server is about to end.
  std::unique_ptr<Rows> submit(const Generation& generation);

  /// body(Engine&) in the thread of the engine, between two steps, without blocking this thread;
  /// throws what it throws. `body` is a variable of the caller: GCC 12 destroys twice what is made
  /// within an expression that awaits.
  template <class Body>
  auto call(const Body& body) -> boost::asio::awaitable<std::invoke_result_t<Body, Engine&>> {
    using Result = std::invoke_result_t<Body, Engine&>;
    struct Outcome {
      std::optional<Result> result{};
      std::exception_ptr failure{};
    };
    const auto outcome = std::make_shared<Outcome>();
    std::function<void(Engine&)> task = [outcome, body](Engine& engine) {
      try {
        outcome->result.emplace(body(engine));
      } catch (...) {
        outcome->failure = std::current_exception();
      }
    };
    co_await run_in_engine(std::move(task));
    if (outcome->failure) std::rethrow_exception(outcome->failure);
    co_return std::move(*outcome->result);
  }

  /// Reads an adapter beside the engine's steps and this thread's work. Throws as Engine does.
  boost::asio::awaitable<PreparedAdapter> prepare_adapter(std::string path);

  [[nodiscard]] Metrics::Now now() const;
  /// What the engine said of itself last; asks it for more recent news.
  void refresh();
  /// Rows of one adapter at work.
  [[nodiscard]] int64_t rows_of(const std::string& adapter) const;
  [[nodiscard]] int64_t num_rows() const { return num_running_ + num_waiting_; }
  /// Requests are refused from here on.
  void drain() { is_draining_ = true; }
  [[nodiscard]] bool is_draining() const { return is_draining_; }

 private:
  boost::asio::awaitable<void> run_in_engine(std::function<void(Engine&)> body);

  boost::asio::io_context& network_;
  boost::asio::thread_pool loaders_{1};  // read adapters
  app::ServeOptions options_;
  Metrics::Now last_{};
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<ModelNames> names_;
  std::unique_ptr<Metrics> metrics_;
  std::map<std::string, int64_t> waiting_, running_;  // rows of each adapter
  int64_t num_waiting_ = 0, num_running_ = 0;
  bool is_draining_ = false, is_refreshing_ = false;
};

}  // namespace heddle::serve
