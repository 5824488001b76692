#pragma once

#include <string>

#include "fetch/source.h"

namespace heddle::fetch {

/// The Hugging Face hub, or a server that answers as it does.
struct HubAccess {
  std::string endpoint{};  // "https://huggingface.co"
  std::string token{};     // empty: none
};

/// $HF_ENDPOINT, else huggingface.co, and the token in $HF_TOKEN. Throws FetchError where one of
/// them is none, or $HF_HUB_OFFLINE forbids it all.
[[nodiscard]] HubAccess hub_of_environment();
/// The same with the token that `hf auth login` has stored, where $HF_TOKEN is not set.
[[nodiscard]] HubAccess hub_of_user();
/// Whether the text may be a token: printable ASCII without spaces, not too long.
[[nodiscard]] bool is_token(const std::string& text);

class Hub final : public Source {
 public:
  explicit Hub(HubAccess access) : access_(std::move(access)) {}

  /// The commit that the revision (usually "main") is now, and its files with sizes and hashes.
  [[nodiscard]] RemoteListing list(const std::string& id, const std::string& revision,
                                   const std::stop_token& stop) const override;
  void read(const RemoteListing& listing, const RemoteFile& file, int64_t from,
            const OnBytes& on_bytes, const std::stop_token& stop) const override;

 private:
  HubAccess access_;
};

}  // namespace heddle::fetch
