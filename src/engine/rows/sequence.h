#pragma once

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/request.h"
#include "heddle/ops/lora.h"

#include "engine/adapters/known_adapter.h"
#include "engine/cache/page_pool.h"
#include "engine/rules/row_adjustment.h"
#include "engine/text/text_stream.h"
#include "model/adapters/adapter_use.h"
#include "tokenizer/decode_state.h"

namespace heddle {

/// A request on its way through the engine.
struct Sequence {
  RequestId id = 0;
  SamplingOptions sampling{};
  bool ignore_end = false;
  int64_t min_tokens = 0;                       // of the answer, before anything ends it
  std::vector<int32_t> stop_tokens{};           // that end it, beside the end tokens; ascending
  int32_t top_logprobs = 0;                     // most likely tokens that are told of each place
  bool scores_prompt = false;                   // the prompt's log-probabilities are told
  bool draws = true;                            // false: it ends where its prompt does
  bool skips_special = false;                   // control tokens of the answer have no text
  bool tells_tokens = false;                    // with its events
  std::unique_ptr<RowAdjustment> adjustment{};  // nullptr: its logits stay as they are
  std::vector<AdapterHold> adapters{};          // none: the base model
  // Slots and scales of a row that has a list of adapters, or one with another scale than 1; else
  // empty. The slots are set when it starts.
  std::vector<model::AdapterUse> uses{};
  std::vector<WeightsHold> weights{};  // of a row that runs: those of its adapters
  int32_t slot = kNoAdapter;           // of the first, while the row runs
  RequestId leader = -1;               // whose first pages the row begins with, -1: nobody's
  int64_t num_shared = 0;              // positions in these
  int64_t active_from = 0;  // the first position at which the adapter acts on linear layers
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;         // prompt and answer, within the context
  std::vector<int32_t> tokens{};  // prompt, then the answer so far
  std::chrono::steady_clock::time_point submitted_at = std::chrono::steady_clock::now();
  int64_t num_cached = 0;             // tokens whose keys and values are stored, or asked for
  int32_t num_pending = 0;            // tokens behind `tokens` that are on the device alone
  int32_t drawn_at = -1;              // where among those drawn last the last of them is
  int64_t taken_in_at = 0;            // tokens it had when the first of them was computed
  RowPages pages{};                   // set aside when it is admitted
  tokenizer::DecodeState decoding{};  // of the answer
  TextStream text{{}};
  Completion completion{};  // as far as it is known
  bool is_paused = false;   // takes no part in steps
  size_t num_told = 0;      // tokens of the answer that events have told
  std::string last_text{};  // of a row that has ended: final text that was not told yet

  [[nodiscard]] int64_t num_tokens() const { return std::ssize(tokens) + num_pending; }
  /// Whether the next token to run was drawn, and is none that the row is taken in with.
  [[nodiscard]] bool runs_drawn_token() const {
    return num_cached > 0 && num_cached >= taken_in_at;
  }
  /// The first, whose text the row has; null: the base model.
  [[nodiscard]] const KnownAdapter* adapter() const {
    return adapters.empty() ? nullptr : adapters.front().get();
  }
};

}  // namespace heddle
