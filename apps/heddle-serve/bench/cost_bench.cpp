// What the server costs: the same answers from the engine itself and through HTTP over loopback, in
// one process and in turns. Prints JSON.
//
//   heddle-serve-bench MODEL [ROWS [TOKENS [ROUNDS]]]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "server.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;
using Clock = std::chrono::steady_clock;
using json = nlohmann::ordered_json;

constexpr const char* kPrompt = "1 2 3 4 5 6 7 8 9 10";
constexpr int kFirstTokens = 25;  // times to a first token, of which the median is taken

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Request request_of(int64_t max_tokens) {
  Request request;
  request.text = kPrompt;
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  return request;
}

/// Seconds until all rows have ended, from the engine itself.
double engine_seconds(EngineThread& engine, int rows, int64_t tokens) {
  const auto queue = std::make_shared<EventQueue>();
  const auto begin = Clock::now();
  for (int i = 0; i < rows; ++i) engine.submit(request_of(tokens), queue);
  while (queue->num_unfinished() > 0) (void)queue->next(Clock::now() + std::chrono::seconds(60));
  return seconds_since(begin);
}

double engine_first_token(EngineThread& engine) {
  const auto queue = std::make_shared<EventQueue>();
  const auto begin = Clock::now();
  engine.submit(request_of(2), queue);
  (void)queue->next(Clock::now() + std::chrono::seconds(60));
  const double seconds = seconds_since(begin);
  while (queue->num_unfinished() > 0) (void)queue->next(Clock::now() + std::chrono::seconds(60));
  return seconds;
}

/// A client of one connection that reads its streams to their ends.
class Client {
 public:
  explicit Client(int port) : socket_(io_) {
    socket_.connect({net::ip::make_address("127.0.0.1"), static_cast<uint16_t>(port)});
    socket_.set_option(net::ip::tcp::no_delay(true));
  }

  void send(int64_t tokens) {
    const json body{{"prompt", kPrompt},
                    {"max_tokens", tokens},
                    {"ignore_eos", true},
                    {"temperature", 0},
                    {"stream", true}};
    const std::string text = body.dump();
    net::write(
        socket_,
        net::buffer(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: " +
            std::to_string(text.size()) + "\r\n\r\n" + text));
    tail_.clear();
  }
  /// Reads what there is; whether the stream has ended.
  bool read() {
    char bytes[16384];
    tail_.append(bytes, socket_.read_some(net::buffer(bytes)));
    if (tail_.size() > 16) tail_.erase(0, tail_.size() - 16);
    return tail_.ends_with("0\r\n\r\n");
  }

 private:
  net::io_context io_;
  net::ip::tcp::socket socket_;
  std::string tail_;
};

double served_seconds(std::list<Client>& clients, int64_t tokens) {
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (Client& client : clients) {
    threads.emplace_back([&client, tokens] {
      client.send(tokens);
      while (!client.read()) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seconds_since(begin);
}

double served_first_token(Client& client) {
  const auto begin = Clock::now();
  client.send(2);
  bool has_ended = client.read();  // the head of the stream comes with its first token
  const double seconds = seconds_since(begin);
  while (!has_ended) has_ended = client.read();
  return seconds;
}

int run(int argc, char** argv) {
  const auto number = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  const int rows = number(2, 16), tokens = number(3, 64), rounds = number(4, 7);
  app::ServeOptions options;
  options.model.engine.model_path = argc > 1 ? argv[1] : "";
  options.model.engine.max_batch = rows;
  options.model.engine.prefix_cache = false;  // all rows have one prompt, which each computes
  options.port = 0;
  spdlog::set_level(spdlog::level::warn);
  Server server(options);
  std::thread network([&server] { server.run(); });
  json report{{"rows", rows}, {"tokens", tokens}};
  std::vector<double> of_engine, served, first_of_engine, first_served;
  {
    std::list<Client> clients;
    for (int i = 0; i < rows; ++i) clients.emplace_back(server.port());
    for (int round = 0; round <= rounds; ++round) {
      const double total = static_cast<double>(rows) * tokens;
      const double a = total / engine_seconds(server.engine(), rows, tokens),
                   b = total / served_seconds(clients, tokens);
      if (round == 0) continue;  // warms up
      of_engine.push_back(a);
      served.push_back(b);
    }
    for (int i = 0; i < kFirstTokens; ++i) {
      first_of_engine.push_back(engine_first_token(server.engine()) * 1e3);
      first_served.push_back(served_first_token(clients.front()) * 1e3);
    }
  }
  report["engine_tokens_per_second"] = of_engine;
  report["served_tokens_per_second"] = served;
  report["cost_percent"] = 100 * (1 - median(served) / median(of_engine));
  report["engine_first_token_ms"] = median(first_of_engine);
  report["served_first_token_ms"] = median(first_served);
  std::cout << report.dump(1) << "\n";
  server.end();
  network.join();
  return 0;
}

}  // namespace
}  // namespace heddle::serve

int main(int argc, char** argv) {
  try {
    return heddle::serve::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
