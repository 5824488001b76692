#include "batch/answer_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include "heddle/core/error.h"

#include "request_json/shown.h"

namespace heddle::serve {

AnswerFile::AnswerFile(const std::string& path, const std::string& input) : path_(path) {
  std::error_code not_there;
  HEDDLE_CHECK(!std::filesystem::equivalent(path, input, not_there), "--output-file ",
               app::shown(path), ": is the file of --input-file");
  file_.reset(std::fopen(path.c_str(), "ae"));
  HEDDLE_CHECK(file_ != nullptr, "--output-file ", app::shown(path),
               ": cannot be written: ", std::strerror(errno));
}

void AnswerFile::clear() {
  // A device or a pipe has none.
  [[maybe_unused]] const int cleared = ::ftruncate(::fileno(file_.get()), 0);
}

void AnswerFile::write(const std::string& line) {
  const bool is_written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                          std::fputc('\n', file_.get()) != EOF && std::fflush(file_.get()) == 0;
  if (is_written) return;
  throw std::system_error(errno, std::generic_category(), "--output-file " + app::shown(path_));
}

}  // namespace heddle::serve
