#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/engine/speculation.h"

#include "engine/drafts/acceptance.h"
#include "engine/drafts/predicted_text.h"
#include "engine/drafts/suffix_memories.h"

namespace heddle {

/// Drafts of all rows of a step together, at most.
inline constexpr int64_t kMaxStepDrafts = 64;

/// SpeculationOptions::method.
enum class DraftMethod : uint8_t { kOff, kNgram, kSuffix, kModel, kHeads, kEagle3 };
inline constexpr const char* kDraftMethods = "off, ngram, suffix, model, heads or eagle3";

/// Whether a ModelDrafter drafts.
[[nodiscard]] constexpr bool has_model(DraftMethod method) { return method >= DraftMethod::kModel; }

/// Nothing where no method has the name.
constexpr std::optional<DraftMethod> draft_method_of(std::string_view name) {
  if (name == "off") return DraftMethod::kOff;
  if (name == "ngram") return DraftMethod::kNgram;
  if (name == "suffix") return DraftMethod::kSuffix;
  if (name == "model") return DraftMethod::kModel;
  if (name == "heads") return DraftMethod::kHeads;
  if (name == "eagle3") return DraftMethod::kEagle3;
  return std::nullopt;
}

/// What a ModelDrafter keeps of a row.
struct DrafterState {
  virtual ~DrafterState() = default;
};

/// What is drafted for a row.
struct RowDrafts {
  /// That its next step verifies: they would follow Sequence::tokens. Room for kMaxRowDrafts.
  std::vector<int32_t> tokens{};
  DraftSource source = DraftSource::kNgram;  // of the first of them
  bool is_open = false;                      // a model has still to write `tokens`
  int64_t num_of_source = 0;                 // those after them are of the answer's format

  // How it drafts.
  DraftMethod method = DraftMethod::kOff;
  std::optional<PredictedText> prediction{};  // of the request
  Acceptance acceptance{};
  int64_t num_without = 0;  // steps in a row that had no draft

  // Of kSuffix: the answers that it goes by, and where it is in them.
  SuffixMemoryKey key{};
  SuffixMemory::Cursor cursor{};
  int32_t end_token = -1;  // that ended the answer

  std::unique_ptr<DrafterState> state{};  // of those with a model

  size_t num_read = 0;  // of Sequence::tokens: the cursor and the prediction have them
};

}  // namespace heddle
