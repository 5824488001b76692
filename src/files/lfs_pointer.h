#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace heddle::files {

/// Error(kInvalidArgument) that says what to do where the file, `name`, is what git has in place of
/// one that git-lfs keeps.
void refuse_lfs_pointer(std::string_view text, const std::string& name);
void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& name);

}  // namespace heddle::files
