#include "chat/history.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include "heddle/core/error.h"

namespace heddle::app {
namespace {

constexpr size_t kMostLines = 2000, kKeptLines = 1000;

/// Writes text to a file of mode 0600 that is opened with the flags; returns whether all was
/// written.
bool write_private(const std::string& path, int flags, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  if (file < 0) return false;
  const bool whole = fchmod(file, 0600) == 0 &&
                     write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return close(file) == 0 && whole;
}

}  // namespace

std::string chat_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder = state == nullptr ? "" : state;
  if (folder.empty() && home != nullptr && *home != '\0')
    folder = std::string(home) + "/.local/state";
  return folder.empty() ? "" : folder + "/heddle/chat_history";
}

ChatHistory::ChatHistory(std::string path) : path_(std::move(path)) {
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) lines_.push_back(std::move(line));
  if (lines_.size() <= kMostLines) return;
  lines_.erase(lines_.begin(), lines_.end() - static_cast<ptrdiff_t>(kKeptLines));
  std::string text;
  for (const std::string& line : lines_) text += line + "\n";
  const std::string partial = path_ + ".partial";
  // Where this fails the file stays as it was.
  if (write_private(partial, O_TRUNC, text)) std::rename(partial.c_str(), path_.c_str());
}

void ChatHistory::add(const std::string& line) {
  std::error_code error;  // the write below meets a folder that could not be made
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  HEDDLE_CHECK(write_private(path_, O_APPEND, line + "\n"), path_,
               ": cannot keep the history: ", std::strerror(errno));
  lines_.push_back(line);
}

}  // namespace heddle::app
