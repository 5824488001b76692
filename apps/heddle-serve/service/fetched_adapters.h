#pragma once

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "api/generation.h"
#include "fetch/adapter_cache.h"
#include "options.h"
#include "service/fetch_counts.h"

namespace heddle::serve {

/// An adapter of a source.
struct RemoteAdapter {
  std::string source{};    // "hub" or "s3"
  std::string id{};        // its name there
  std::string revision{};  // a branch, a tag or a commit; empty: the usual one
  std::string token{};     // of the request; empty: that of the environment
};

/// A name by which requests get an adapter of the cache.
struct FetchedName {
  std::string name{};      // "acme/sql", "acme/sql@v2", "s3://bucket/folder"
  std::string known_as{};  // to the engine
};

/// The adapters that requests may have fetched from a hub or from S3, and their downloads, which
/// run in threads of their own: no step and no other request waits for one. Of the thread of the
/// network.
class FetchedAdapters {
 public:
  /// Throws Error where an option is wrong, and FetchError where the cache is in use.
  FetchedAdapters(boost::asio::io_context& network, const app::FetchOptions& options);
  FetchedAdapters(const FetchedAdapters&) = delete;
  FetchedAdapters& operator=(const FetchedAdapters&) = delete;
  ~FetchedAdapters();

  /// The adapter that a request means by a name, its source and its token; none where it is one of
  /// this machine: no source is named, and the name is no name of a source that may be asked.
  /// Throws ApiError where a field asks for what the options do not allow.
  [[nodiscard]] std::optional<RemoteAdapter> remote(const std::string& name,
                                                    const SourceChoice& choice) const;
  /// The adapter in the cache, fetched where it is not there or there is a newer version. Throws
  /// ApiError, also where it takes longer than --download-wait: then the download goes on.
  boost::asio::awaitable<fetch::AdapterLease> get(RemoteAdapter adapter);

  [[nodiscard]] std::string path_of(const fetch::CachedAdapter& adapter) const {
    return cache_.folder() + "/" + adapter.name;
  }
  [[nodiscard]] FetchCounts counts() const;
  /// The names that were asked for and what they stand for now, in alphabetical order; without
  /// those of requests that brought a token, which are for them alone.
  [[nodiscard]] std::vector<FetchedName> names() const;

 private:
  struct Download;
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::string allowed_name(const RemoteAdapter& adapter) const;
  [[nodiscard]] fetch::AdapterLease fresh(const RemoteAdapter& adapter, const std::string& key);
  std::shared_ptr<Download> download(const RemoteAdapter& adapter, const std::string& key);
  fetch::AdapterLease fetch_now(const RemoteAdapter& adapter, const std::string& key);
  void end(const std::string& key, Download& download);

  boost::asio::io_context& network_;
  app::FetchOptions options_;
  fetch::AdapterCache cache_;
  std::stop_source stop_;
  std::map<std::string, std::shared_ptr<Download>> in_flight_;  // shared: by those that wait
  std::map<std::string, Clock::time_point> checked_;            // when a source was last asked
  FetchCounts counts_{};
  boost::asio::thread_pool threads_;  // last: it ends first
};

}  // namespace heddle::serve
