// What clients read where the engine fails, and what becomes of the server where its GPU has.
#include "server.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <netinet/in.h>
#include <semaphore>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "engine/face/made_engine.h"

namespace heddle::serve {
namespace {

using json = nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
  "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
  "vocab_size": 300, "max_position_embeddings": 4096, "rms_norm_eps": 1e-06})";
constexpr int kReadSeconds = 60;
constexpr auto kWait = std::chrono::seconds(60);
constexpr const char* kRefused = "scale: refused";

/// A server on a small model in threads of its own.
class Served {
 public:
  explicit Served(BeforeCompute hook)
      : server_(options(), [&hook] { return make_engine(kModel, 1, engine_options(), hook); }),
        port_(server_.port()),
        exit_code_(std::async(std::launch::async, [this] { return server_.run(); })) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() { server_.end(); }

  /// Also when nothing listens there any more.
  [[nodiscard]] int port() const { return port_; }
  void end() { server_.end(); }
  /// What `run` returns; -1 where it does not within a minute.
  int exit_code() {
    return exit_code_.wait_for(kWait) == std::future_status::ready ? exit_code_.get() : -1;
  }

 private:
  static app::ServeOptions options() {
    app::ServeOptions options;
    options.port = 0;
    return options;
  }
  static EngineOptions engine_options() {
    return {.device = "cpu", .max_batch = 4, .num_threads = 1};
  }

  Server server_;
  const int port_;
  std::future<int> exit_code_;
};

/// A connection to it.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval longest{.tv_sec = kReadSeconds, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(socket_); }

  [[nodiscard]] bool is_connected() const { return is_connected_; }
  void send(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  /// What comes up to the end of a head.
  [[nodiscard]] std::string read_head() const {
    std::string text;
    while (!text.ends_with("\r\n\r\n") && read_byte(text)) {
    }
    return text;
  }
  /// What comes until the server closes the connection.
  [[nodiscard]] std::string read_all() const {
    std::string text;
    while (read_byte(text)) {
    }
    return text;
  }

 private:
  bool read_byte(std::string& text) const {
    char byte = 0;
    const bool has_come = ::recv(socket_, &byte, 1, 0) == 1;
    if (has_come) text += byte;
    return has_come;
  }

  int socket_;
  bool is_connected_ = false;
};

/// With `waits` the body is sent after "100 Continue".
std::string head_of(const std::string& request, size_t body_bytes, bool waits = false) {
  return request +
         " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n" +
         (waits ? "Expect: 100-continue\r\n" : "") +
         "Content-Length: " + std::to_string(body_bytes) + "\r\n\r\n";
}

/// Each token is returned: those of this model have no text.
std::string completion_of(bool is_stream) {
  const json body = {{"prompt", {7, 8}},   {"max_tokens", 4000},  {"temperature", 0},
                     {"ignore_eos", true}, {"stream", is_stream}, {"return_token_ids", true}};
  return body.dump();
}

std::string post(const std::string& path, const std::string& body) {
  return head_of("POST " + path, body.size()) + body;
}

/// The response's status and body.
std::pair<int, json> parsed(const std::string& response) {
  const size_t body = response.find("\r\n\r\n");
  if (!response.starts_with("HTTP/1.1 ") || body == std::string::npos) return {0, response};
  return {std::stoi(response.substr(9)), json::parse(response.substr(body), nullptr, false)};
}

/// {"error": ...} of OpenAI's API for what ended the engine.
void expect_ended(const json& error) {
  EXPECT_EQ(error["type"], "ServiceUnavailableError") << error;
  EXPECT_EQ(error["code"], 503) << error;
  const std::string message = error["message"];
  EXPECT_TRUE(message.starts_with("the engine has ended: cpu failed in a step of ")) << message;
  EXPECT_TRUE(message.ends_with(kRefused)) << message;
}
void expect_ended(const std::pair<int, json>& response) {
  EXPECT_EQ(response.first, 503);
  expect_ended(response.second["error"]);
}

