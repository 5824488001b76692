#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/rows/scheduler.h"
#include "engine/rows/sequence.h"

namespace heddle {

/// What one step is about; made once, for as many rows as run at once.
struct StepPlan {
  std::vector<Sequence*> rows, drawing;
  std::vector<RowState> states;
  std::vector<int64_t> num_tokens;  // [rows.size()] that each row takes in
  std::vector<int32_t> tokens;      // [drawing.size()]
  std::vector<float> logprobs;      // [drawing.size()]

  explicit StepPlan(size_t max_batch) {
    for (auto* list : {&rows, &drawing}) list->reserve(max_batch);
    states.reserve(max_batch);
    num_tokens.reserve(max_batch);
    tokens.reserve(max_batch);
    logprobs.reserve(max_batch);
  }
};

/// Puts the tokens of the row's answer since its last event into this one. Where there is no memory
/// for them the completion alone has them.
void tell_tokens(Sequence& row, Event& event) noexcept;

}  // namespace heddle
