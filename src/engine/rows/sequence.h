#pragma once

#include <chrono>
#include <cstdint>
#include <iterator>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/request.h"
#include "heddle/ops/lora.h"

#include "core/digest.h"
#include "engine/cache/page_pool.h"
#include "engine/cache/page_shelf.h"
#include "engine/cache/prefix_place.h"
#include "engine/rows/row_drafts.h"
#include "engine/rows/row_values.h"
#include "engine/rules/row_adjustment.h"
#include "engine/rules/row_mask.h"
#include "engine/text/text_stream.h"
#include "model/adapters/adapter_use.h"
#include "tokenizer/decode_state.h"

namespace heddle {

struct KnownAdapter;
struct Tenant;

/// What was requested. Constant once the request is submitted.
struct RowRequest {
  SamplingOptions sampling{};
  bool ignore_end = false;
  int64_t min_tokens = 0;              // of the answer, before anything ends it
  std::vector<int32_t> stop_tokens{};  // that end it like the end tokens; ascending
  int32_t top_logprobs = 0;            // most likely tokens reported for each place
  bool scores_prompt = false;          // the prompt's log-probabilities are reported
  bool draws = true;                   // false: it ends where its prompt does
  bool skips_special = false;          // control tokens of the answer have no text
  bool tells_tokens = false;           // its events have tokens
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;  // prompt and answer, within the context
  Digest salt{};           // of Request::cache_salt
  std::string adapter{};   // RowProgress::adapter
  std::string tenant{};    // whose it is, where tenants share the engine
  double weight = 1;       // of the tenant
  int64_t priority = 0;    // those of the lowest start first
  std::chrono::steady_clock::time_point submitted_at = std::chrono::steady_clock::now();
};

/// Keys and values of a sequence that was parked, in pages of the shelf.
struct SavedRow {
  PageShelf::Saved id = PageShelf::Saved::kNone;  // kNone: there are none
  int64_t first_page = 0;                         // of the sequence
  int64_t num_tokens = 0;                         // that are stored with them
  bool is_restoring = false;                      // into pages that the sequence has again

  [[nodiscard]] bool exists() const { return id != PageShelf::Saved::kNone; }
};

/// What the device holds of a sequence. Written by the queue and by the runner.
struct RowCache {
  ReservedPages pages{};       // none: it waits
  int64_t num_cached = 0;      // tokens whose keys and values are stored, by steps in flight too
  int64_t prefill_length = 0;  // number of tokens when (re)prefill began
  int32_t num_pending = 0;     // drawn by steps in flight: they follow Sequence::tokens
  int32_t drawn_at = -1;       // index of the last of them among all that its step draws
  PrefixPlace place{};         // of its first pages in the prefix cache
  bool awaits_page = false;    // its next page is computed by another sequence, or being copied
  bool has_run = false;        // in a step, since it was admitted
  bool was_parked = false;
  int64_t num_before_parking = 0;  // tokens whose keys and values it had when it was parked
  SavedRow saved{};
};

/// The adapters of a sequence, and where they act.
struct RowAdapters {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  std::vector<std::shared_ptr<KnownAdapter>> holds{};  // none: the base model
  std::shared_ptr<KnownAdapter> of_text{};             // of a merge: the first of those it is of
  // That it goes on with, in place of `holds`, once it has all keys and values that it had when it
  // was parked; none: it keeps them.
  std::vector<std::shared_ptr<KnownAdapter>> next{};
  // Slots and scales of a sequence that has a list of adapters, or one with another scale than 1;
  // else empty. The slots are set at admission.
  std::vector<model::AdapterUse> uses{};
  // The slots of `holds`, held while it runs, so that the adapters stay resident.
  std::vector<std::shared_ptr<const int32_t>> weights{};
  int32_t slot = kNoAdapter;  // of the first, while it runs
  int64_t active_from = 0;    // the first position at which they act on linear layers
  int64_t keys_from = 0;      // the first position whose keys and values they change
  Digest content{};           // of all of them in their order, with their scales, while it runs

  /// nullptr: there is none.
  [[nodiscard]] const KnownAdapter* first() const {
    return holds.empty() ? nullptr : holds.front().get();
  }
  /// The one whose tokenizer and templates the request uses; nullptr: the base model's.
  [[nodiscard]] const KnownAdapter* text() const { return of_text ? of_text.get() : first(); }
};

/// What is reported: the completion as far as it is known, and what makes its text.
struct RowAnswer {
  tokenizer::DecodeState decoding{};
  TextStream text{{}};
  Completion completion{};
  size_t num_told = 0;      // tokens that events have reported
  std::string last_text{};  // of a request that has ended: final text that was not reported yet
  bool has_ended = false;
};

/// A request on its way through the engine.
struct Sequence {
  RequestId id = 0;
  // Shared with WaitingRows, which forgets a tenant that no request has.
  std::shared_ptr<Tenant> tenant{};
  // While pages lack, those of the largest priority and then of the largest seniority are parked.
  int64_t seniority = 0;
  std::vector<int32_t> tokens{};  // prompt, then the answer so far
  RowRequest request{};
  RowCache cache{};
  RowAdapters adapters{};
  std::unique_ptr<RowAdjustment> adjustment{};  // nullptr: its logits stay as they are
  std::unique_ptr<RowMask> mask{};              // nullptr: it may draw any token
  std::unique_ptr<RowValues> values{};          // nullptr: it gives an answer
  std::unique_ptr<RowDrafts> drafts{};          // nullptr: nothing is drafted for it
  RowAnswer answer{};
  bool is_paused = false;  // takes no part in steps

  [[nodiscard]] int64_t num_tokens() const { return std::ssize(tokens) + cache.num_pending; }
  /// Those that its next step verifies.
  [[nodiscard]] int64_t num_drafts() const {
    return drafts == nullptr ? 0 : std::ssize(drafts->tokens);
  }
  /// Whether the next tokens to compute were drawn, and are none of the (re)prefill.
  [[nodiscard]] bool decodes() const { return cache.num_cached >= cache.prefill_length; }
  /// Tokens that it computes before its adapters change, which they do at once where it has these.
  [[nodiscard]] int64_t num_before_switch() const {
    return adapters.next.empty() ? std::numeric_limits<int64_t>::max() : cache.num_before_parking;
  }
  /// Whether adapters that it no longer has made some of its keys and values: these are in no
  /// cache, and cannot be computed again.
  [[nodiscard]] bool has_switched() const { return !answer.completion.adapter_switches.empty(); }
  /// Whether steps that compute its prompt score it.
  [[nodiscard]] bool is_scoring() const {
    return request.scores_prompt && answer.completion.token_ids.empty();
  }
};

using Sequences = std::list<Sequence>;

}  // namespace heddle
