#include "engine/drafts/acceptance.h"

#include <algorithm>

namespace heddle {
namespace {

// With 32 drafts a rate of 0.3 varies by 0.06, so that it seldom seems to be below kStopRate.
constexpr int kRowDrafts = 32;       // that the average of a row is over
constexpr int kAdapterDrafts = 256;  // and that of an adapter
constexpr int kFirstDrafts = 2;      // that the rate of the beginning counts for
constexpr double kFirstRate = 0.5;
constexpr double kStopRate = 0.1;
constexpr double kResumeRate = 0.3;  // at least, after a probe was accepted
constexpr int kMaxFailures = 24;
constexpr int kMinAverageDrafts = 16;

/// The drafts of a step that say how often drafts are accepted.
struct Observed {
  int num_accepted = 0, num_rejected = 0;
};
Observed observed(int num_drafts, int num_accepted, int num_certain) {
  const int accepted = std::max(num_accepted - num_certain, 0);
  return {accepted, num_drafts > num_certain + accepted ? 1 : 0};
}

/// Adds an observation to an average over up to max_observed of them.
void add_to_average(double& rate, int& num_observed, double value, int max_observed) {
  num_observed = std::min(num_observed + 1, max_observed);
  rate += (value - rate) / num_observed;
}

void add_all(double& rate, int& num_observed, const Observed& step, int max_observed) {
  for (int i = 0; i < step.num_accepted; ++i) add_to_average(rate, num_observed, 1, max_observed);
  if (step.num_rejected > 0) add_to_average(rate, num_observed, 0, max_observed);
}

}  // namespace

Acceptance::Acceptance(std::optional<double> average) {
  const double rate = average.value_or(kFirstRate);
  first_rate_ = rate >= 0 ? std::min(rate, 1.0) : 0;
  begin(first_rate_);
  if (first_rate_ < kStopRate) stop();
}

void Acceptance::begin(double rate) {
  rate_ = rate;
  num_observed_ = kFirstDrafts;
  num_failures_ = 0;
  wait_ = 0;
}

/// Or waits longer, where it has stopped already.
void Acceptance::stop() {
  wait_ = wait_ == 0 ? kFirstWait : std::min(2 * wait_, kLongestWait);
  num_tokens_ = 0;
}

bool Acceptance::is_probe_due() const { return num_tokens_ >= (is_stopped() ? wait_ : kIdleWait); }

DraftOffer Acceptance::offer(int num_offered, int num_certain) const {
  const int certain = std::clamp(num_certain, 0, std::max(num_offered, 0));
  int uncertain = std::max(num_offered, 0) - certain;
  if (uncertain > 0 && is_probe_due()) return {certain + 1, certain + 1, rate_};
  if (is_stopped()) {
    uncertain = 0;
  } else if (num_failures_ > 0) {
    uncertain = std::min(uncertain, std::max((kMaxDrafts + 1) >> num_failures_, 1));
  }
  return {certain + uncertain, certain, rate_};
}

void Acceptance::add_step(int num_drafts, int num_accepted, int num_certain) {
  const Observed step = observed(num_drafts, num_accepted, num_certain);
  if (step.num_accepted + step.num_rejected == 0) {
    num_tokens_ += 1 + num_accepted;
    return;
  }
  if (is_stopped()) {
    if (step.num_accepted == 0) return stop();
    begin(std::max(first_rate_, kResumeRate));
  }
  num_tokens_ = 0;
  num_failures_ = step.num_accepted > 0 ? 0 : num_failures_ + 1;
  add_all(rate_, num_observed_, step, kRowDrafts);
  if (rate_ < kStopRate || num_failures_ >= kMaxFailures) stop();
}

void AcceptanceAverage::add_step(int num_drafts, int num_accepted, int num_certain) {
  add_all(rate_, num_observed_, observed(num_drafts, num_accepted, num_certain), kAdapterDrafts);
}

std::optional<double> AcceptanceAverage::rate() const {
  if (num_observed_ < kMinAverageDrafts) return std::nullopt;
  return rate_;
}

}  // namespace heddle
