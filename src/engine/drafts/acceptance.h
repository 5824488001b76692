#pragma once

#include <cstdint>
#include <optional>

#include "engine/drafts/draft_lengths.h"

namespace heddle {

/// How often the drafts of a row are accepted, and whether it goes on to draft.
///
///   Acceptance acceptance(average.rate());           // of its adapter
///   lengths.rows.push_back(acceptance.offer(5));     // 5 drafts are there: how many to try
///   ...                                              // the step verifies 4 of them, 1 is accepted
///   acceptance.add_step(4, 1);                       // after every step of the row
///
/// The rate is an exponential average over drafts that were accepted (1) and the first of a step
/// that was not (0); those after it say nothing. Drafts that cannot fail are not in it.
///
/// A row whose drafts fail tries fewer, half as many after each step without an accepted one, and
/// stops once its rate is below 0.1 or 24 such steps came one after the other. Then it tries a
/// single draft, a probe, after 8 tokens, 16, 32, up to 256, each time that it fails. Once one is
/// accepted the row drafts as at its beginning. So where nothing is ever accepted a step in 256 has
/// a draft too many. A row that may draft but does not, because it does not pay in its steps, also
/// makes a probe every 64 tokens, so that its rate does not stay what it once was.
class Acceptance {
 public:
  static constexpr int kMaxDrafts = 15;
  static constexpr int64_t kFirstWait = 8, kLongestWait = 256, kIdleWait = 64;  // tokens

  /// `average`: the rate of the adapter; where that is too low to draft the row begins with a
  /// probe. Without one the row begins with a rate of 0.5, which its first drafts soon change.
  explicit Acceptance(std::optional<double> average = std::nullopt);

  /// How many of num_offered drafts, of which the first num_certain cannot fail, the row may try
  /// now. Those that cannot fail are always among them. A probe counts as one that cannot fail, so
  /// that it is tried whatever the rate is.
  [[nodiscard]] DraftOffer offer(int num_offered, int num_certain = 0) const;

  /// A step of the row has ended, in which num_drafts of its tokens were drafts and num_accepted of
  /// them were accepted, both with the first num_certain, which could not fail.
  void add_step(int num_drafts, int num_accepted, int num_certain = 0);

  [[nodiscard]] double rate() const { return rate_; }
  [[nodiscard]] bool is_stopped() const { return wait_ > 0; }

 private:
  void begin(double rate);
  void stop();
  [[nodiscard]] bool is_probe_due() const;

  double first_rate_ = 0, rate_ = 0;
  int num_observed_ = 0;    // drafts since the row began to draft, up to what the average is over
  int num_failures_ = 0;    // steps, one after the other
  int64_t wait_ = 0;        // tokens until a probe; 0: the row drafts
  int64_t num_tokens_ = 0;  // since the last step with drafts
};

/// The rate of all rows of an adapter, which new ones begin with.
class AcceptanceAverage {
 public:
  /// As Acceptance::add_step.
  void add_step(int num_drafts, int num_accepted, int num_certain = 0);
  /// None before 16 drafts.
  [[nodiscard]] std::optional<double> rate() const;

 private:
  double rate_ = 0;
  int num_observed_ = 0;
};

}  // namespace heddle
