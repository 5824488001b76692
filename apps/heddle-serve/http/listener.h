#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "http/buffers.h"
#include "http/message.h"
#include "http/responder.h"

namespace heddle::serve {

struct ListenerOptions {
  std::string host;
  int port = 0;                   // 0: one that is free
  std::string tls_cert, tls_key;  // PEM files; empty: plain HTTP
  int max_connections = 4096;
  BodyLimit body{};        // of each request
  BodyLimit large_body{};  // of those of which takes_large_body(head) is true
  std::function<bool(const HttpRequest& head)> takes_large_body{};
  double write_seconds = 30;  // that a client may take nothing of a response
};

/// Accepts connections and runs each as a coroutine of `io`: HTTP/1.1 with keep-alive, one request
/// after another. Malformed requests get 400, 413, 417, 431, 501 or 505 and the end of their
/// connection; what lies in `buffers` in all is bounded, and more gets 503.
class Listener {
 public:
  /// Binds the address; clients are refused until `listen`. Throws Error where it is no address, is
  /// taken, a file is no certificate or key, or the process may have too few file descriptors for
  /// the connections.
  Listener(boost::asio::io_context& io, const ListenerOptions& options,
           std::shared_ptr<Buffers> buffers, HeadCheck check, Handler handler);
  ~Listener();

  [[nodiscard]] int port() const;
  [[nodiscard]] int num_connections() const;
  [[nodiscard]] bool is_stopped() const;
  /// From here on clients connect, and wait for `start`. Throws Error where another program listens
  /// there by now.
  void listen();
  /// Begins to serve them.
  void start();
  /// No new connections; those that are idle end, others when their request is answered.
  void stop();
  /// Ends all connections, whatever they are at.
  void close_all();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heddle::serve
