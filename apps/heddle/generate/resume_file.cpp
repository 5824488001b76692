#include "generate/resume_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "request_json/ordered_json.h"

namespace heddle::app {
namespace {

using files::find_member;
using files::Json;

/// What answers_ holds of a row: an id is JSON text, which no index with # is.
std::string key_of(const std::string& id, int64_t index, const std::string& hash) {
  std::string key = id;
  if (id.empty()) key.append("#").append(std::to_string(index));
  return key.append(" ").append(hash);
}

struct Answer {
  std::string key;
  bool failed;
};

/// Nothing where the line is no answer.
std::optional<Answer> parse_answer(const std::string& line) {
  files::JsonTree object;
  try {
    object = parse_ordered_json(line, "");
  } catch (const Error&) {
    return std::nullopt;
  }
  const Json *const index = find_member(*object, "index"), *const id = find_member(*object, "id"),
                    *const hash = find_member(*object, "hash"),
                    *const error = find_member(*object, "error");
  if (index == nullptr || id == nullptr || hash == nullptr || error == nullptr) return std::nullopt;
  const std::optional<int64_t> number = files::integer_of(*index);
  if (!number) return std::nullopt;
  const std::string id_text = id->is_null() ? "" : files::json_text(*id);
  const std::string hash_text(hash->is_string() ? files::text_of(*hash) : "");
  return Answer{key_of(id_text, *number, hash_text), !error->is_null()};
}

}  // namespace

ResumeFile::ResumeFile(std::string path) : path_(std::move(path)) {
  struct stat status = {};
  is_new_ = stat(path_.c_str(), &status) != 0;
  HEDDLE_CHECK(is_new_ || S_ISREG(status.st_mode), "--resume ", path_,
               ": is a folder, device or pipe, expected a regular file, which keeps the answers");
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  HEDDLE_CHECK(fd_ >= 0, "--resume ", path_, ": cannot open: ", std::strerror(errno));
  try {
    HEDDLE_CHECK(fstat(fd_, &status) == 0 && S_ISREG(status.st_mode), "--resume ", path_,
                 ": is not a regular file");
    std::error_code error;  // of a link the file that it leads to is removed in the end
    if (is_new_) made_ = std::filesystem::canonical(path_, error).string();
    HEDDLE_CHECK(flock(fd_, LOCK_EX | LOCK_NB) == 0, "--resume ", path_,
                 ": another program is writing to it");
    read();
  } catch (...) {
    close(fd_);
    throw;
  }
}

ResumeFile::~ResumeFile() {
  if (is_new_ && !made_.empty()) unlink(made_.c_str());
  close(fd_);
}

void ResumeFile::read() {
  std::ifstream file(path_);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const std::optional<Answer> answer = parse_answer(line);
    const bool is_last = file.eof();  // there was no newline after it
    HEDDLE_CHECK(answer || is_last, "--resume ", path_, ", line ", number,
                 ": not an answer of heddle; the file stays as it is");
    if (!answer) return;
    lacks_newline_ = is_last;
    whole_bytes_ += std::ssize(line) + (is_last ? 0 : 1);
    if (!answer->failed) answered_.insert(answer->key);
  }
  HEDDLE_CHECK(!file.bad(), "--resume ", path_, ": cannot read it");
}

bool ResumeFile::answers(const Row& row, const std::string& hash) const {
  return answered_.contains(key_of(row.id, row.index, hash));
}

std::ofstream& ResumeFile::append() {
  is_new_ = false;
  struct stat status = {};
  const bool is_torn = fstat(fd_, &status) == 0 && status.st_size > whole_bytes_;
  if (is_torn) {
    spdlog::info("note: {}: the last line was incomplete and is cut off", path_);
    if (ftruncate(fd_, whole_bytes_) != 0) {
      throw std::system_error(errno, std::generic_category(), path_ + ": cannot truncate it");
    }
  }
  stream_.open(path_, std::ios::app);
  if (lacks_newline_) stream_ << "\n";
  return stream_;
}

}  // namespace heddle::app
