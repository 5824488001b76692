#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle {

/// How an engine drafts tokens, which its steps verify several at a time. A draft is taken where it
/// equals the token that is drawn in its place, so no bit of an answer depends on any of this, only
/// the time that it takes (docs/speculation.md).
struct SpeculationOptions {
  /// "off" (empty): a step draws one token of each row. "ngram": the tokens that followed the row's
  /// last ones where these stood before in its prompt or answer. "suffix": besides, those that
  /// followed them in recent answers of the same adapter with the same cache_salt.
  /// "model", "heads" and "eagle3": those that `draft_model` proposes.
  std::string method{};
  /// A model of the same vocabulary ("model": a GGUF file, a folder or a name of the Hugging Face
  /// hub's cache), a folder of Medusa heads ("heads"; empty: adapters alone have some), or an
  /// EAGLE-3 drafter ("eagle3").
  std::string draft_model{};
  int max_drafts = 0;  // of a row in a step, 1 to 15; 0: 8
  /// Of "ngram": how many of the last tokens must have stood before, 1 <= min <= max <= 64. 0: 2
  /// and 4.
  int min_ngram = 0, max_ngram = 0;
  /// Of "suffix": bytes that recent answers may take. 0: 64 MiB. Of "model": bytes of keys and
  /// values of the draft model. 0: a quarter of the memory that is available.
  int64_t memory = 0;
};

/// Where a draft came from. kPrediction: Request::prediction. kFormat: the format of the answer
/// allowed no other token.
enum class DraftSource : uint8_t { kNgram, kSuffix, kPrediction, kFormat, kModel, kHeads, kEagle3 };
inline constexpr size_t kNumDraftSources = 7;
/// "ngram", "suffix", "prediction", "format", "model", "heads" or "eagle3".
[[nodiscard]] const char* name(DraftSource source);

/// Tokens that were drafted and verified, and those of them that were taken.
struct DraftCounts {
  int64_t drafted = 0, accepted = 0;
};

/// Drafts of a row that a step verifies at most.
inline constexpr int kMaxRowDrafts = 15;

/// By the place of a draft in its row, from 0 on, and by its source.
struct DraftStats {
  std::array<DraftCounts, kMaxRowDrafts> by_place{};
  std::array<DraftCounts, kNumDraftSources> by_source{};
};

}  // namespace heddle
