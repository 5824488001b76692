#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "http/message.h"

namespace heddle::serve {

/// The way back to the client of one request. All of it runs in the thread of the network.
class Responder {
 public:
  Responder() = default;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
  virtual ~Responder() = default;

  /// The request's body was read and is not needed any more: it is freed.
  virtual void forget_body() = 0;
  /// The request's body, which the request then has no more.
  [[nodiscard]] virtual std::string take_body() = 0;
  /// A header that the response has in addition to its own, in place of an earlier one of that
  /// name.
  virtual void set_header(const std::string& name, std::string value) = 0;
  virtual boost::asio::awaitable<void> send(HttpResponse response) = 0;
  /// A response whose body comes in pieces: begin, write as often as needed, end.
  virtual boost::asio::awaitable<void> begin(const HttpResponse& head) = 0;
  /// Waits until the client has room; throws boost::system::system_error where it has gone, or took
  /// nothing for as long as the server allows.
  virtual boost::asio::awaitable<void> write(std::string_view piece) = 0;
  virtual boost::asio::awaitable<void> end() = 0;

  /// Whether the client has closed the connection.
  [[nodiscard]] virtual bool is_gone() const = 0;
  /// Called when it closes the connection; replaces the one before.
  virtual void on_gone(std::function<void()> call) = 0;
};

/// Answers a request; exactly one response.
using Handler =
    std::function<boost::asio::awaitable<void>(const HttpRequest& request, Responder& responder)>;
/// What is wrong with a request of which only the head is there; nothing: go on.
using HeadCheck = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;

}  // namespace heddle::serve
