#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace heddle {

/// A path as a line can show it: the names of folders are those of who made them.
[[nodiscard]] std::string shown_path(const std::string& path);

/// Writes what the folder of a PEFT adapter holds, as far as it says so without a model. Returns
/// the bytes that it takes in memory.
int64_t inspect_adapter(std::ostream& out, const std::string& path);
/// Loads adapters onto the model at `base`, and writes their receipts: the adapter at `path`, or,
/// where these are named, several in folders of it.
void inspect_adapters_on(std::ostream& out, const std::string& base, const std::string& path,
                         const std::vector<std::string>& names);

}  // namespace heddle
