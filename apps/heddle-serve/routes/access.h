#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "http/message.h"
#include "options.h"
#include "routes/keys.h"

namespace heddle::serve {

/// Who may use which route: checked before a request's body is read.
class Access {
 public:
  /// Reads the files of keys. Throws Error where one has none.
  explicit Access(const app::ServeOptions& options);

  /// The refusal of a request with this head; nothing: it may go on. Answers preflights of CORS.
  [[nodiscard]] std::optional<HttpResponse> check(const HttpRequest& head) const;
  /// The headers of CORS for a response to it.
  [[nodiscard]] Headers cors_headers(const HttpRequest& head) const;
  /// Whether the admin routes exist: those that load and unload adapters and reset the cache.
  [[nodiscard]] bool has_admin() const { return !admin_keys_.is_empty(); }
  /// Whose key the request brings, one of --api-key-file or else an admin's; null: none's.
  [[nodiscard]] const KeyHolder* holder_of(const HttpRequest& head) const;
  /// The files of keys.
  [[nodiscard]] const KeyFile& api_keys() const { return api_keys_; }
  [[nodiscard]] const KeyFile& admin_keys() const { return admin_keys_; }
  /// What stands for the key that the request brings, if it does: equal keys have one.
  [[nodiscard]] static std::string owner_of(const HttpRequest& head);

 private:
  [[nodiscard]] std::optional<ApiError> refusal(const HttpRequest& head) const;
  [[nodiscard]] bool may_be_host(std::string_view host) const;
  [[nodiscard]] bool is_cors_origin(std::string_view origin) const;

  std::vector<std::string> hosts_, origins_;
  KeyFile api_keys_, admin_keys_;
};

}  // namespace heddle::serve
