#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "engine/thread/engine_thread.h"
#include "http/buffers.h"
#include "options.h"
#include "service/fetched_adapters.h"
#include "service/metrics.h"
#include "service/row_events.h"
#include "service/served_names.h"
#include "service/tenants.h"
#include "service/waiting_line.h"

namespace heddle::serve {

/// The engine as the routes see it: what may run, what runs, and the way to and from its thread.
/// Its functions belong to the thread of the network and never wait for a step.
class Service {
 public:
  /// `fetched`: null where nothing may be fetched. on_end is called in the thread of the network
  /// where the engine has ended by itself.
  Service(boost::asio::io_context& network, const app::ServeOptions& options,
          std::shared_ptr<Buffers> buffers, std::unique_ptr<FetchedAdapters> fetched, Engine engine,
          std::function<void()> on_end);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  [[nodiscard]] const app::ServeOptions& options() const { return options_; }
  [[nodiscard]] EngineThread& engine() { return *engine_; }
  [[nodiscard]] ServedNames& names() { return *names_; }
  [[nodiscard]] const ServedNames& names() const { return *names_; }
  [[nodiscard]] Metrics& metrics() { return *metrics_; }
  /// Fetches the adapters that the request names and that are not of this machine. Throws ApiError.
  boost::asio::awaitable<void> fetch_adapters(ModelChoice& choice);
  /// Fetches one adapter of the source that `from` names, and says in which folder it lies.
  boost::asio::awaitable<std::pair<fetch::AdapterLease, std::string>> fetch_adapter(
      std::string name, SourceChoice from);
  /// FetchedAdapters::names of those that are in memory as of the last `refresh`, but for names
  /// that an adapter of this machine has.
  [[nodiscard]] std::vector<FetchedName> fetched_names() const;
  [[nodiscard]] boost::asio::any_io_executor network() { return network_.get_executor(); }

  /// Unfinished rows, counted from `submit` to their end.
  class Rows {
   public:
    explicit Rows(Service& service) : service_(service) {}
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    ~Rows();

    struct Row {
      RequestId id = -1;      // -1: the engine does not know it yet
      std::string adapter{};  // adapter_of
      std::string tenant{};   // whose share of the engine it takes; empty: there are no shares
      bool has_begun = false, has_ended = false;
    };
    std::vector<Row> rows{};  // in the order of prompts and samples
    std::shared_ptr<RowEvents> events{};

    /// The first token of the row has come.
    void begin(Row& row);
    void end(Row& row);
    /// The row has this answer.
    void count(const Row& row, const Completion& answer);

   private:
    Service& service_;
  };
  /// Queues all rows of the request, whose adapters and share are known. Throws ApiError: 429 where
  /// too many wait, 503 where the server is about to end.
  std::unique_ptr<Rows> submit(const Generation& generation);

  /// body(Engine&) in the thread of the engine, between two steps, without blocking this thread;
  /// throws what it throws. `body` is a variable of the caller: GCC 12 destroys twice what is made
  /// within an expression that awaits.
  template <class Body>
  auto call(const Body& body) -> boost::asio::awaitable<std::invoke_result_t<Body, Engine&>> {
    const auto outcome = std::make_shared<Outcome<std::invoke_result_t<Body, Engine&>>>();
    Task task = [this, outcome, body](Done done) {
      engine_->post([outcome, body, done = std::move(done)](Engine& engine) {
        outcome->set([&] { return body(engine); });
        done();
      });
    };
    co_await run(std::move(task));
    co_return outcome->take();
  }
  /// body() in the engine's thread of texts, or in that of loads or of long answers, whose calls
  /// take their turns each: what takes long runs concurrently with this thread.
  enum class Worker : uint8_t { kTexts, kLoads, kAnswers };
  template <class Body>
  auto run_on(Worker worker, const Body& body)
      -> boost::asio::awaitable<std::invoke_result_t<Body>> {
    const auto outcome = std::make_shared<Outcome<std::invoke_result_t<Body>>>();
    Task task = [this, worker, outcome, body](Done done) {
      auto call = [outcome, body, done = std::move(done)] {
        outcome->set(body);
        done();
      };
      if (worker == Worker::kTexts) return engine_->post_texts(std::move(call));
      boost::asio::post(worker == Worker::kLoads ? loads_ : answers_, std::move(call));
    };
    co_await run(std::move(task));
    co_return outcome->take();
  }

  /// The state of this moment, of the engine that of the last `refresh`.
  [[nodiscard]] Metrics::Now now() const;
  /// Requests a report of the engine, which makes it between two steps; where one takes longer than
  /// two seconds, the last one holds.
  boost::asio::awaitable<void> refresh();
  /// Unfinished rows of one adapter.
  [[nodiscard]] int64_t rows_of(const std::string& adapter) const;
  [[nodiscard]] int64_t num_rows() const { return num_running_ + num_waiting_; }
  /// Requests are refused from here on.
  void drain() { is_draining_ = true; }
  [[nodiscard]] bool is_draining() const { return is_draining_; }
  /// Engine::ended_by, as soon as on_end was called.
  [[nodiscard]] const std::string& ended_by() const { return ended_by_; }
  /// Why requests are refused; empty: they are not.
  [[nodiscard]] std::string refusal() const;

 private:
  /// What a call in another thread came to.
  template <class Result>
  struct Outcome {
    std::optional<Result> result{};
    std::exception_ptr failure{};

    template <class Body>
    void set(const Body& body) noexcept {
      try {
        result.emplace(body());
      } catch (...) {
        failure = std::current_exception();
      }
    }
    Result take() {
      if (failure) std::rethrow_exception(failure);
      return std::move(*result);
    }
  };
  using Done = std::function<void()>;  // called by the other thread at the end; throws nothing
  using Task = std::function<void(Done)>;
  struct Waiting;
  boost::asio::awaitable<void> run(Task task);

  /// What the callers that wait for one report of the engine share.
  struct Report {
    explicit Report(boost::asio::io_context& network) : timer(network) {}
    boost::asio::steady_timer timer;
    bool has_come = false;
  };
  void request_report();
  void check_fetches(const SourceChoice& from) const;
  void check_room(const Generation& generation) const;
  void tell_predictions(const Generation& generation);

  boost::asio::io_context& network_;
  boost::asio::thread_pool loads_{1}, answers_{1};
  app::ServeOptions options_;
  std::shared_ptr<Buffers> buffers_;
  std::unique_ptr<FetchedAdapters> fetched_;
  std::shared_ptr<Report> requested_, next_;  // the one in flight, and the one after that
  Metrics::Now last_{};
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<ServedNames> names_;
  std::unique_ptr<Metrics> metrics_;
  std::map<std::string, int64_t> waiting_, running_;  // rows of each adapter
  Tenants tenants_;
  int64_t num_waiting_ = 0, num_running_ = 0;
  std::string ended_by_;
  bool is_draining_ = false, has_told_predictions_ = false;
};

}  // namespace heddle::serve
