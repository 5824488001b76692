#pragma once

#include <string>
#include <vector>

#include "files/open_file.h"

namespace heddle::files {

/// Folders, written without links, in one of which a file must lie when all links are followed.
/// None: it may lie anywhere.
using FolderBounds = std::vector<std::string>;

/// Whether a path without links is a folder, or lies in it.
[[nodiscard]] bool lies_in(const std::string& path, const std::string& folder);

/// Opens a regular file. Error as of OpenFile, and where it lies outside of the bounds. What is
/// checked is what is opened, whoever puts links into the path meanwhile.
[[nodiscard]] OpenFile open_within(const std::string& path, const FolderBounds& bounds);

}  // namespace heddle::files
