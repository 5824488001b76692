#include "http/connection.h"

#include <algorithm>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <type_traits>
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

#include "http/head_scan.h"
#include "http/request_parser.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using std::chrono::seconds;

constexpr size_t kReadAhead = 4 << 10;  // bytes of a next request that are read during a response
constexpr size_t kPiece = 64 << 10;     // bytes of an answer that a client takes at a time, or goes
constexpr seconds kHeaderTime{15}, kBodyTime{60}, kIdleTime{75}, kCloseTime{5};
constexpr std::chrono::milliseconds kFirstLook{1}, kLook{20};
constexpr std::string_view kProbe = "HTTP/1.1 100 Continue\r\n\r\n";

template <class Stream>
class Connection final : public Responder, public std::enable_shared_from_this<Connection<Stream>> {
  /// TLS has no half of a connection: who closes it is gone.
  static constexpr bool kMayHalfClose = std::is_same_v<Stream, beast::tcp_stream>;

 public:
  template <class... Args>
  explicit Connection(std::shared_ptr<ConnectionContext> context, Args&&... args)
      : context_(std::move(context)),
        stream_(std::forward<Args>(args)...),
        read_ahead_(stream_.get_executor()),
        look_(stream_.get_executor()),
        held_(*context_->buffers, [this] { give_up(); }) {
    close_ = [this] { close(); };
    error_code unknown;
    const auto peer = beast::get_lowest_layer(stream_).socket().remote_endpoint(unknown);
    if (!unknown) client_ = peer.address().to_string();
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
      ~Closing() {
        connection.is_answering_ = false;
        connection.look_.cancel();
        connection.close();
      }
    } closing{*this};
    try {
      while (co_await serve_one()) {
      }
    } catch (const std::exception&) {  // the client has gone or was too slow, or there is no memory
    }
  }

  void forget_body() override {
    request_.body = {};
    held_.let_go();
  }
  std::string take_body() override {
    std::string body = std::move(request_.body);
    forget_body();
    return body;
  }
  void set_header(const std::string& name, std::string value) override {
    const auto place = std::ranges::find(headers_, name, &Headers::value_type::first);
    if (place != headers_.end()) {
      place->second = std::move(value);
    } else {
      headers_.emplace_back(name, std::move(value));
    }
  }

  net::awaitable<void> send(HttpResponse response) override {
    has_response_ = true;
    if (!held_.hold(std::ssize(response.body))) {
      response = refusal(
          503,
          "the answers that wait for slow clients take too much memory together; try again later",
          request_.path);
    }
    http::response<http::string_body> message{http::status(response.status), version_};
    set_head(message, response);
    const bool is_one_piece = response.body.size() <= kPiece && !is_head_;
    if (is_one_piece) {
      message.body() = std::move(response.body);
      message.prepare_payload();
    } else {
      message.content_length(response.body.size());
    }
    expire(context_->write_time);
    http::response_serializer<http::string_body> serializer{message};
    // Half an answer cannot become another one: the connection ends.
    if (std::exchange(has_answered_, true))
      throw boost::system::system_error(net::error::shut_down);
    if (is_one_piece) {
      co_await http::async_write(stream_, serializer, net::use_awaitable);
    } else {
      co_await http::async_write_header(stream_, serializer, net::use_awaitable);
      if (!is_head_) co_await write_pieces(response.body);
    }
    held_.let_go();
  }

  net::awaitable<void> begin(const HttpResponse& head) override {
    has_response_ = true;
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
    if (!held_.hold(std::ssize(piece))) give_up();
    for (; !piece.empty() && is_chunked_; piece.remove_prefix(std::min(piece.size(), kPiece))) {
      expire(context_->write_time);
      const std::string_view part = piece.substr(0, kPiece);
      const net::const_buffer bytes(part.data(), part.size());
      co_await net::async_write(stream_, http::make_chunk(bytes), net::use_awaitable);
    }
    co_await write_pieces(piece);
    held_.let_go();
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
    if (context_->is_stopping || has_half_closed_) keeps_alive_ = false;
    message.keep_alive(keeps_alive_);
  }

  /// A client has the time of one write for each piece.
  net::awaitable<void> write_pieces(std::string_view bytes) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPiece))) {
      expire(context_->write_time);
      const std::string_view piece = bytes.substr(0, kPiece);
      co_await net::async_write(stream_, net::buffer(piece.data(), piece.size()),
                                net::use_awaitable);
    }
  }

  /// Others need the memory: a body is read no further, and an answer is cut off.
  void give_up() {
    has_given_up_ = true;
    if (is_reading_body_) {
      beast::get_lowest_layer(stream_).cancel();
    } else {
      close();
    }
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

  /// Reads during the response: that is how the server learns that the client has gone.
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
          self->read_ahead_.cancel();
          if (error == net::error::eof && kMayHalfClose) {
            self->has_half_closed_ = true;
            self->start_look();
          } else if (error) {
            self->set_gone();
          }
        },
        net::detached);
  }

  void set_gone() {
    is_gone_ = true;
    if (gone_) gone_();
  }

  /// A client that sends no more may yet wait for its answer, or be gone. Bytes on their way to one
  /// that is gone come back as an error of the connection; where none are, an interim response is
  /// what every client of HTTP/1.1 passes over.
  void start_look() {
    if (!is_answering_ || std::exchange(is_looking_, true)) return;
    net::co_spawn(
        stream_.get_executor(),
        [self = this->shared_from_this()]() -> net::awaitable<void> {
          std::chrono::milliseconds pause = kFirstLook;
          while (self->is_answering_ && !self->is_gone_) {
            self->look();
            self->look_.expires_after(std::exchange(pause, kLook));
            error_code ended;
            co_await self->look_.async_wait(net::redirect_error(net::use_awaitable, ended));
          }
          self->is_looking_ = false;
        },
        net::detached);
  }

  void look() {
    const int socket = beast::get_lowest_layer(stream_).socket().native_handle();
    pollfd state{.fd = socket, .events = POLLRDHUP, .revents = 0};
    if (::poll(&state, 1, 0) < 0) return;
    if ((state.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return set_gone();
    if ((state.revents & POLLRDHUP) == 0 || has_response_ || version_ < 11) return;
    if (!kMayHalfClose) return set_gone();
    int num_unsent = 0;
    const bool has_sent = ::ioctl(socket, SIOCOUTQ, &num_unsent) != 0 || num_unsent > 0;
    if (has_sent || std::exchange(has_probed_, true)) return;
    static_cast<void>(::send(socket, kProbe.data(), kProbe.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
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

  /// Reads a head into the buffer; returns whether it is one, or an error has been answered.
  net::awaitable<bool> read_head() {
    HeadScan scan;
    HeadScan::State state = scan.scan(bytes_read());
    while (state == HeadScan::State::kOpen) {
      error_code error;
      const size_t count = co_await stream_.async_read_some(
          buffer_.prepare(kReadAhead), net::redirect_error(net::use_awaitable, error));
      buffer_.commit(count);
      if (error) co_return false;
      state = scan.scan(bytes_read());
    }
    while (bytes_read().starts_with("\r\n")) buffer_.consume(2);
    if (state == HeadScan::State::kWhole) co_return true;
    co_await send(refusal(scan.status(), scan.why(), {}));
    co_await leave();
    co_return false;
  }

  [[nodiscard]] std::string_view bytes_read() const {
    return {static_cast<const char*>(buffer_.cdata().data()), buffer_.size()};
  }

  /// Reads the body as it comes; what it holds so far counts.
  net::awaitable<void> read_body(RequestParser& parser, error_code& error) {
    is_reading_body_ = true;
    parser.eager(true);
    expire(kBodyTime);
    while (!parser.is_done() && !error && !has_given_up_) {
      co_await http::async_read_some(stream_, buffer_, parser,
                                     net::redirect_error(net::use_awaitable, error));
      const std::string& body = parser.get().body();
      if (!held_.hold(std::ssize(body))) has_given_up_ = true;
    }
    is_reading_body_ = false;
  }

  /// One request and its response; returns whether another may follow.
  net::awaitable<bool> serve_one() {
    if (is_reading_) co_await wait_for_read_ahead();
    if (is_gone_ || has_half_closed_) co_return false;  // nothing comes any more
    RequestParser parser;
    set_limits(parser);
    limit_ = context_->body;
    error_code error;
    if (buffer_.size() == 0) context_->idle.insert(&close_);
    expire(kHeaderTime);
    version_ = 11;
    is_head_ = keeps_alive_ = has_response_ = has_answered_ = has_probed_ = false;
    headers_.clear();
    const bool has_head = co_await read_head();
    context_->idle.erase(&close_);
    if (!has_head) co_return false;
    co_await http::async_read_header(stream_, buffer_, parser,
                                     net::redirect_error(net::use_awaitable, error));
    version_ = parser.is_header_done() ? parser.get().version() : 11;
    keeps_alive_ = parser.is_header_done() && parser.get().keep_alive();
    if (error) co_return co_await refuse(error, {});
    is_head_ = parser.get().method() == http::verb::head;
    request_ = head_of(parser);
    request_.client = client_;
    if (context_->takes_large_body(request_)) limit_ = context_->large_body;
    if (!limit_body(parser, limit_)) {
      co_return co_await refuse(http::make_error_code(http::error::body_limit), request_.path);
    }
    if (auto response = context_->check(request_)) {
      keeps_alive_ = keeps_alive_ && parser.is_done();
      co_await send(std::move(*response));
      co_return co_await leave();
    }
    if (version_ >= 11 && !parser.is_done() && parser.get().count(http::field::expect) > 0) {
      co_await net::async_write(stream_, net::buffer(kProbe), net::use_awaitable);
    }
    co_await read_body(parser, error);
    if (has_given_up_) {
      keeps_alive_ = false;
      co_await send(refusal(503,
                            "the request bodies that are still arriving take too much memory "
                            "together; try again later",
                            request_.path));
      co_return co_await leave();
    }
    if (error) co_return co_await refuse(error, request_.path);
    request_.body = std::move(parser.get().body());
    is_answering_ = true;
    if (buffer_.size() == 0) {
      start_read_ahead();
    } else {
      start_look();  // the next request is there already
    }
    co_await context_->handler(request_, *this);
    is_answering_ = false;
    look_.cancel();
    gone_ = nullptr;
    forget_body();
    co_return co_await leave();
  }

  /// The answer to what is no HTTP, or too long; `path` is empty where it is not known.
  net::awaitable<bool> refuse(error_code error, const std::string& path) {
    keeps_alive_ = false;
    held_.let_go();
    std::optional<HttpResponse> response = refusal_of(error, limit_, path);
    if (response) co_await send(std::move(*response));
    co_return co_await leave();
  }

  /// Ends the connection unless it stays: what the client still sends is read for a while, so that
  /// it gets the response before the connection is reset.
  net::awaitable<bool> leave() {
    if (keeps_alive_ && !context_->is_stopping) co_return true;
    error_code error;
    beast::get_lowest_layer(stream_).socket().shutdown(net::ip::tcp::socket::shutdown_send, error);
    if (!is_reading_ && !has_half_closed_) {
      expire(kCloseTime);
      char sink[kReadAhead];
      for (size_t total = 0; !error && total < limit_.bytes;) {
        total += co_await beast::get_lowest_layer(stream_).async_read_some(
            net::buffer(sink), net::redirect_error(net::use_awaitable, error));
      }
    }
    co_return false;
  }

  std::shared_ptr<ConnectionContext> context_;
  Stream stream_;
  beast::flat_buffer buffer_{HeadScan::kMostBytes + 2 * kReadAhead};
  net::steady_timer read_ahead_;  // ends when the read does
  net::steady_timer look_;
  HttpRequest request_;
  BodyLimit limit_;  // of its body
  Buffers::Holder held_;
  std::string client_;  // its address
  Headers headers_;
  std::function<void()> gone_, close_;
  unsigned version_ = 11;
  bool is_reading_ = false, is_gone_ = false, has_half_closed_ = false;
  bool is_reading_body_ = false, has_given_up_ = false;
  bool is_answering_ = false, has_response_ = false, is_looking_ = false, has_probed_ = false;
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
