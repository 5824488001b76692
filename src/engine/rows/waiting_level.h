#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/rows/sequence.h"

namespace heddle {

class WaitingLevel;

struct LessServed {
  bool operator()(const Tenant* a, const Tenant* b) const noexcept;
};

/// One of those that share an engine: an adapter, or a key of a server. Each priority has its own.
struct Tenant {
  using Order = std::set<Tenant*, LessServed>;

  std::string name{};
  WaitingLevel* level = nullptr;      // whose tenant it is
  double weight = 1;                  // its share, relative to those of others
  double served = 0;                  // tokens over the weight that they were charged at
  Sequences rows{};                   // that wait, in the order in which they were submitted
  std::optional<RequestId> oldest{};  // that is not paused; none: the tenant does not wait
  Order::node_type node{};            // its place in the order while it does not wait
};

/// The requests of one priority that wait, and in which order they start: virtual token counters
/// (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024) with weights.
///
/// A tenant is charged its tokens as they are served, each divided by its weight: the prompt
/// without what the prefix cache had, when the request starts, and each drawn token. Next is the
/// oldest request of the tenant that has been charged the least; of several such tenants the one
/// whose request is the oldest. A tenant that waits again, after none of its requests did, is not
/// charged less than the least of those that wait, or where none waits than the last that did: no
/// one saves up credit, and none pays for having had the engine alone. So between two tenants that
/// wait, what they were served over their weights differs by at most what the requests that run at
/// once are charged, and one: each place in the batch costs one request.
///
/// Where all requests are of one tenant, that is first come, first served. A paused request does
/// not wait for the engine: it is not in the order, and a tenant of paused requests does not wait.
///
/// Nothing allocates but `tenant`. A change takes O(log t) of t tenants that wait, `list`
/// O(n log n) of the n requests that it lists, however many wait.
class WaitingLevel {
 public:
  using Place = Sequences::iterator;
  struct Head {
    double served = 0;  // of its tenant when it is next
    Tenant* tenant = nullptr;
    Place row{};
  };
  /// Room for kMaxScheduledRows, which levels share.
  struct List {
    std::vector<Place> rows{};    // that were listed
    std::vector<Head> tenants{};  // a heap, of the level that is being listed

    List();
  };

  WaitingLevel();
  WaitingLevel(const WaitingLevel&) = delete;
  WaitingLevel& operator=(const WaitingLevel&) = delete;
  /// Requests and tenants hold each other, so requests that still wait are let go here.
  ~WaitingLevel();

  /// The tenant of this name; it has this weight, above 0, from here on. A tenant without requests
  /// is forgotten as soon as that changes nothing.
  [[nodiscard]] std::shared_ptr<Tenant> tenant(const std::string& name, double weight);

  /// Takes a request over, after those of its tenant that were submitted before it.
  void add(Sequences& from, Place row) noexcept;
  /// Moves a request that waits before a place in another list.
  void move_to(Sequences& to, Place before, Place row) noexcept;
  void set_paused(Sequence& row, bool is_paused) noexcept;
  /// So many more tokens were served, or below 0 less, to a request that waits or runs.
  void charge(const Sequence& row, int64_t num_tokens) noexcept;

  /// Adds the requests in the order in which they would start, if each were charged its prompt, up
  /// to kMaxScheduledRows in all.
  void list(List& to) noexcept;

  /// The tenant without a name, which requests have that none was given to.
  [[nodiscard]] const std::shared_ptr<Tenant>& everyone() const { return everyone_; }
  [[nodiscard]] bool is_empty() const { return size_ == 0; }
  /// Whether no request has one of its tenants, neither one that waits nor one that runs.
  [[nodiscard]] bool is_idle() const noexcept;
  /// visit(const Sequence&), tenant by tenant.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [name, tenant] : tenants_) std::ranges::for_each(tenant->rows, visit);
  }
  /// A request that the condition holds of; nullptr: there is none.
  template <class Condition>
  [[nodiscard]] Sequence* find(const Condition& holds) {
    for (const auto& [name, tenant] : tenants_) {
      const auto place = std::ranges::find_if(tenant->rows, holds);
      if (place != tenant->rows.end()) return &*place;
    }
    return nullptr;
  }
  /// Tenants that are remembered.
  [[nodiscard]] size_t num_tenants() const { return tenants_.size(); }

 private:
  [[nodiscard]] static bool is_after(const Head& a, const Head& b) noexcept;
  [[nodiscard]] static Place first_ready(Tenant& tenant, Place from) noexcept;
  [[nodiscard]] double least_served() const noexcept;
  template <class Change>
  void change(const std::shared_ptr<Tenant>& tenant, const Change& apply) noexcept;
  void forget_idle();

  // Shared with the requests: one that has none is forgotten.
  std::map<std::string, std::shared_ptr<Tenant>> tenants_;
  std::shared_ptr<Tenant> everyone_;
  std::shared_ptr<Tenant> last_;  // that waited
  Tenant::Order order_;           // of the tenants that wait
  size_t forget_above_;           // tenants
  int64_t size_ = 0;
};

}  // namespace heddle
