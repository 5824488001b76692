#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ops/lora.h"

#include "engine/adapters/adapter_folder.h"
#include "engine/text/row_text.h"

namespace heddle {

/// The weights of an adapter in memory. A row that runs holds them, so that they stay.
struct AdapterWeights {
  int32_t slot = kNoAdapter;
};
using WeightsHold = std::shared_ptr<const AdapterWeights>;

/// The weights of an adapter on their way into memory, beside the steps of the engine, and a copy
/// of them in host memory that a GPU reads by itself.
struct AdapterLoad;
struct AdapterMove;
struct AdapterHostCopy;

/// An adapter as it was when it was read.
struct KnownAdapter {
  std::string path;
  files::FolderBounds bounds{};  // in which its files lie
  RowText text;
  int64_t num_tokens = 0;                   // that its rows may have in their prompts
  int64_t num_logits = 0;                   // that they get
  int64_t num_bytes = 0;                    // of its weights in memory, at most
  std::string_view runs_alone{};            // ModelRunner::runs_alone
  std::vector<int32_t> invocation;          // of aLoRA, which acts from these tokens on; else empty
  bool has_embedding = false;               // one of its own, or changes to the model's
  std::optional<files::FileStamps> found;   // of one that was found in the folder of adapters
  std::optional<uint64_t> young_digest{};   // of one whose files were just written: see digest_of
  bool has_host_copies = false;             // it comes to its device from a copy in host memory
  WeightsHold weights{};                    // null: not in memory of the device
  std::shared_ptr<AdapterLoad> load{};      // from its file; null: none is under way
  std::shared_ptr<AdapterHostCopy> host{};  // null: there is none
  std::shared_ptr<AdapterMove> move{};      // from there to the device; null: none is under way
  std::exception_ptr failure{};             // of a load or a move, for the rows of one plan
  bool has_told_failure = false;            // to one of them; the next plan tries again
  uint64_t last_used = 0;                   // the tiers' count of uses
  int32_t number = -1;                      // in a plan, while one is made
  uint64_t wanted_in = 0;                   // the last plan that wants it
  size_t wanted_by = 0;                     // its first row that does

  /// Whether an older row, or the same, of the last plan that wants `other` wants it.
  [[nodiscard]] bool is_wanted_before(const KnownAdapter& other) const {
    return wanted_in == other.wanted_in && wanted_by <= other.wanted_by;
  }
};
/// What a row holds from when it is submitted to its end.
using AdapterHold = std::shared_ptr<KnownAdapter>;

}  // namespace heddle
