// Any bytes as what a client sends, in pieces of any size: each request of them is refused, or goes
// as far as it may without an engine: head, who may ask, the route, the body of that route.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include <boost/asio/buffer.hpp>
#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/lora_scales.h"
#include "api/lorax.h"
#include "api/openai_request.h"
#include "api/tokenize.h"
#include "http/head_scan.h"
#include "http/request_parser.h"
#include "messages/request.h"
#include "responses/request.h"
#include "routes/access.h"
#include "routes/route.h"

namespace heddle::serve {
namespace {

constexpr uint64_t kBodyBytes = 4 << 10;
constexpr BodyLimit kBody{kBodyBytes, "--max-body"};
constexpr char kApiKey[] = "api", kAdminKey[] = "admin";

void require(bool is_true) {
  if (!is_true) __builtin_trap();
}

std::string file_of(const char* key) {
  char path[] = "/tmp/heddle_http_fuzz_XXXXXX";
  const int file = mkstemp(path);
  require(file >= 0);
  std::ofstream(path) << key << "\n";
  return path;
}

Access make_access() {
  app::ServeOptions options;
  options.api_key_file = file_of(kApiKey);
  options.admin_key_file = file_of(kAdminKey);
  options.allowed_hosts = {"a.example"};
  options.cors_origins = {"http://b.example"};
  Access access(options);
  for (const std::string& path : {options.api_key_file, options.admin_key_file}) {
    require(std::remove(path.c_str()) == 0);
  }
  return access;
}

/// What goes back is JSON, and has a status of an error.
void check_refusal(const HttpResponse& response) {
  require(response.status >= 400 && response.status < 600);
  require(nlohmann::json::accept(response.body));
}

void read_body(const HttpRequest& request, Route route) {
  app::ServeOptions options;
  options.ignore_unknown_fields = request.body.size() % 2 == 0;
  try {
    switch (route) {
      case Route::kChat: (void)read_chat(request.body, options); break;
      case Route::kCompletion: (void)read_completion(request.body, options); break;
      case Route::kLorax: (void)read_lorax(request.body, options); break;
      case Route::kTokenize: (void)read_tokenize(request.body, options); break;
      case Route::kDetokenize: (void)read_detokenize(request.body, options); break;
      case Route::kResponses: {
        ResponseStore store(1, 1 << 20);
        (void)read_responses(request.body, options, store, {});
        break;
      }
      case Route::kMessages: (void)read_messages_request(request.body, options); break;
      case Route::kCountTokens: (void)read_count_request(request.body, options); break;
      case Route::kSetScales: (void)read_lora_scales(request.body); break;
      default: break;
    }
  } catch (const ApiError& error) {
    check_refusal(is_lorax_route(request) ? lorax_error(error) : error_for(request.path, error));
  } catch (const Error& error) {
    check_refusal(openai_error(bad_request(error.what())));
  }
}

/// A request whose head was let pass came with what that needs.
void check_passed(const HttpRequest& head) {
  const std::string_view key = head.header("Authorization");
  if (is_admin_route(head)) require(key == std::string("Bearer ") + kAdminKey);
  if (head.method != "GET") {
    require(key == std::string("Bearer ") + kAdminKey || key == std::string("Bearer ") + kApiKey ||
            head.header("x-api-key") == kApiKey);
  }
  require(label_of(head) != nullptr);
}

/// What a client sends, some bytes at a time.
class Client {
 public:
  Client(std::string_view bytes, size_t piece) : bytes_(bytes), piece_(piece) {}

  /// Reads on until the head, or the whole request, is there; false where it is none.
  bool read(RequestParser& parser, bool only_head) {
    parser.eager(!only_head);
    boost::system::error_code error;
    const auto is_there = [&] { return only_head ? parser.is_header_done() : parser.is_done(); };
    while (!error && !is_there()) {
      const boost::asio::const_buffer come(bytes_.data() + num_taken_, num_come_ - num_taken_);
      const size_t count = parser.put(come, error);
      num_taken_ += count;
      if (error == boost::beast::http::error::need_more) error = {};
      if (error || count > 0) continue;
      if (num_come_ == bytes_.size()) {
        parser.put_eof(error);
        break;
      }
      num_come_ = std::min(num_come_ + piece_, bytes_.size());
    }
    if (!error) return is_there();
    if (const auto response = refusal_of(error, kBody, {})) check_refusal(*response);
    return false;
  }
  /// What of the bytes was not read yet.
  [[nodiscard]] std::string_view rest() const { return bytes_.substr(num_taken_); }
  [[nodiscard]] size_t piece() const { return piece_; }
  [[nodiscard]] bool is_at_end() const { return num_taken_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t piece_, num_come_ = 0, num_taken_ = 0;
};

/// Whether the bytes begin with a head that the scan lets pass, however they come.
bool is_head(std::string_view bytes, size_t piece) {
  HeadScan scan;
  HeadScan::State state = HeadScan::State::kOpen;
  for (size_t end = 0; state == HeadScan::State::kOpen && end < bytes.size();) {
    end = std::min(end + piece, bytes.size());
    state = scan.scan(bytes.substr(0, end));
  }
  if (state == HeadScan::State::kWrong) require(scan.status() >= 400 && !scan.why().empty());
  return state == HeadScan::State::kWhole;
}

/// Returns whether another request may follow.
bool serve_one(Client& client, const Access& access) {
  if (!is_head(client.rest(), client.piece())) return false;
  RequestParser parser;
  set_limits(parser);
  if (!client.read(parser, true) || !limit_body(parser, kBody)) return false;
  HttpRequest request = head_of(parser);
  (void)access.cors_headers(request);
  if (const auto response = access.check(request)) {
    if (response->status != 204) check_refusal(*response);
    return parser.is_done();
  }
  check_passed(request);
  if (!client.read(parser, false)) return false;
  request.body = std::move(parser.get().body());
  require(request.body.size() <= kBodyBytes);
  read_body(request, route_of(request).route);
  return parser.get().keep_alive();
}

}  // namespace
}  // namespace heddle::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::serve;
  static const Access access = make_access();
  if (size == 0) return 0;
  Client client({reinterpret_cast<const char*>(data) + 1, size - 1}, size_t{data[0]} + 1);
  while (!client.is_at_end() && serve_one(client, access)) {
  }
  return 0;
}
