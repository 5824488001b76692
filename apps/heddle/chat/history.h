#pragma once

#include <string>
#include <vector>

namespace heddle::app {

/// ${XDG_STATE_HOME:-~/.local/state}/heddle/chat_history; empty where neither variable is set.
[[nodiscard]] std::string chat_history_path();

/// Lines of earlier runs in a text file that only its owner can read, one a line. Each new line is
/// added at once, so that it is kept however the program ends, and programs that run at the same
/// time keep each other's lines.
class ChatHistory {
 public:
  /// Reads the file; one of more than 2000 lines is cut to the last 1000. A missing file is empty.
  explicit ChatHistory(std::string path);

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  /// Throws Error when the file cannot be written; folders are made where they are missing.
  void add(const std::string& line);

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace heddle::app
