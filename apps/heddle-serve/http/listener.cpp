#include "http/listener.h"

#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "heddle/core/error.h"

#include "http/connection.h"
#include "memory.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

constexpr int kOtherDescriptors = 64;  // of the model, the log and so on
constexpr std::chrono::milliseconds kAcceptPause{20};

/// Raises the limit as far as the system lets it.
void check_descriptors(int max_connections) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(max_connections) + kOtherDescriptors;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  HEDDLE_CHECK(limit.rlim_cur >= wanted, "--max-connections ", max_connections, " needs ", wanted,
               " file descriptors, the process may have ", limit.rlim_cur,
               " (ulimit -n, or LimitNOFILE of a systemd unit)");
}

std::shared_ptr<net::ssl::context> make_tls(const ListenerOptions& options) {
  if (options.tls_cert.empty()) return nullptr;
  auto tls = std::make_shared<net::ssl::context>(net::ssl::context::tls_server);
  tls->set_options(net::ssl::context::default_workarounds | net::ssl::context::no_tlsv1 |
                   net::ssl::context::no_tlsv1_1);
  error_code error;
  tls->use_certificate_chain_file(options.tls_cert, error);
  HEDDLE_CHECK(!error, "--tls-cert ", options.tls_cert, ": ", error.message());
  tls->use_private_key_file(options.tls_key, net::ssl::context::pem, error);
  HEDDLE_CHECK(!error, "--tls-key ", options.tls_key, ": ", error.message());
  return tls;
}

void check_bound(const error_code& error, const ListenerOptions& options) {
  const bool is_taken = error == net::error::address_in_use;
  HEDDLE_CHECK(!error, "cannot listen on ", options.host, " port ", options.port, ": ",
               error.message(),
               is_taken ? "; end what listens there, or choose another --port" : "");
}

/// Two sockets that both have SO_REUSEADDR may have one port until one of them listens, which is
/// when the model has been read. Connections of a server that has ended need the option; when they
/// are all that is there it is set for as long as bind looks, and again for listen.
void bind_alone(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, error_code& error) {
  acceptor.bind(endpoint, error);
  if (error != net::error::address_in_use) return;
  acceptor.set_option(net::socket_base::reuse_address(true));
  acceptor.bind(endpoint, error);
  acceptor.set_option(net::socket_base::reuse_address(false));
}

}  // namespace

struct Listener::State : std::enable_shared_from_this<State> {
  State(net::io_context& io, const ListenerOptions& given)
      : acceptor(io), pause(io), options(given), tls(make_tls(given)) {}

  /// Begins to accept connections, again where the coroutine that did was dropped for lack of
  /// memory.
  void start() noexcept {
    retry_for_memory([this] {
      net::co_spawn(
          acceptor.get_executor(), [state = shared_from_this()] { return state->accept(); },
          net::detached);
    });
  }

  net::awaitable<void> accept() {
    struct Again {
      std::shared_ptr<State> state;
      ~Again() {
        if (state->shared->is_stopping) return;
        retry_for_memory([this] {
          net::post(state->acceptor.get_executor(), [again = state] {
            if (!again->shared->is_stopping) again->start();
          });
        });
      }
    } again{shared_from_this()};
    while (!shared->is_stopping) co_await accept_one();
  }

  net::awaitable<void> accept_one() {
    error_code error;
    tcp::socket socket =
        co_await acceptor.async_accept(net::redirect_error(net::use_awaitable, error));
    if (shared->is_stopping) co_return;
    if (!error) {
      socket.set_option(tcp::no_delay(true), error);
      spawn(std::move(socket));
    }
    while (error || (shared->num_open >= options.max_connections && !shared->is_stopping)) {
      error = {};
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(net::use_awaitable);
    }
  }

  void spawn(tcp::socket socket) {
    const auto executor = acceptor.get_executor();
    if (tls == nullptr) {
      net::co_spawn(executor, serve_plain(std::move(socket), shared), net::detached);
    } else {
      net::co_spawn(executor, serve_tls(std::move(socket), tls, shared), net::detached);
    }
  }

  tcp::acceptor acceptor;
  net::steady_timer pause;
  ListenerOptions options;
  std::shared_ptr<net::ssl::context> tls;
  std::shared_ptr<ConnectionContext> shared = std::make_shared<ConnectionContext>();
};

Listener::Listener(net::io_context& io, const ListenerOptions& options,
                   std::shared_ptr<Buffers> buffers, HeadCheck check, Handler handler)
    : state_(std::make_shared<State>(io, options)) {
  check_descriptors(options.max_connections);
  ConnectionContext& shared = *state_->shared;
  shared.buffers = std::move(buffers);
  shared.check = std::move(check);
  shared.handler = std::move(handler);
  shared.body = options.body;
  shared.large_body = options.large_body;
  shared.takes_large_body = options.takes_large_body;
  shared.write_time = std::chrono::milliseconds(static_cast<int64_t>(options.write_seconds * 1000));
  error_code error;
  const net::ip::address address = net::ip::make_address(options.host, error);
  HEDDLE_CHECK(!error, "--host ", options.host, ": expected an address such as 127.0.0.1 or ::1");
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.port));
  tcp::acceptor& acceptor = state_->acceptor;
  acceptor.open(endpoint.protocol());
  bind_alone(acceptor, endpoint, error);
  check_bound(error, options);
}

Listener::~Listener() { stop(); }

int Listener::port() const { return state_->acceptor.local_endpoint().port(); }
bool Listener::is_stopped() const { return state_->shared->is_stopping; }
int Listener::num_connections() const { return state_->shared->num_open; }

void Listener::listen() {
  error_code error;
  state_->acceptor.set_option(net::socket_base::reuse_address(true));
  state_->acceptor.listen(net::socket_base::max_listen_connections, error);
  check_bound(error, state_->options);
}

void Listener::start() { state_->start(); }

void Listener::stop() {
  ConnectionContext& shared = *state_->shared;
  shared.is_stopping = true;
  error_code ignored;
  state_->acceptor.close(ignored);
  for (const std::function<void()>* close : shared.idle) (*close)();  // which waits for no handler
}

void Listener::close_all() {
  for (const std::function<void()>* close : state_->shared->open) (*close)();
}

}  // namespace heddle::serve
