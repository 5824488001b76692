#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace heddle::serve {

/// The file of a batch's answers: each line is there for readers as soon as it is written.
class AnswerFile {
 public:
  /// Throws Error where it cannot be written, or is `input`.
  AnswerFile(const std::string& path, const std::string& input);

  /// Removes the lines of an earlier run.
  void clear();
  /// Throws std::system_error where that fails.
  void write(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace heddle::serve
