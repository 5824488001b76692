#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "engine/rows/waiting_level.h"

namespace heddle {

/// The requests that wait, and in which order they start: those of the lowest priority first, and
/// among these as their WaitingLevel says. A priority has shares of its own: what a tenant was
/// served at one counts at no other.
///
/// Any number may be a priority, such as the time at which each request is due. One that no request
/// has any longer, waiting or running, is forgotten with its shares, but for 0.
///
/// Nothing allocates but `tenant`. A change takes what it takes of a level, `order` O(n log n) of
/// the n requests that it lists, however many wait and of however many priorities.
class WaitingRows {
 public:
  using Place = WaitingLevel::Place;

  WaitingRows() = default;
  WaitingRows(const WaitingRows&) = delete;
  WaitingRows& operator=(const WaitingRows&) = delete;

  /// WaitingLevel::tenant of a priority.
  [[nodiscard]] std::shared_ptr<Tenant> tenant(const std::string& name, double weight,
                                               int64_t priority = 0) {
    return levels_[priority].tenant(name, weight);
  }

  /// Takes a request over, after those of its tenant that were submitted before it. One without a
  /// tenant is of priority 0, and of a common tenant.
  void add(Sequences& from, Place row) noexcept;
  /// Moves a request that waits before a place in another list.
  void move_to(Sequences& to, Place before, Place row) noexcept;
  void set_paused(Sequence& row, bool is_paused) noexcept;
  /// So many more tokens were served, or below 0 less, to a request that waits or runs.
  void charge(const Sequence& row, int64_t num_tokens) noexcept;

  /// The first kMaxScheduledRows requests in the order in which they would start, if each were
  /// charged its prompt. Valid until the next call.
  [[nodiscard]] std::span<const Place> order() noexcept;

  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] bool is_empty() const { return size_ == 0; }
  /// Where this request waits.
  [[nodiscard]] static Place place_of(Sequence& row) noexcept;
  /// visit(const Sequence&), priority by priority and tenant by tenant.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [priority, level] : levels_) level.for_each(visit);
  }
  /// A request that the condition holds of; nullptr: there is none.
  template <class Condition>
  [[nodiscard]] Sequence* find(const Condition& holds) {
    for (auto& [priority, level] : levels_) {
      if (Sequence* const found = level.find(holds)) return found;
    }
    return nullptr;
  }
  /// Tenants that are remembered, of each priority.
  [[nodiscard]] size_t num_tenants() const;
  /// Priorities that are remembered.
  [[nodiscard]] size_t num_priorities() const { return levels_.size(); }

 private:
  std::map<int64_t, WaitingLevel> levels_;
  WaitingLevel& common_ = levels_[0];
  WaitingLevel::List list_;
  int64_t size_ = 0;
};

}  // namespace heddle
