// No lack of memory ends the server: each call of operator new that the life of a request makes, in
// any thread, fails in turn.
#include <array>
#include <cerrno>
#include <future>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include "engine/face/made_engine.h"
#include "heap_count.h"
#include "server.h"

namespace heddle::serve {
namespace {

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
  "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
  "vocab_size": 64, "max_position_embeddings": 256, "rms_norm_eps": 1e-06})";
constexpr int kReadSeconds = 10;  // less than the server waits for events

class Served {
 public:
  Served()
      : server_(options(), [] { return make_engine(kModel, 1, engine_options()); }),
        exit_code_(std::async(std::launch::async, [this] { return server_.run(); })) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() { end(); }

  [[nodiscard]] int port() const { return server_.port(); }
  int end() {
    if (!exit_code_.valid()) return 0;
    server_.end();
    return exit_code_.get();
  }

 private:
  static app::ServeOptions options() {
    app::ServeOptions options;
    options.port = 0;
    options.allow_request_templates = true;
    return options;
  }
  static EngineOptions engine_options() {
    return {.device = "cpu", .max_batch = 4, .num_threads = 1};
  }

  Server server_;
  std::future<int> exit_code_;
};

/// What the server answers until it closes the connection. Allocates nothing.
struct Answer {
  std::array<char, 1 << 16> bytes;
  size_t size = 0;
  bool has_ended = false;

  void ask(int port, std::string_view request) {
    size = 0;
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval longest{.tv_sec = kReadSeconds, .tv_usec = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    has_ended = false;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      (void)::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
      ssize_t count = 0;
      while ((count = ::recv(socket, bytes.data() + size, bytes.size() - size, 0)) > 0) {
        size += static_cast<size_t>(count);
      }
      has_ended = count == 0 || errno == ECONNRESET;
    }
    ::close(socket);
  }
  [[nodiscard]] std::string_view text() const { return {bytes.data(), size}; }
  [[nodiscard]] bool has_status(std::string_view status) const {
    return text().substr(0, 9 + status.size()) == "HTTP/1.1 " + std::string(status);
  }
};

/// GET where there is no body.
std::string request_of(const std::string& path, const std::string& body) {
  return (body.empty() ? "GET " : "POST ") + path +
         " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

constexpr const char* kNext =
    "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Asks as often as the request's life has allocations; each time the server answers or closes the
/// connection, and then answers the next request.
void expect_survived(const std::string& path, const std::string& body) {
  SCOPED_TRACE(path + " " + body);
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>()));
  const std::string request = request_of(path, body);
  Served served;
  auto answer = std::make_unique<Answer>();
  answer->ask(served.port(), request);
  ASSERT_TRUE(answer->has_status("200")) << answer->text();
  int64_t num_refused = 0, num_closed = 0, countdown = 0, n = 0;
  do {
    countdown = ++n;
    {
      const testing::FailingAllocation failing(countdown);
      answer->ask(served.port(), request);
    }
    ASSERT_TRUE(answer->has_ended) << "allocation " << n << ": " << answer->text();
    num_refused += answer->has_status("503") ? 1 : 0;
    num_closed += answer->size == 0 ? 1 : 0;
    ASSERT_TRUE(answer->size == 0 || answer->has_status("503") || answer->has_status("200"))
        << "allocation " << n << ": " << answer->text();
    answer->ask(served.port(), kNext);
    ASSERT_TRUE(answer->has_status("200")) << "after allocation " << n << ": " << answer->text();
  } while (countdown <= 0);
  EXPECT_GT(n, 50) << "few allocations were seen";
  EXPECT_GE(num_refused, num_closed);
  answer->ask(served.port(), request);  // the counts of rows are right: there is room
  EXPECT_TRUE(answer->has_status("200")) << answer->text();
  EXPECT_EQ(served.end(), 0);
}

TEST(ServerMemory, AStreamedChatWithCallsOfTools) {
  expect_survived("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"},
    {"role":"assistant","content":"a","tool_calls":[{"id":"1","type":"function",
    "function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"a","tool_call_id":"1"}],
    "chat_template":"{{ messages[0].content }}{% for d in documents %}a{% endfor %}","documents":[{"title":"a"}],"stream":true,
    "chat_template_kwargs":{"x":[1,2.5]},"max_tokens":2,"logprobs":true,"top_logprobs":2,
    "stream_options":{"include_usage":true},"stop":["a longer stop string than a short one"]})");
}

TEST(ServerMemory, CompletionsWithLogprobs) {
  expect_survived("/v1/completions", R"({"prompt":["a",[7,8]],"max_tokens":2,"logprobs":2,"n":2,
    "best_of":3,"echo":true,"return_token_ids":true,"ignore_eos":true,
    "logit_bias":{"7":1.5},"bad_words":["a"],"metadata":{"x":[{"y":"a text that is not short"}]}})");
}

TEST(ServerMemory, GenerateOfLorax) {
  expect_survived("/generate", R"({"inputs":"a","parameters":{"max_new_tokens":2,"details":true,
    "return_k_alternatives":2,"do_sample":true,"decoder_input_details":true}})");
}

TEST(ServerMemory, Tokenize) {
  expect_survived("/tokenize", R"({"prompt":"aaaaaaaa","return_token_strs":true})");
}

TEST(ServerMemory, Metrics) { expect_survived("/metrics", ""); }

}  // namespace
}  // namespace heddle::serve
