#pragma once

#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::fetch {

/// What requests to S3 are signed with (AWS Signature Version 4); without an id they are not.
struct AwsKeys {
  std::string id{}, secret{};
  std::string session{};  // token of temporary keys; empty: none
  std::string region{};   // "us-east-1"
};

struct WebRequest {
  std::string url;  // http or https
  /// Bearer token for the server of `url`: no other one ever gets it.
  std::string token{};
  std::vector<std::string> headers{};  // "Name: value"
  bool head_only = false;              // HEAD in place of GET
  AwsKeys aws{};                       // for the server of `url` alone, as the token
};

struct WebAnswer {
  long status = 0;
  std::map<std::string, std::string> headers{};        // by names in lower case
  std::map<std::string, std::string> first_headers{};  // of the server of `url`, if it redirected

  /// Empty: there is none.
  [[nodiscard]] std::string header(const std::string& name) const;
};

/// Takes the next bytes of a body, of an answer whose status and headers are known.
using OnBody = std::function<void(const WebAnswer&, std::string_view)>;

/// Throws FetchError where heddle was built without what fetches.
void start_web();

/// Sends a request and hands on the body of an answer of 200 or 206. At most five redirects are
/// followed: to http and https alone, never from https to http, and from a server on the internet
/// never to one of a private network. Throws FetchError where no whole answer comes, where nothing
/// comes for 30 s, and when a stop is requested; and what `on_body` throws. A status such as 404 is
/// an answer. For any thread.
WebAnswer web_get(const WebRequest& request, const OnBody& on_body, const std::stop_token& stop);

}  // namespace heddle::fetch
