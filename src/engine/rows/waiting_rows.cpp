#include "engine/rows/waiting_rows.h"

#include <algorithm>

#include "engine/rows/admission.h"

namespace heddle {

void WaitingRows::add(Sequences& from, Place row) noexcept {
  if (row->tenant == nullptr) row->tenant = common_.everyone();
  row->tenant->level->add(from, row);
  ++size_;
}

void WaitingRows::move_to(Sequences& to, Place before, Place row) noexcept {
  row->tenant->level->move_to(to, before, row);
  --size_;
}

void WaitingRows::set_paused(Sequence& row, bool is_paused) noexcept {
  row.tenant->level->set_paused(row, is_paused);
}

void WaitingRows::charge(const Sequence& row, int64_t num_tokens) noexcept {
  row.tenant->level->charge(row, num_tokens);
}

WaitingRows::Place WaitingRows::place_of(Sequence& row) noexcept {
  return std::ranges::find(row.tenant->rows, &row, [](const Sequence& each) { return &each; });
}

size_t WaitingRows::num_tenants() const {
  size_t count = 0;
  for (const auto& [priority, level] : levels_) count += level.num_tenants();
  return count;
}

std::span<const WaitingRows::Place> WaitingRows::order() noexcept {
  list_.rows.clear();
  for (auto next = levels_.begin(); next != levels_.end();) {
    if (list_.rows.size() >= kMaxScheduledRows) break;
    const auto place = next++;
    WaitingLevel& level = place->second;
    if (!level.is_empty()) {
      level.list(list_);
    } else if (&level != &common_ && level.is_idle()) {
      levels_.erase(place);
    }
  }
  return list_.rows;
}

}  // namespace heddle
