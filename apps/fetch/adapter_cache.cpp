#include "fetch/adapter_cache.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fetch/download.h"
#include "fetch/fetch_error.h"
#include "fetch/partial_file.h"
#include "fetch/remote_files.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
constexpr const char* kKeys = "/.keys";  // of an adapter's folder: a key in each line

/// Bytes of the files in a folder and below, without following links.
int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    if (entry->symlink_status(gone).type() == fs::file_type::regular) {
      bytes += static_cast<int64_t>(entry->file_size(gone));
    }
  }
  return bytes;
}

std::vector<fs::path> folders_in(const std::string& path) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.symlink_status().type() == fs::file_type::directory) folders.push_back(entry.path());
  }
  return folders;
}

fs::file_time_type time_of(const fs::path& path) {
  std::error_code error;
  return fs::last_write_time(path, error);
}

/// Fetches what a listing has of an adapter into a folder.
void download_all(const Source& source, const RemoteListing& listing,
                  const std::vector<RemoteFile>& files, const std::string& root,
                  const std::string& name, const std::stop_token& stop) {
  for (const RemoteFile& file : files) {
    const fs::path inside = fs::path(name) / file.name;
    make_folders(root, inside.parent_path().string());
    const std::string place = root + "/" + inside.string();
    download(source, listing, file, place + ".part", place, stop);
  }
}

}  // namespace

AdapterCache::AdapterCache(std::string path, int64_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {
  for (const char* const below : {"adapters", "incoming"}) make_folders(path_, below);
  const std::string place = path_ + "/lock";
  lock_ = ::open(place.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (lock_ < 0) throw std::system_error(errno, std::generic_category(), place);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    fail(FetchFault::kRefused, path_, ": another program has this cache of adapters");
  }
  find_what_is_there();
}

AdapterCache::~AdapterCache() { ::close(lock_); }

void AdapterCache::find_what_is_there() {
  std::vector<fs::path> folders = folders_in(folder());
  std::ranges::sort(folders, {}, time_of);  // of their last use
  for (const fs::path& place : folders) {
    const std::string name = place.filename().string();
    const int64_t bytes = bytes_in(place);
    entries_[name] = {.adapter = std::make_shared<CachedAdapter>(CachedAdapter{name, bytes}),
                      .last_use = ++num_uses_};
    num_bytes_ += bytes;
    std::ifstream keys(place.string() + kKeys);
    for (std::string key; std::getline(keys, key);) keys_[key] = name;
  }
  for (const fs::path& place : folders_in(path_ + "/incoming")) {
    const int64_t bytes = bytes_in(place);
    left_[place.filename().string()] = bytes;
    num_bytes_ += bytes;
  }
  const std::lock_guard lock(mutex_);
  while (num_bytes_ > max_bytes_ && evict_one()) {
  }
}

AdapterLease AdapterCache::find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return find_locked(name);
}

AdapterLease AdapterCache::find_locked(const std::string& name) {
  const auto place = entries_.find(name);
  if (place == entries_.end()) return nullptr;
  place->second.last_use = ++num_uses_;
  std::error_code ignored;  // the time matters to a later program alone
  fs::last_write_time(folder() + "/" + name, fs::file_time_type::clock::now(), ignored);
  return place->second.adapter;
}

