#include "fetch/hub_store.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <unistd.h>

#include "fetch/download.h"
#include "fetch/fetch_error.h"
#include "fetch/partial_file.h"
#include "model/source/hub_cache.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

void check_room(const std::string& folder, int64_t num_bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= static_cast<uintmax_t>(num_bytes)) return;
  fail(FetchFault::kFull, folder, ": ", num_bytes, " bytes are to come, there is room for ",
       space.available);
}

/// A name next to `path` for what will be moved there.
std::string next_to(const std::string& path) { return path + "." + std::to_string(::getpid()); }

/// Makes the link, or puts it in the place of another one.
void put_link(const std::string& target, const std::string& place) {
  std::error_code none;
  if (fs::read_symlink(place, none) == target && !none) return;
  const std::string made = next_to(place);
  fs::remove(made);
  fs::create_symlink(target, made);
  fs::rename(made, place);
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string made = next_to(path);
  fs::remove(made);
  std::ofstream file(made, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::system_error(std::make_error_code(std::errc::io_error), made);
  fs::rename(made, path);
}

/// "../" for each folder that a relative path leads through.
std::string up_from(const fs::path& path) {
  std::string up;
  for (auto part = path.begin(); std::next(part) != path.end(); ++part) up += "../";
  return up;
}

int64_t bytes_to_come(const std::string& blobs, const std::vector<RemoteFile>& files) {
  int64_t bytes = 0;
  for (const RemoteFile& file : files) {
    std::error_code error;
    if (!fs::exists(blobs + "/" + file.hash.hex, error)) bytes += file.size;
  }
  return bytes;
}

}  // namespace

Pulled pull(const Source& source, const PullRequest& request, const std::stop_token& stop,
            const OnPull& on_pull) {
  const RemoteListing listing = list_files(source, request.id, request.revision, stop);
  const std::vector<RemoteFile> files = wanted_files(listing, request.kind, request.gguf);
  std::string name = "models--" + request.id;
  name.replace(name.find('/'), 1, "--");
  const std::string repository = model::hub_cache_folder() + "/" + name;
  const std::string blobs = repository + "/blobs";
  make_folders(repository, "blobs");
  check_room(blobs, bytes_to_come(blobs, files));
  const int64_t num_bytes = bytes_of(files);
  int64_t done = 0;
  for (const RemoteFile& file : files) {
    const fs::path in_snapshot = fs::path("snapshots") / listing.version / file.name;
    const std::string blob = blobs + "/" + file.hash.hex;
    download(source, listing, file, blob + ".incomplete", blob, stop,
             [&](int64_t of_file) { on_pull(done + of_file, num_bytes); });
    make_folders(repository, in_snapshot.parent_path().string());
    put_link(up_from(in_snapshot) + "blobs/" + file.hash.hex,
             repository + "/" + in_snapshot.string());
    done += file.size;
    on_pull(done, num_bytes);
  }
  const fs::path reference = fs::path("refs") / request.revision;
  make_folders(repository, reference.parent_path().string());
  write_whole(repository + "/" + reference.string(), listing.version);
  const std::string snapshot = repository + "/snapshots/" + listing.version;
  return {.path = request.gguf.empty() ? snapshot : snapshot + "/" + request.gguf,
          .version = listing.version,
          .num_bytes = num_bytes,
          .num_files = std::ssize(files)};
}

}  // namespace heddle::fetch
