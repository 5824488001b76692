#include "fetch/download.h"

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "fetch/fetch_error.h"
#include "fetch/partial_file.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
constexpr int kMostFailures = 4;  // one after another without a byte between them
constexpr std::chrono::milliseconds kFirstPause{250};

/// Waits longer from one failure to the next; ends with a stop.
void pause(int failures, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, kFirstPause * (1 << failures), [] { return false; });
}

/// Calls `body` until it ends without FetchFault::kUnavailable; it says whether bytes have come.
template <class Body>
void with_retries(const std::stop_token& stop, const Body& body) {
  for (int failures = 0;; pause(failures, stop)) {
    bool has_come = false;
    try {
      return body(has_come);
    } catch (const FetchError& error) {
      failures = has_come ? 0 : failures + 1;
      const bool may_come = error.fault() == FetchFault::kUnavailable && !stop.stop_requested();
      if (!may_come || failures >= kMostFailures) throw;
    }
  }
}

bool is_there(const std::string& place, int64_t size) {
  std::error_code error;
  return fs::symlink_status(place, error).type() == fs::file_type::regular &&
         static_cast<int64_t>(fs::file_size(place, error)) == size;
}

}  // namespace

RemoteListing list_files(const Source& source, const std::string& id, const std::string& revision,
                         const std::stop_token& stop) {
  RemoteListing listing;
  with_retries(stop, [&](bool&) { listing = source.list(id, revision, stop); });
  return listing;
}

void download(const Source& source, const RemoteListing& listing, const RemoteFile& file,
              const std::string& partial, const std::string& place, const std::stop_token& stop,
              const OnProgress& on_progress) {
  if (is_there(place, file.size)) return;
  with_retries(stop, [&](bool& has_come) {
    PartialFile part(partial, file, stop);
    if (is_there(place, file.size)) return part.remove();  // another process was first
    const auto add = [&](int64_t at, std::string_view bytes) {
      part.add(at, bytes);
      has_come |= !bytes.empty();
      if (on_progress) on_progress(part.size());
    };
    if (part.size() < file.size || file.size == 0) {
      try {
        source.read(listing, file, part.size(), add, stop);
      } catch (const FetchError& error) {
        if (error.fault() == FetchFault::kWrong) part.remove();
        throw;
      }
    }
    part.move_to(place);
  });
}

}  // namespace heddle::fetch
