#include "fetch/web_get.h"

#include <algorithm>
#include <cctype>
#include <curl/curl.h>
#include <exception>
#include <memory>
#include <mutex>
#include <unistd.h>

#include "fetch/fetch_error.h"
#include "fetch/web_address.h"
#include "files/printable.h"

namespace heddle::fetch {
namespace {

constexpr int kMostRedirects = 5;
constexpr long kConnectSeconds = 10, kSilentSeconds = 30;
constexpr size_t kMostHeaders = 256;

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

/// A part of a URL, empty where it has none.
std::string part_of(const std::string& url, CURLUPart part) {
  const std::unique_ptr<CURLU, FreeUrl> parsed(curl_url());
  char* text = nullptr;
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) {
    return {};
  }
  const std::unique_ptr<char, void (*)(void*)> owned(text, curl_free);
  return text;
}

/// Scheme, host and port: what a token is for.
std::string origin_of(const std::string& url) {
  std::string host = part_of(url, CURLUPART_HOST);
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return std::tolower(c); });
  return part_of(url, CURLUPART_SCHEME) + "://" + host + ":" + part_of(url, CURLUPART_PORT);
}

/// The URL without what may be secret in it.
std::string shown(const std::string& url) { return files::printable(url.substr(0, url.find('?'))); }

/// A request to a server and to those that it redirects to.
class WebTransfer {
 public:
  WebTransfer(const WebRequest& request, const OnBody& on_body, const std::stop_token& stop)
      : request_(request), on_body_(on_body), stop_(stop), curl_(curl_easy_init()) {
    if (curl_ == nullptr) throw std::bad_alloc();
  }

  WebAnswer run() {
    std::string url = request_.url;
    for (int i = 0; i <= kMostRedirects; ++i) {
      const std::string next = ask(url);
      if (next.empty()) return std::move(answer_);
      check_redirect(url, next);
      if (i == 0) first_headers_ = answer_.headers;
      url = next;
    }
    fail(FetchFault::kUnavailable, shown(request_.url), ": more than ", kMostRedirects,
         " redirects");
  }

 private:
  struct FreeCurl {
    void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  using List = std::unique_ptr<curl_slist, FreeList>;

  template <class Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(curl_.get(), option, value);
    if (code != CURLE_OK) fail(FetchFault::kUnavailable, "libcurl: ", curl_easy_strerror(code));
  }

