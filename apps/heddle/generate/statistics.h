#pragma once

#include <cstdint>
#include <string>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// Rows of a run by what became of them.
struct RowCounts {
  int64_t finished = 0, failed = 0, skipped = 0;  // skipped: --resume had them
};

/// A table on standard error.
void print_statistics(const EngineStats& stats, const RowCounts& rows);

/// Throws Error unless a file can be made there.
void check_writable(const std::string& path);
/// The same as JSON; the file appears whole or not at all. Throws std::system_error.
void write_statistics(const std::string& path, const EngineStats& stats, const RowCounts& rows);

}  // namespace heddle::app
