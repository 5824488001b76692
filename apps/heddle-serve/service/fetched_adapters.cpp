#include "service/fetched_adapters.h"

#include <algorithm>
#include <chrono>
#include <fnmatch.h>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "fetch/content_hash.h"
#include "fetch/download.h"
#include "fetch/fetch_error.h"
#include "fetch/hub.h"
#include "fetch/s3.h"
#include "fetch/web_get.h"
#include "files/percent.h"
#include "memory.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

namespace net = boost::asio;

constexpr size_t kThreads = 4;
constexpr size_t kMostInFlight = 64;
constexpr size_t kMostChecked = 100'000;
constexpr size_t kCommitDigits = 40;

ApiError wrong(const std::string& message, const char* field) {
  return bad_request(std::string(field) + ": " + message, field);
}

/// How clients learn why nothing was fetched.
ApiError api_error(const fetch::FetchError& error) {
  using fetch::FetchFault;
  switch (error.fault()) {
    case FetchFault::kRefused: return bad_request(error.what(), "model");
    case FetchFault::kNotFound: return {404, "NotFoundError", error.what(), "model"};
    case FetchFault::kForbidden: return {403, "PermissionDeniedError", error.what(), "model"};
    case FetchFault::kUnavailable: return unavailable(error.what());
    case FetchFault::kWrong: return {502, "BadGatewayError", error.what(), "model"};
    case FetchFault::kFull: return {507, "InsufficientStorage", error.what(), "model"};
  }
  return unavailable(error.what());
}

/// Adapters that a request's own token has opened are for requests with this token alone.
std::string owner_of(const RemoteAdapter& adapter) {
  if (adapter.token.empty()) return {};
  fetch::ContentHasher hasher({.kind = fetch::ContentHash::Kind::kSha256}, 0);
  hasher.add(adapter.token);
  return "+" + hasher.hex().substr(0, 32);
}

/// Of the folder of one version; no two adapters, versions and owners share one.
std::string folder_name(const RemoteAdapter& adapter, const std::string& version) {
  return adapter.source + ":" + files::percent_encoded(adapter.id) + "@" + version +
         owner_of(adapter);
}

std::string key_of(const RemoteAdapter& adapter) {
  return folder_name(adapter, files::percent_encoded(adapter.revision));
}

/// The name that the key stands for; none of a request with a token of its own.
std::optional<std::string> name_of(const std::string& key) {
  const size_t colon = key.find(':'), at = key.find('@');
  const bool has_owner = key.find('+') != key.npos;
  if (colon == key.npos || at == key.npos || at < colon || has_owner) return std::nullopt;
  const std::string id = files::percent_decoded(key.substr(colon + 1, at - colon - 1));
  const std::string revision = files::percent_decoded(key.substr(at + 1));
  if (key.starts_with("s3:")) return "s3://" + id;
  return revision.empty() ? id : id + "@" + revision;
}

std::unique_ptr<fetch::Source> source_of(const RemoteAdapter& adapter) {
  if (adapter.source == "s3") return std::make_unique<fetch::S3>(fetch::s3_of_environment());
  fetch::HubAccess access = fetch::hub_of_environment();
  if (!adapter.token.empty()) access.token = adapter.token;
  return std::make_unique<fetch::Hub>(std::move(access));
}

/// Whether it is the same for ever.
bool is_commit(const std::string& revision) {
  return revision.size() == kCommitDigits &&
         revision.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// "acme/sql", "acme/sql@v2", "s3://bucket/folder"; where the source is said, also "bucket/folder".
RemoteAdapter named(const std::string& name, const SourceChoice& choice) {
  constexpr std::string_view kS3 = "s3://";
  const bool has_scheme = name.starts_with(kS3);
  if (choice.source == "s3" || (choice.source.empty() && has_scheme)) {
    return {
        .source = "s3", .id = has_scheme ? name.substr(kS3.size()) : name, .token = choice.token};
  }
  const size_t at = name.find('@');
  return {.source = "hub",
          .id = name.substr(0, at),
          .revision = at == name.npos ? "" : name.substr(at + 1),
          .token = choice.token};
}

bool is_source(const std::vector<std::string>& sources, const std::string& source) {
  return std::ranges::find(sources, source) != sources.end();
}

}  // namespace