  void add_header(List& list, const std::string& header) {
    curl_slist* const longer = curl_slist_append(list.get(), header.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    static_cast<void>(list.release());
    list.reset(longer);
  }

  /// Sends the request to this URL. Where it redirects to; empty: it has answered.
  std::string ask(const std::string& url) {
    answer_ = {.first_headers = first_headers_};
    is_own_server_ = origin_of(url) == origin_of(request_.url);
    List headers;
    for (const std::string& header : request_.headers) add_header(headers, header);
    if (is_own_server_ && !request_.token.empty()) {
      add_header(headers, "Authorization: Bearer " + request_.token);
    }
    if (is_own_server_ && !request_.aws.id.empty()) add_aws_headers(headers);
    set_options(url, headers.get());
    if (is_own_server_ && !request_.aws.id.empty()) sign();
    const CURLcode code = curl_easy_perform(curl_.get());
    if (failure_) std::rethrow_exception(failure_);
    if (stop_.stop_requested()) fail(FetchFault::kUnavailable, shown(url), ": was stopped");
    if (is_refused_address_) {
      fail(FetchFault::kRefused, shown(request_.url), ": is redirected to ", shown(url),
           ", which is an address of a private network");
    }
    const std::string next = redirect();
    if (!next.empty()) return next;
    if (code != CURLE_OK) {
      const std::string detail = error_[0] != '\0' ? error_ : curl_easy_strerror(code);
      fail(FetchFault::kUnavailable, shown(url), ": ", files::printable(detail));
    }
    return {};
  }

  void set_options(const std::string& url, const curl_slist* headers) {
    curl_easy_reset(curl_.get());  // keeps the connection
    error_[0] = '\0';
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_NOBODY, request_.head_only ? 1L : 0L);
    set(CURLOPT_USERAGENT, "heddle");
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
    set(CURLOPT_HEADERFUNCTION, &WebTransfer::take_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &WebTransfer::take_body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_XFERINFOFUNCTION, &WebTransfer::may_go_on);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_OPENSOCKETFUNCTION, &WebTransfer::open_socket);
    set(CURLOPT_OPENSOCKETDATA, this);
  }

  /// The hash of a body without bytes, and the token of temporary keys: both are signed, too.
  void add_aws_headers(List& headers) {
    add_header(headers,
               "x-amz-content-sha256: "
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    if (request_.aws.session.empty()) return;
    add_header(headers, "x-amz-security-token: " + request_.aws.session);
  }

  void sign() {
    set(CURLOPT_AWS_SIGV4, ("aws:amz:" + request_.aws.region + ":s3").c_str());
    set(CURLOPT_USERNAME, request_.aws.id.c_str());
    set(CURLOPT_PASSWORD, request_.aws.secret.c_str());
  }

  std::string redirect() const {
    const bool redirects = answer_.status >= 301 && answer_.status <= 308 && answer_.status != 304;
    char* next = nullptr;
    if (redirects) curl_easy_getinfo(curl_.get(), CURLINFO_REDIRECT_URL, &next);
    return next == nullptr ? "" : next;
  }

  void check_redirect(const std::string& from, const std::string& to) const {
    const std::string scheme = part_of(to, CURLUPART_SCHEME);
    const bool is_web = scheme == "https" || (scheme == "http" && !from.starts_with("https:"));
    if (!is_web) {
      fail(FetchFault::kRefused, shown(from), ": is redirected to ", shown(to),
           ", which is not fetched: only https, and http from http");
    }
  }

  static size_t take_header(const char* data, size_t, size_t size, void* self_data) {
    auto& self = *static_cast<WebTransfer*>(self_data);
    return self.guarded([&] { self.add_line(std::string_view(data, size)); }) ? size : 0;
  }

  void add_line(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // also after an interim answer
      curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &answer_.status);
      answer_.headers.clear();
      return;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos || answer_.headers.size() >= kMostHeaders) return;
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    const size_t end = line.find_last_not_of(" \t\r\n");
    answer_.headers[name] =
        begin == line.npos || end < begin ? "" : std::string(line.substr(begin, end + 1 - begin));
  }

  static size_t take_body(const char* data, size_t, size_t size, void* self_data) {
    auto& self = *static_cast<WebTransfer*>(self_data);
    // The body of a redirect ends the exchange; that of an error is not read.
    if (self.answer_.status >= 300) return self.redirect().empty() ? size : 0;
    return self.guarded([&] { self.on_body_(self.answer_, {data, size}); }) ? size : 0;
  }

  static int may_go_on(void* self_data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<WebTransfer*>(self_data)->stop_.stop_requested() ? 1 : 0;
  }

  static curl_socket_t open_socket(void* self_data, curlsocktype, curl_sockaddr* address) {
    auto& self = *static_cast<WebTransfer*>(self_data);
    const bool is_private = is_private_address(address->addr);
    if (self.is_own_server_) {
      self.may_be_private_ |= is_private;
    } else if (is_private && !self.may_be_private_) {
      self.is_refused_address_ = true;
      return CURL_SOCKET_BAD;
    }
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  template <class Body>
  bool guarded(const Body& body) noexcept {
    try {
      body();
      return true;
    } catch (...) {
      failure_ = std::current_exception();
      return false;
    }
  }

  const WebRequest& request_;
  const OnBody& on_body_;
  const std::stop_token& stop_;
  std::unique_ptr<CURL, FreeCurl> curl_;
  WebAnswer answer_{};
  std::map<std::string, std::string> first_headers_{};
  std::exception_ptr failure_{};
  char error_[CURL_ERROR_SIZE] = {};
  bool is_own_server_ = true;
  bool may_be_private_ = false;  // the server asked is of a private network, and so may others be
  bool is_refused_address_ = false;
};

}  // namespace

std::string WebAnswer::header(const std::string& name) const {
  const auto place = headers.find(name);
  return place == headers.end() ? "" : place->second;
}

void start_web() {
  static std::once_flag initialised;
  std::call_once(initialised, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

WebAnswer web_get(const WebRequest& request, const OnBody& on_body, const std::stop_token& stop) {
  start_web();
  const std::string scheme = part_of(request.url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") {
    fail(FetchFault::kRefused, shown(request.url), ": is no URL of http or https");
  }
  return WebTransfer(request, on_body, stop).run();
}

}  // namespace heddle::fetch
