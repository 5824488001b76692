#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "heddle/core/error.h"

namespace heddle::app {

/// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "heddle-bench-XXXXXX").string();
    HEDDLE_CHECK(mkdtemp(path.data()) != nullptr, path, ": cannot make a folder");
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace heddle::app
