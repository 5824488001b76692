#pragma once

#include <cstdint>
#include <string>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// Rows of a run by what became of them.
struct RowCounts {
  int64_t finished = 0, failed = 0, skipped = 0;  // skipped: --resume had them
};

/// A table on standard error; of drafts where the engine speculates.
void print_statistics(const EngineStats& stats, const RowCounts& rows, bool speculates);

/// The statistics as JSON in one text.
[[nodiscard]] std::string statistics_json(const EngineStats& stats, const RowCounts& rows,
                                          bool speculates);

}  // namespace heddle::app
