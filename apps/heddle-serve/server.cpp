#include "server.h"

#include <chrono>
#include <csignal>
#include <cstdlib>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "access_warnings.h"
#include "http/buffers.h"
#include "http/listener.h"
#include "limits/limits_file.h"
#include "memory.h"
#include "open_model.h"
#include "routes/access.h"
#include "routes/routes.h"
#include "service/service.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;
using boost::system::error_code;

/// Logs the receipts of adapters, of those that it is given and of those that are found later.
Engine open_engine(app::ModelOptions options) {
  options.engine.on_receipt = [](const std::string& path, const AdapterReceipt& receipt) {
    spdlog::info("adapter {}: {}", path, receipt.summary());
  };
  Engine engine = app::open_model(options);
  for (const std::string& name : engine.adapter_names()) {
    if (const auto receipt = engine.adapter_receipt(name, ReceiptNorms::kAsKnown)) {
      spdlog::info("adapter {}: {}", name, receipt->summary());
    }
  }
  return engine;
}

constexpr std::chrono::milliseconds kDrainLook{20};
constexpr std::chrono::seconds kGiveUp{10};

}  // namespace

struct Server::State {
  State(const app::ServeOptions& options, const std::function<Engine()>& open)
      : options_(options),
        reread_signal_(io_, SIGHUP),
        access_(options),
        limits_(limits_of(options, access_)),
        buffers_(std::make_shared<Buffers>(options.max_buffered)),
        listener_(
            io_, listener_options(options), buffers_,
            [this](const HttpRequest& head) { return routes_.refuse_head(head); },
            [this](const HttpRequest& request, Responder& responder) {
              return routes_.handle(request, responder, reserve_.refill());
            }),
        fetched_(fetched_adapters(io_, options.fetch)),
        service_(io_, options, buffers_, std::move(fetched_), open(),
                 [this] { end_with_engine(); }),
        routes_(service_, access_, limits_, [this] { return listener_.num_connections(); }),
        end_signals_(io_, SIGINT, SIGTERM),
        drain_timer_(io_) {
    listener_.listen();
  }

  int run() {
    std::signal(SIGPIPE, SIG_IGN);
    wait_for_end();
    wait_for_reread();
    listener_.start();
    spdlog::info("listening on {}://{}:{}", options_.tls_cert.empty() ? "http" : "https",
                 options_.host, listener_.port());
    for (const std::string& warning : access_warnings(options_)) {
      spdlog::warn("warning: {}", warning);
    }
    for (;;) {
      try {
        io_.run();
        break;
      } catch (const std::exception&) {  // a connection was dropped for lack of memory
      }
    }
    return service_.ended_by().empty() ? 0 : kExitFailed;
  }

  static RateLimits limits_of(const app::ServeOptions& options, const Access& access) {
    if (options.limits_file.empty()) return {};
    HEDDLE_CHECK(!access.api_keys().is_empty(),
                 "--limits: there are no keys to limit; name them with --api-key-file");
    return RateLimits(
        read_limits(options.limits_file, access.api_keys().names(), access.admin_keys().names()));
  }

  static std::unique_ptr<FetchedAdapters> fetched_adapters(net::io_context& network,
                                                           const app::FetchOptions& options) {
    if (options.sources.empty()) return nullptr;
    return std::make_unique<FetchedAdapters>(network, options);
  }

  static ListenerOptions listener_options(const app::ServeOptions& options) {
    return {
        .host = options.host,
        .port = options.port,
        .tls_cert = options.tls_cert,
        .tls_key = options.tls_key,
        .max_connections = options.max_connections,
        .body = {static_cast<uint64_t>(options.limits.body_bytes), "--max-body"},
        .large_body = {static_cast<uint64_t>(options.limits.adapter_bytes), "--max-adapter-body"},
        .takes_large_body = brings_adapter,
        .write_seconds = options.stream_timeout};
  }

  void wait_for_reread() {
    retry_for_memory([this] { wait_for_reread_once(); });
  }

  void wait_for_reread_once() {
    reread_signal_.async_wait([this](error_code error, int) {
      if (error) return;
      wait_for_reread();
      service_.names().reread();
      spdlog::info("the adapter folders were read again: {} adapters",
                   service_.names().adapters().size());
    });
  }

  /// Rows may end until the time is over; a second signal ends them at once.
  void wait_for_end() {
    retry_for_memory([this] {
      end_signals_.async_wait([this](error_code error, int) {
        if (error) return;
        wait_for_end();
        begin_end();
      });
    });
  }

  /// A GPU that has failed may do nothing more in this process; whoever has started it starts
  /// another one.
  void end_with_engine() {
    spdlog::error("{}", service_.ended_by());
    if (!service_.is_draining()) begin_end();
  }

  void begin_end() {
    const auto now = std::chrono::steady_clock::now();
    if (service_.is_draining()) {
      drain_end_ = now;
      return;
    }
    service_.drain();
    drain_end_ =
        now + std::chrono::milliseconds(static_cast<int64_t>(options_.drain_timeout * 1000));
    const int64_t num_rows = service_.num_rows();
    drain();
    spdlog::info("shutting down: {} answers are still running", num_rows);
  }

  /// Looks again until no connection is left: what runs in them refers to all that is here.
  void drain() {
    const auto now = std::chrono::steady_clock::now();
    if (service_.num_rows() == 0 || now >= drain_end_) listener_.stop();
    if (now >= drain_end_) listener_.close_all();
    if (listener_.is_stopped() && listener_.num_connections() == 0) return io_.stop();
    if (now >= drain_end_ + kGiveUp) {
      spdlog::error("{} connections are still open", listener_.num_connections());
      std::quick_exit(kExitFailed);
    }
    drain_timer_.expires_after(kDrainLook);
    retry_for_memory([this] {
      drain_timer_.async_wait([this](error_code error) {
        if (!error) drain();
      });
    });
  }

  app::ServeOptions options_;
  MemoryReserve reserve_;
  net::io_context io_{1};
  net::signal_set reread_signal_;  // first: one that comes while the model is loaded counts later
  Access access_;
  RateLimits limits_;
  std::shared_ptr<Buffers> buffers_;          // rows of the engine's thread have it as well
  Listener listener_;                         // before the engine: a port in use is noticed first
  std::unique_ptr<FetchedAdapters> fetched_;  // before the engine, which looks into its folder
  Service service_;
  Routes routes_;
  net::signal_set end_signals_;
  net::steady_timer drain_timer_;
  std::chrono::steady_clock::time_point drain_end_{};
};

Server::Server(const app::ServeOptions& options)
    : Server(options, [&options] { return open_engine(options.model); }) {}
Server::Server(const app::ServeOptions& options, const std::function<Engine()>& open)
    : state_(std::make_unique<State>(options, open)) {}
Server::~Server() = default;
int Server::port() const { return state_->listener_.port(); }
EngineThread& Server::engine() { return state_->service_.engine(); }
int Server::run() { return state_->run(); }
void Server::end() {
  net::post(state_->io_, [state = state_.get()] { state->begin_end(); });
}

}  // namespace heddle::serve