TEST(FailingEngine, EveryErrorHasItsStatus) {
  struct Expected {
    std::function<void()> fail;
    int status;
    const char* type;
    json param;
    int lorax_status;
    const char* lorax_type;
  };
  const auto throws = [](ErrorCode code) { return [code] { throw Error(code, "why"); }; };
  const Expected all[] = {
      {throws(ErrorCode::kInvalidArgument), 400, "BadRequestError", nullptr, 422, "validation"},
      {throws(ErrorCode::kUnsupported), 400, "BadRequestError", nullptr, 422, "validation"},
      {throws(ErrorCode::kOutOfMemory), 503, "ServiceUnavailableError", nullptr, 503,
       "healthcheck"},
      {[] { throw UnknownAdapter("why"); }, 404, "NotFoundError", "model", 404, "validation"}};
  for (const Expected& expected : all) {
    Served served([&expected](const ExecContext& /*ctx*/) { expected.fail(); });
    for (const bool is_stream : {false, true}) {  // which has not begun
      const Client client(served.port());
      client.send(post("/v1/completions", completion_of(is_stream)));
      const auto [status, body] = parsed(client.read_all());
      EXPECT_EQ(status, expected.status);
      EXPECT_EQ(body["error"], json({{"message", "why"},
                                     {"type", expected.type},
                                     {"param", expected.param},
                                     {"code", expected.status}}));
    }
    const Client client(served.port());
    client.send(post("/generate", R"({"inputs": "aa"})"));
    const auto [status, body] = parsed(client.read_all());
    EXPECT_EQ(status, expected.lorax_status);
    EXPECT_EQ(body, json({{"error", "why"}, {"error_type", expected.lorax_type}}));
    served.end();
    EXPECT_EQ(served.exit_code(), 0);
  }
}

TEST(FailedGpu, EveryRequestIsAnsweredAndTheExitCodeIs1) {
  std::counting_semaphore<> steps(0);
  std::atomic<bool> fails = false;
  Served served([&](const ExecContext& /*ctx*/) {
    (void)steps.try_acquire_for(kWait);  // not for ever: a test that fails ends, too
    if (fails) throw Error(ErrorCode::kCuda, kRefused);
  });
  const Client whole(served.port()), stream(served.port());
  whole.send(post("/v1/completions", completion_of(false)));
  stream.send(post("/v1/completions", completion_of(true)));
  auto head = std::async(std::launch::async, [&stream] { return stream.read_head(); });
  while (head.wait_for(milliseconds(1)) != std::future_status::ready) steps.release();
  EXPECT_TRUE(head.get().starts_with("HTTP/1.1 200 OK"));

  // These connections have requests in flight, so the server cannot close them before the next.
  const Client health(served.port()), late(served.port());
  const std::string late_body = completion_of(false);
  health.send(head_of("GET /health", 1, true));
  late.send(head_of("POST /v1/completions", late_body.size(), true));
  for (const Client* client : {&health, &late}) {
    EXPECT_TRUE(client->read_head().starts_with("HTTP/1.1 100 Continue"));
  }

  fails = true;
  steps.release();
  expect_ended(parsed(whole.read_all()));
  const std::string streamed = stream.read_all();
  const size_t error = streamed.find(R"({"error")"), end = streamed.find("\n\ndata: [DONE]");
  ASSERT_NE(error, std::string::npos) << streamed;
  ASSERT_NE(end, std::string::npos) << streamed;
  expect_ended(json::parse(streamed.substr(error, end - error))["error"]);

  const auto deadline = std::chrono::steady_clock::now() + kWait;
  while (Client(served.port()).is_connected()) {  // until it has begun to end
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(milliseconds(1));
  }
  health.send(" ");
  expect_ended(parsed(health.read_all()));
  late.send(late_body);
  expect_ended(parsed(late.read_all()));
  EXPECT_EQ(served.exit_code(), 1);
}

}  // namespace
}  // namespace heddle::serve
