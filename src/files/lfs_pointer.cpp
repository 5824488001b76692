#include "files/lfs_pointer.h"

#include "heddle/core/error.h"

namespace heddle::files {

void refuse_lfs_pointer(std::string_view text, const std::string& name) {
  HEDDLE_CHECK(
      !text.starts_with("version https://git-lfs.github.com/spec/"), name,
      ": is a pointer of git-lfs, the file itself was not downloaded; run \"git lfs pull\" "
      "in its repository, or download the file again with \"hf download\"");
}

void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& name) {
  refuse_lfs_pointer(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                     name);
}

}  // namespace heddle::files