/// A name as long as a call fetches it; others for that name wait.
class AdapterCache::Turn {
 public:
  Turn(AdapterCache& cache, const std::string& name, const std::stop_token& stop)
      : cache_(cache), name_(name) {
    std::unique_lock lock(cache_.mutex_);
    const auto is_free = [this] { return !cache_.fetching_.contains(name_); };
    if (!cache_.turns_.wait(lock, stop, is_free)) {
      fail(FetchFault::kUnavailable, name, ": was stopped");
    }
    cache_.fetching_.insert(name_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const std::lock_guard lock(cache_.mutex_);
    cache_.fetching_.erase(name_);
    cache_.turns_.notify_all();
  }

 private:
  AdapterCache& cache_;
  const std::string& name_;
};

AdapterLease AdapterCache::fetch(const Source& source, const RemoteListing& listing,
                                 const std::string& name, const std::stop_token& stop) {
  const Turn turn(*this, name, stop);
  if (AdapterLease there = find(name)) return there;
  const std::vector<RemoteFile> files = wanted_files(listing, RepositoryKind::kAdapter);
  const int64_t num_bytes = bytes_of(files);
  const std::string root = path_ + "/incoming";
  make_room(num_bytes, name);
  try {
    download_all(source, listing, files, root, name, stop);
    fs::rename(root + "/" + name, folder() + "/" + name);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    num_bytes_ -= num_bytes;
    count_left(name);
    throw;
  }
  return keep(name, num_bytes);
}

AdapterLease AdapterCache::keep(const std::string& name, int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[name];
  entry = {.adapter = std::make_shared<CachedAdapter>(CachedAdapter{name, num_bytes}),
           .last_use = ++num_uses_};
  return entry.adapter;
}

/// Sets the bytes of an adapter that is to come apart, in place of those that were left of it.
void AdapterCache::make_room(int64_t num_bytes, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto left = left_.find(name); left != left_.end()) {
    num_bytes_ -= left->second;
    left_.erase(left);
  }
  while (num_bytes <= max_bytes_ && num_bytes > max_bytes_ - num_bytes_ && evict_one()) {
  }
  if (num_bytes > max_bytes_ - num_bytes_) {
    const int64_t others = num_bytes_;
    count_left(name);
    fail(FetchFault::kFull, name, ": has ", num_bytes, " bytes, the cache of adapters may have ",
         max_bytes_, ", of which others take ", others);
  }
  num_bytes_ += num_bytes;
}

/// Counts what is left of a download that no call is fetching.
void AdapterCache::count_left(const std::string& name) {
  const int64_t left = bytes_in(path_ + "/incoming/" + name);
  if (left == 0) return;
  left_[name] = left;
  num_bytes_ += left;
}

/// Removes what is needed least: what was left of a download that failed, else the adapter that was
/// not used for longest. False: all are held.
bool AdapterCache::evict_one() {
  std::error_code ignored;
  if (const auto left = left_.begin(); left != left_.end()) {
    fs::remove_all(path_ + "/incoming/" + left->first, ignored);
    num_bytes_ -= left->second;
    left_.erase(left);
    return true;
  }
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const bool is_free = entry->second.adapter.use_count() == 1;
    const bool is_older =
        oldest == entries_.end() || entry->second.last_use < oldest->second.last_use;
    if (is_free && is_older) oldest = entry;
  }
  if (oldest == entries_.end()) return false;
  fs::remove_all(folder() + "/" + oldest->first, ignored);
  num_bytes_ -= oldest->second.adapter->num_bytes;
  std::erase_if(keys_, [&](const auto& key) { return key.second == oldest->first; });
  entries_.erase(oldest);
  return true;
}

void AdapterCache::note(const std::string& key, const AdapterLease& adapter) {
  const std::lock_guard lock(mutex_);
  std::string& name = keys_[key];
  if (name == adapter->name) return;
  const std::string before = std::exchange(name, adapter->name);
  for (const std::string& changed : {before, name}) {
    if (entries_.contains(changed)) write_keys(changed);
  }
}

AdapterLease AdapterCache::noted(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto place = keys_.find(key);
  return place == keys_.end() ? nullptr : find_locked(place->second);
}

std::map<std::string, std::string> AdapterCache::all_noted() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

void AdapterCache::write_keys(const std::string& name) const {
  const std::string place = folder() + "/" + name + kKeys, made = place + ".part";
  fs::remove(made);
  std::ofstream file(made);
  for (const auto& [key, meant] : keys_) {
    if (meant == name) file << key << '\n';
  }
  file.close();
  if (file) fs::rename(made, place);
}

int64_t AdapterCache::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace heddle::fetch
