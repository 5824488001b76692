#pragma once

#include <string>
#include <utility>

#include "fetch/source.h"
#include "fetch/web_get.h"

namespace heddle::fetch {

/// Amazon S3, or a server that answers as it does.
struct S3Access {
  std::string endpoint{};  // "https://minio.example:9000"; empty: Amazon's of the region
  AwsKeys keys{};
};

/// As AWS's own tools read it: $AWS_ENDPOINT_URL_S3 or $AWS_ENDPOINT_URL, $AWS_REGION or
/// $AWS_DEFAULT_REGION, $AWS_ACCESS_KEY_ID, $AWS_SECRET_ACCESS_KEY and $AWS_SESSION_TOKEN. Without
/// keys requests are not signed, for what is public. Throws FetchError where one of them is none.
[[nodiscard]] S3Access s3_of_environment();

/// Adapters as objects: BUCKET/PREFIX is the folder that has PREFIX/adapter_config.json. The files
/// that heddle reads are asked for by name, so no right to list is needed; templates in folders are
/// not found. The hash of an object is its SHA-256 where it was uploaded with one, else its ETag,
/// an MD5 or, of one uploaded in parts of one size, an MD5 of MD5s.
class S3 final : public Source {
 public:
  explicit S3(S3Access access) : access_(std::move(access)) {}

  /// `revision` must be empty: objects have none. The version is a hash of those of the files.
  [[nodiscard]] RemoteListing list(const std::string& id, const std::string& revision,
                                   const std::stop_token& stop) const override;
  void read(const RemoteListing& listing, const RemoteFile& file, int64_t from,
            const OnBytes& on_bytes, const std::stop_token& stop) const override;

 private:
  [[nodiscard]] WebRequest request_for(const std::string& id, const std::string& name) const;

  S3Access access_;
};

}  // namespace heddle::fetch
