#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include "http/buffers.h"
#include "http/responder.h"

namespace heddle::serve {

/// What all connections of a listener share.
struct ConnectionContext {
  HeadCheck check;
  Handler handler;
  std::shared_ptr<Buffers> buffers;  // also of the events of rows
  BodyLimit body{}, large_body{};    // as in ListenerOptions
  std::function<bool(const HttpRequest& head)> takes_large_body{};
  std::chrono::milliseconds write_time{};
  bool is_stopping = false;
  int num_open = 0;
  std::set<const std::function<void()>*> open{};  // each closes its connection
  std::set<const std::function<void()>*> idle{};  // those that wait for a request
};

/// Serves the connection until it ends.
boost::asio::awaitable<void> serve_plain(boost::asio::ip::tcp::socket socket,
                                         std::shared_ptr<ConnectionContext> context);
/// A connection with TLS.
boost::asio::awaitable<void> serve_tls(boost::asio::ip::tcp::socket socket,
                                       std::shared_ptr<boost::asio::ssl::context> tls,
                                       std::shared_ptr<ConnectionContext> context);

}  // namespace heddle::serve