/// One that is in flight, and those that wait for it.
struct FetchedAdapters::Download {
  std::set<net::steady_timer*> waiting{};
  fetch::AdapterLease adapter{};
  std::exception_ptr failure{};
  bool has_ended = false;

  /// A wait in the list, as long as it lasts.
  struct Wait {
    Wait(Download& of, net::steady_timer& timer) : download(of), timer(timer) {
      download.waiting.insert(&timer);
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() { download.waiting.erase(&timer); }
    Download& download;
    net::steady_timer& timer;
  };
};

FetchedAdapters::FetchedAdapters(net::io_context& network, const app::FetchOptions& options)
    : network_(network),
      options_(options),
      cache_(options.cache, options.cache_bytes),
      threads_(kThreads) {
  fetch::start_web();
  if (is_source(options.sources, "hub")) static_cast<void>(fetch::hub_of_environment());
  if (is_source(options.sources, "s3")) static_cast<void>(fetch::s3_of_environment());
}

FetchedAdapters::~FetchedAdapters() {
  stop_.request_stop();
  threads_.join();
}

std::optional<RemoteAdapter> FetchedAdapters::remote(const std::string& name,
                                                     const SourceChoice& choice) const {
  const RemoteAdapter adapter = named(name, choice);
  const bool is_enabled = is_source(options_.sources, adapter.source);
  if (choice.source.empty()) {
    const bool may_be =
        is_enabled && (adapter.source == "s3" || std::ranges::count(adapter.id, '/') == 1);
    if (!may_be || allowed_name(adapter).empty()) return std::nullopt;
  }
  if (!is_enabled) {
    throw wrong(app::quote(adapter.source) + " is no source of this server (--adapter-source)",
                "adapter_source");
  }
  if (allowed_name(adapter).empty()) {
    throw ApiError(403, "PermissionDeniedError",
                   app::quote(name) + " may not be fetched by this server (--adapter-source-allow)",
                   "model");
  }
  if (!adapter.token.empty() && adapter.source != "hub") {
    throw wrong("is for the hub; S3 is opened by the keys of the server", "api_token");
  }
  if (!adapter.token.empty() && !options_.takes_request_tokens) {
    throw wrong("this server takes no tokens of requests (--allow-request-tokens)", "api_token");
  }
  if (!adapter.token.empty() && !fetch::is_token(adapter.token)) {
    throw wrong("is no token: it has a space or another character that no token has", "api_token");
  }
  return adapter;
}

/// The name that a pattern of --adapter-source-allow matches; empty: none does.
std::string FetchedAdapters::allowed_name(const RemoteAdapter& adapter) const {
  const std::string name = adapter.source == "s3" ? "s3://" + adapter.id : adapter.id;
  const auto matches = [&name](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  return std::ranges::any_of(options_.allowed, matches) ? name : std::string();
}

net::awaitable<fetch::AdapterLease> FetchedAdapters::get(RemoteAdapter adapter) {
  const std::string key = key_of(adapter);
  if (fetch::AdapterLease there = fresh(adapter, key)) co_return there;
  const std::shared_ptr<Download> running = download(adapter, key);
  if (!running->has_ended) {
    net::steady_timer timer(network_);
    timer.expires_after(std::chrono::milliseconds(static_cast<int64_t>(options_.wait * 1000)));
    const Download::Wait wait(*running, timer);
    boost::system::error_code woken;
    co_await timer.async_wait(net::redirect_error(net::use_awaitable, woken));
  }
  if (!running->has_ended) {
    if (fetch::AdapterLease before = cache_.noted(key)) co_return before;
    throw unavailable(app::quote(adapter.id) + " is still being fetched; ask again later");
  }
  if (running->adapter) co_return running->adapter;
  try {
    std::rethrow_exception(running->failure);
  } catch (const fetch::FetchError& error) {
    throw api_error(error);
  } catch (const std::system_error&) {  // its text names folders
    throw ApiError(507, "InsufficientStorage", "the server cannot write to its cache of adapters");
  }
}

/// The adapter where its source need not be asked; else null.
fetch::AdapterLease FetchedAdapters::fresh(const RemoteAdapter& adapter, const std::string& key) {
  const auto checked = checked_.find(key);
  const std::chrono::duration<double> age =
      checked == checked_.end() ? Clock::duration::max() : Clock::now() - checked->second;
  if (!is_commit(adapter.revision) && age.count() >= options_.refresh) return nullptr;
  return cache_.noted(key);
}

std::shared_ptr<FetchedAdapters::Download> FetchedAdapters::download(const RemoteAdapter& adapter,
                                                                     const std::string& key) {
  if (const auto running = in_flight_.find(key); running != in_flight_.end()) {
    return running->second;
  }
  if (in_flight_.size() >= kMostInFlight) {
    throw unavailable("too many adapters are being fetched; ask again later");
  }
  const auto started = std::make_shared<Download>();
  in_flight_.emplace(key, started);
  net::post(threads_, [this, adapter, key, started] {
    fetch::AdapterLease fetched;
    std::exception_ptr failure;
    try {
      fetched = fetch_now(adapter, key);
    } catch (...) {
      failure = std::current_exception();
    }
    retry_for_memory([&] {
      net::post(network_, [this, key, started, fetched, failure] {
        started->adapter = fetched;
        started->failure = failure;
        end(key, *started);
      });
    });
  });
  return started;
}

/// In a thread of downloads.
fetch::AdapterLease FetchedAdapters::fetch_now(const RemoteAdapter& adapter,
                                               const std::string& key) {
  const auto begin = Clock::now();
  try {
    const std::unique_ptr<fetch::Source> source = source_of(adapter);
    const fetch::RemoteListing listing =
        fetch::list_files(*source, adapter.id, adapter.revision, stop_.get_token());
    const std::string name = folder_name(adapter, listing.version);
    fetch::AdapterLease fetched = cache_.find(name);
    if (fetched == nullptr) {
      fetched = cache_.fetch(*source, listing, name, stop_.get_token());
      const std::chrono::duration<double> seconds = Clock::now() - begin;
      spdlog::info("fetched {} from {} at {}: {:.1f} MB in {:.1f} s", app::quote(adapter.id),
                   adapter.source, listing.version, 1e-6 * static_cast<double>(fetched->num_bytes),
                   seconds.count());
    }
    cache_.note(key, fetched);
    return fetched;
  } catch (const fetch::FetchError& error) {
    fetch::AdapterLease before;
    if (error.fault() == fetch::FetchFault::kUnavailable) before = cache_.noted(key);
    spdlog::warn("warning: {} was not fetched: {}{}", app::quote(adapter.id), error.what(),
                 before == nullptr ? "" : "; the version in the cache serves on");
    if (before == nullptr) throw;
    return before;
  } catch (const std::system_error& error) {
    spdlog::error("{} was not fetched: {}", app::quote(adapter.id), error.what());
    throw;
  }
}

void FetchedAdapters::end(const std::string& key, Download& download) {
  download.has_ended = true;
  ++(download.adapter ? counts_.num_fetched : counts_.num_failed);
  if (checked_.size() >= kMostChecked) checked_.clear();
  if (download.adapter) checked_[key] = Clock::now();
  for (net::steady_timer* const timer : download.waiting) timer->cancel();
  in_flight_.erase(key);
}

std::vector<FetchedName> FetchedAdapters::names() const {
  std::vector<FetchedName> names;
  for (const auto& [key, known_as] : cache_.all_noted()) {
    if (std::optional<std::string> name = name_of(key)) {
      names.push_back({*std::move(name), known_as});
    }
  }
  std::ranges::sort(names, {}, &FetchedName::name);
  return names;
}

FetchCounts FetchedAdapters::counts() const {
  FetchCounts counts = counts_;
  counts.num_in_flight = std::ssize(in_flight_);
  counts.cache_bytes = cache_.num_bytes();
  return counts;
}

}  // namespace heddle::serve
