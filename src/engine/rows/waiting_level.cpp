#include "engine/rows/waiting_level.h"

#include <tuple>
#include <utility>

#include "engine/rows/admission.h"

namespace heddle {
namespace {

constexpr size_t kFewTenants = 64;  // that are remembered in any case

/// What a request is charged when it starts, if the prefix cache has nothing of its prompt.
int64_t starting_cost(const Sequence& row) {
  return row.cache.was_parked ? 0 : row.request.prompt_tokens;
}

}  // namespace

bool LessServed::operator()(const Tenant* a, const Tenant* b) const noexcept {
  return std::tie(a->served, a->oldest) < std::tie(b->served, b->oldest);
}

WaitingLevel::List::List() {
  rows.reserve(kMaxScheduledRows);
  tenants.reserve(kMaxScheduledRows + 1);
}

WaitingLevel::WaitingLevel() : forget_above_(kFewTenants) { everyone_ = last_ = tenant("", 1); }

WaitingLevel::~WaitingLevel() {
  for (const auto& [name, tenant] : tenants_) tenant->rows.clear();
}

std::shared_ptr<Tenant> WaitingLevel::tenant(const std::string& name, double weight) {
  auto place = tenants_.find(name);
  if (place == tenants_.end()) {
    forget_idle();
    const auto made = std::make_shared<Tenant>();
    made->name = name;
    made->level = this;
    Tenant::Order one{made.get()};
    made->node = one.extract(one.begin());
    place = tenants_.emplace(name, made).first;
  }
  place->second->weight = weight;
  return place->second;
}

/// Those that come back as they would if they were remembered: without requests, and charged no
/// more than whoever comes anew.
void WaitingLevel::forget_idle() {
  if (tenants_.size() < forget_above_) return;
  const double least = least_served();
  std::erase_if(tenants_, [least](const auto& each) {
    return each.second.use_count() == 1 && each.second->served <= least;
  });
  forget_above_ = std::max(kFewTenants, 2 * tenants_.size());
}

bool WaitingLevel::is_idle() const noexcept {
  if (size_ > 0) return false;
  return std::ranges::all_of(tenants_, [this](const auto& each) {
    const std::shared_ptr<Tenant>& tenant = each.second;
    const int num_own = 1 + (tenant == everyone_ ? 1 : 0) + (tenant == last_ ? 1 : 0);
    return tenant.use_count() == num_own;
  });
}

double WaitingLevel::least_served() const noexcept {
  return order_.empty() ? last_->served : (*order_.begin())->served;
}

/// Changes what the tenant's place in the order depends on.
template <class Change>
void WaitingLevel::change(const std::shared_ptr<Tenant>& tenant, const Change& apply) noexcept {
  const bool has_waited = tenant->oldest.has_value();
  if (has_waited) tenant->node = order_.extract(tenant.get());
  apply();
  const Place ready = first_ready(*tenant, tenant->rows.begin());
  if (ready == tenant->rows.end()) {
    tenant->oldest.reset();
    if (has_waited) last_ = tenant;
    return;
  }
  tenant->oldest = ready->id;
  if (!has_waited) tenant->served = std::max(tenant->served, least_served());
  order_.insert(std::move(tenant->node));
}

void WaitingLevel::add(Sequences& from, Place row) noexcept {
  Sequences& rows = row->tenant->rows;
  auto place = rows.end();
  while (place != rows.begin() && std::prev(place)->id > row->id) --place;
  change(row->tenant, [&] { rows.splice(place, from, row); });
  ++size_;
}

void WaitingLevel::move_to(Sequences& to, Place before, Place row) noexcept {
  change(row->tenant, [&] { to.splice(before, row->tenant->rows, row); });
  --size_;
}

void WaitingLevel::set_paused(Sequence& row, bool is_paused) noexcept {
  change(row.tenant, [&] { row.is_paused = is_paused; });
}

void WaitingLevel::charge(const Sequence& row, int64_t num_tokens) noexcept {
  change(row.tenant,
         [&] { row.tenant->served += static_cast<double>(num_tokens) / row.tenant->weight; });
}

WaitingLevel::Place WaitingLevel::first_ready(Tenant& tenant, Place from) noexcept {
  return std::find_if(from, tenant.rows.end(), [](const Sequence& row) { return !row.is_paused; });
}

bool WaitingLevel::is_after(const Head& a, const Head& b) noexcept {
  return std::tuple(a.served, a.row->id) > std::tuple(b.served, b.row->id);
}

/// The tenants join a heap one by one, when the first request of each may be the next one.
void WaitingLevel::list(List& to) noexcept {
  std::vector<Head>& heads = to.tenants;
  heads.clear();
  const auto push = [&heads](const Head& head) {
    heads.push_back(head);
    std::ranges::push_heap(heads, is_after);
  };
  auto tenant = order_.begin();
  std::optional<Head> joins;  // of the tenants that are not in the heap: the first one
  const auto look = [&] {
    joins.reset();
    if (tenant == order_.end()) return;
    joins = {(*tenant)->served, *tenant, first_ready(**tenant, (*tenant)->rows.begin())};
  };
  for (look(); to.rows.size() < kMaxScheduledRows && (joins || !heads.empty());) {
    if (joins && (heads.empty() || is_after(heads.front(), *joins))) {
      push(*joins);
      ++tenant;
      look();
      continue;
    }
    std::ranges::pop_heap(heads, is_after);
    Head next = heads.back();
    heads.pop_back();
    to.rows.push_back(next.row);
    next.served += static_cast<double>(starting_cost(*next.row)) / next.tenant->weight;
    next.row = first_ready(*next.tenant, std::next(next.row));
    if (next.row != next.tenant->rows.end()) push(next);
  }
}

}  // namespace heddle
