#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "heddle/engine/speculation.h"

namespace heddle {

/// Drafts of all rows of a step together, at most.
inline constexpr int64_t kMaxStepDrafts = 64;

/// SpeculationOptions::method.
enum class DraftMethod : uint8_t { kOff, kNgram, kSuffix };

constexpr bool is_draft_method(std::string_view name) {
  return name == "off" || name == "ngram" || name == "suffix";
}

/// What is drafted for a row.
struct RowDrafts {
  DraftMethod method = DraftMethod::kOff;
  /// That its next step verifies: they would follow Sequence::tokens. Room for kMaxRowDrafts.
  std::vector<int32_t> tokens{};
  DraftSource source = DraftSource::kNgram;  // of the first of them
  int64_t num_of_source = 0;                 // those after them are of the answer's format
};

}  // namespace heddle
