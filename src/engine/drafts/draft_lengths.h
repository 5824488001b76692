#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/drafts/step_costs.h"

namespace heddle {

/// The drafts that a row has for a step, and how likely they are.
struct DraftOffer {
  int num_offered = 0;
  int num_certain = 0;     // the first ones of these, which cannot fail
  double accept_rate = 0;  // of each other one, where those before it are accepted: 0 to 1
  bool is_made = false;    // its drafts are there, and cost nothing but the step
};

/// What making drafts costs besides the step that verifies them: `begin` once where any are made,
/// and `each` for every place of the row for which the most are, as all rows of a place are
/// drafted together.
struct DraftingCost {
  double begin = 0, each = 0;  // seconds
};

/// How many tokens each row of a step drafts.
///
///   lengths.rows = {{.num_offered = 8, .accept_rate = 0.8},
///                   {.num_offered = 3, .accept_rate = 0.2}};
///   lengths.num_other_tokens = 512;  // of prompts
///   choose_draft_lengths(lengths, costs);
///   lengths.drafts;                  // [rows.size()]: as many as pay
struct DraftLengths {
  // In:
  std::vector<DraftOffer> rows{};
  int64_t num_other_tokens = 0;  // of the step, besides one token of each row and the drafts
  int64_t max_drafts = 256;      // of all rows together
  DraftingCost drafting{};
  // Out:
  std::vector<int> drafts{};     // [rows.size()]
  double tokens_per_second = 0;  // that `rows` may expect

  /// A row and what its next draft adds to the tokens that it may expect.
  struct Next {
    double gain = 0;
    int row = 0;
  };
  std::vector<Next> heap{};
  std::vector<int> taken{};  // rows, in the order in which they got their drafts

  /// Reserves memory for so much, so that choose_draft_lengths allocates none.
  void reserve(size_t num_rows, size_t max_num_drafts);
};

/// Fills in what follows from what is known, the same for the same input: the lengths k[i] with the
/// most expected tokens per second,
///   sum over rows of (1 + g[i, 1] + ... + g[i, k[i]])
///     / (costs.seconds(rows.size() + num_other_tokens + sum of k[i]) + drafting)
///   drafting = 0 where k[i] is 0 for all rows whose drafts are not made yet, else
///              drafting.begin + max of k[i] of these drafting.each
///   g[i, j] = 1 for j <= num_certain, else g[i, j - 1] accept_rate, with g[i, 0] = 1
/// of all with k[i] <= num_offered and a sum of at most max_drafts. Of several that are as good it
/// takes one with the fewest drafts; of rows whose next drafts are as likely the first gets one
/// more. Rates are clamped to [0, 1], where NaN is 0. Takes time in proportion to max_drafts, times
/// log(rows.size()), and once more for each draft of a row that is still to be made at a cost.
void choose_draft_lengths(DraftLengths& lengths, const StepCosts& costs);

}  // namespace heddle
