#pragma once

#include <string>

namespace heddle::app {

/// A file that an option names and that is written as a whole at the end. Links are followed. A
/// regular file, or one that is not there, is replaced by a finished one, so that no reader sees
/// half of it; into a device or a pipe is written, as into standard output.
class OutputFile {
 public:
  /// `option`: "--stats", for errors. Throws Error where the file could not be written: its folder
  /// is not there or is not ours, or it is a folder, a disk or a socket.
  OutputFile(std::string option, std::string path);

  /// Throws std::system_error where that fails.
  void write(const std::string& text) const;

 private:
  void replace(const std::string& text) const;
  void write_through(const std::string& text) const;
  [[nodiscard]] std::string text_of(int error) const;

  std::string option_, path_;
  std::string target_;      // where the links of path_ lead
  bool is_regular_ = true;  // or not there
};

}  // namespace heddle::app
