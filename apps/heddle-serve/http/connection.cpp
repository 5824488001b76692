#include "http/connection.h"

#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "http/request_parser.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using std::chrono::seconds;

constexpr size_t kHeaderBytes = 16 << 10;
constexpr size_t kReadAhead = 4 << 10;  // bytes of a next request that are read beside a response
constexpr seconds kHeaderTime{15}, kBodyTime{60}, kIdleTime{75}, kCloseTime{5};

template <class Stream>
class Connection final : public Responder, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <class... Args>
  explicit Connection(std::shared_ptr<ConnectionContext> context, Args&&... args)
      : context_(std::move(context)),
        stream_(std::forward<Args>(args)...),
        read_ahead_(stream_.get_executor()) {
    close_ = [this] { close(); };
    context_->open.insert(&close_);
    ++context_->num_open;
  }
  ~Connection() override {
    --context_->num_open;
    context_->idle.erase(&close_);
    context_->open.erase(&close_);
  }

  Stream& stream() { return stream_; }

  net::awaitable<void> run() {
    const auto self = this->shared_from_this();
    // Asio drops a coroutine where it finds no memory for its next step.
    struct Closing {
      Connection& connection;
      ~Closing() { connection.close(); }
    } closing{*this};
    try {
      while (co_await serve_one()) {
      }
    } catch (const std::exception&) {  // the client has gone or was too slow, or there is no memory
    }
  }

  void set_headers(Headers headers) override { headers_ = std::move(headers); }

  net::awaitable<void> send(HttpResponse response) override {
    http::response<http::string_body> message{http::status(response.status), version_};
    set_head(message, response);
    message.body() = std::move(response.body);
    message.prepare_payload();
    if (is_head_) message.body().clear();
    expire(context_->write_time);
    http::response_serializer<http::string_body> serializer{message};
    // Half an answer cannot become another one: the connection ends.
    if (std::exchange(has_answered_, true))
      throw boost::system::system_error(net::error::shut_down);
    if (is_head_) {
      co_await http::async_write_header(stream_, serializer, net::use_awaitable);
    } else {
      co_await http::async_write(stream_, serializer, net::use_awaitable);
    }
  }

  net::awaitable<void> begin(const HttpResponse& head) override {
    http::response<http::empty_body> message{http::status(head.status), version_};
    set_head(message, head);
    is_chunked_ = version_ >= 11;
    if (is_chunked_) {
      message.chunked(true);
    } else {
      message.keep_alive(keeps_alive_ = false);
    }
    expire(context_->write_time);
    http::response_serializer<http::empty_body> serializer{message};
    has_answered_ = true;
    co_await http::async_write_header(stream_, serializer, net::use_awaitable);
  }

  net::awaitable<void> write(std::string_view piece) override {
    expire(context_->write_time);
    const net::const_buffer bytes(piece.data(), piece.size());
    if (is_chunked_) {
      co_await net::async_write(stream_, http::make_chunk(bytes), net::use_awaitable);
    } else {
      co_await net::async_write(stream_, bytes, net::use_awaitable);
    }
  }

  net::awaitable<void> end() override {
    if (!is_chunked_) co_return;
    expire(context_->write_time);
    co_await net::async_write(stream_, http::make_chunk_last(), net::use_awaitable);
  }

  bool is_gone() const override { return is_gone_; }
  void on_gone(std::function<void()> call) override {
    gone_ = std::move(call);
    if (is_gone_ && gone_) gone_();
  }

 private:
  template <class Body>
  void set_head(http::response<Body>& message, const HttpResponse& response) {
    message.set(http::field::server, "heddle");
    message.set(http::field::content_type, response.content_type);
    message.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : response.headers) message.set(name, value);
    for (const auto& [name, value] : headers_) message.set(name, value);
    if (context_->is_stopping) keeps_alive_ = false;
    message.keep_alive(keeps_alive_);
  }

  void expire(std::chrono::milliseconds time) {
    beast::get_lowest_layer(stream_).expires_after(time);
  }

  void close() noexcept {
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().shutdown(net::ip::tcp::socket::shutdown_both,
                                                       ignored);
    beast::get_lowest_layer(stream_).close();
  }

  /// Reads beside the response: that is how one learns that the client has gone.
  void start_read_ahead() {
    is_reading_ = true;
    beast::get_lowest_layer(stream_).expires_never();
    net::co_spawn(
        stream_.get_executor(),
        [self = this->shared_from_this()]() -> net::awaitable<void> {
          error_code error;
          const size_t count = co_await self->stream_.async_read_some(
              self->buffer_.prepare(kReadAhead), net::redirect_error(net::use_awaitable, error));
          self->buffer_.commit(count);
          self->is_reading_ = false;
          if (error) {
            self->is_gone_ = true;
            if (self->gone_) self->gone_();
          }
          self->read_ahead_.cancel();
        },
        net::detached);
  }

  net::awaitable<void> wait_for_read_ahead() {
    context_->idle.insert(&close_);
    read_ahead_.expires_after(context_->is_stopping ? seconds(0) : kIdleTime);
    error_code error;
    if (is_reading_) {
      co_await read_ahead_.async_wait(net::redirect_error(net::use_awaitable, error));
    }
    context_->idle.erase(&close_);
    if (!is_reading_) co_return;
    close();
    read_ahead_.expires_after(kCloseTime);
    co_await read_ahead_.async_wait(net::redirect_error(net::use_awaitable, error));
    is_gone_ = true;
  }

  /// One request and its response; returns whether another may follow.
  net::awaitable<bool> serve_one() {
    if (is_reading_) co_await wait_for_read_ahead();
    if (is_gone_) co_return false;
    RequestParser parser;
    set_limits(parser, context_->body_bytes);
    error_code error;
    if (buffer_.size() == 0) context_->idle.insert(&close_);
    expire(kHeaderTime);
    co_await http::async_read_header(stream_, buffer_, parser,
                                     net::redirect_error(net::use_awaitable, error));
    context_->idle.erase(&close_);
    version_ = parser.is_header_done() ? parser.get().version() : 11;
    is_head_ = has_answered_ = false;
    headers_.clear();
    keeps_alive_ = parser.is_header_done() && parser.get().keep_alive();
    if (error) co_return co_await refuse(error);
    is_head_ = parser.get().method() == http::verb::head;
    HttpRequest request = head_of(parser);
    if (auto response = context_->check(request)) {
      keeps_alive_ = keeps_alive_ && parser.is_done();
      co_await send(std::move(*response));
      co_return co_await leave();
    }
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on{http::status::continue_, version_};
      co_await http::async_write(stream_, go_on, net::use_awaitable);
    }
    expire(kBodyTime);
    co_await http::async_read(stream_, buffer_, parser,
                              net::redirect_error(net::use_awaitable, error));
    if (error) co_return co_await refuse(error);
    request.body = std::move(parser.get().body());
    if (buffer_.size() == 0) start_read_ahead();  // else the next request is there already
    co_await context_->handler(request, *this);
    gone_ = nullptr;
    co_return co_await leave();
  }

  /// The answer to what is no HTTP, or too long.
  net::awaitable<bool> refuse(error_code error) {
    keeps_alive_ = false;
    std::optional<HttpResponse> response = refusal_of(error, context_->body_bytes);
    if (response) co_await send(std::move(*response));
    co_return co_await leave();
  }

  /// Ends the connection unless it stays: what the client still sends is read for a while, so that
  /// it gets the response before the connection is reset.
  net::awaitable<bool> leave() {
    if (keeps_alive_ && !context_->is_stopping) co_return true;
    error_code error;
    beast::get_lowest_layer(stream_).socket().shutdown(net::ip::tcp::socket::shutdown_send, error);
    if (!is_reading_) {
      expire(kCloseTime);
      char sink[kReadAhead];
      for (size_t total = 0; !error && total < context_->body_bytes;) {
        total += co_await beast::get_lowest_layer(stream_).async_read_some(
            net::buffer(sink), net::redirect_error(net::use_awaitable, error));
      }
    }
    co_return false;
  }

  std::shared_ptr<ConnectionContext> context_;
  Stream stream_;
  beast::flat_buffer buffer_{kHeaderBytes + kReadAhead};
  net::steady_timer read_ahead_;  // ends when the read does
  Headers headers_;
  std::function<void()> gone_, close_;
  unsigned version_ = 11;
  bool is_reading_ = false, is_gone_ = false;
  bool keeps_alive_ = false, is_chunked_ = false, is_head_ = false;
  bool has_answered_ = false;  // the request, or has begun to
};

}  // namespace

net::awaitable<void> serve_plain(net::ip::tcp::socket socket,
                                 std::shared_ptr<ConnectionContext> context) {
  const auto connection =
      std::make_shared<Connection<beast::tcp_stream>>(std::move(context), std::move(socket));
  co_await connection->run();
}

net::awaitable<void> serve_tls(net::ip::tcp::socket socket, std::shared_ptr<net::ssl::context> tls,
                               std::shared_ptr<ConnectionContext> context) {
  using Stream = beast::ssl_stream<beast::tcp_stream>;
  const auto connection =
      std::make_shared<Connection<Stream>>(std::move(context), std::move(socket), *tls);
  error_code error;
  beast::get_lowest_layer(connection->stream()).expires_after(kHeaderTime);
  co_await connection->stream().async_handshake(net::ssl::stream_base::server,
                                                net::redirect_error(net::use_awaitable, error));
  if (!error) co_await connection->run();
}

}  // namespace heddle::serve
