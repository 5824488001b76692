#include "engine/adapters/row_adapters.h"

#include <cmath>
#include <utility>

#include "heddle/core/error.h"

namespace heddle {
namespace {

void check_list(const Request& request) {
  const std::vector<AdapterWeight>& list = request.adapters;
  HEDDLE_CHECK(request.adapter.empty(), "a request has adapter and adapters, expected one of them");
  HEDDLE_CHECK(list.size() <= kMaxAdaptersOfRow, "adapters has ", list.size(),
               " entries, expected at most ", kMaxAdaptersOfRow);
  for (size_t i = 0; i < list.size(); ++i) {
    HEDDLE_CHECK(!list[i].name.empty(), "adapters[", i, "].name is empty");
    HEDDLE_CHECK(std::isfinite(list[i].scale), "adapters[", i, "].scale is ", list[i].scale,
                 ", expected a finite number");
    for (size_t before = 0; before < i; ++before) {
      HEDDLE_CHECK(list[before].name != list[i].name, "adapters[", i, "].name is \"", list[i].name,
                   "\", as that of adapters[", before, "]");
    }
  }
}

}  // namespace

void set_adapters(Sequence& row, const Request& request, const AdapterStore& adapters) {
  row.adapter = adapters.find(adapter_of_text(request));
  row.slot = row.adapter == nullptr ? kNoAdapter : row.adapter->slot;
  if (request.adapters.empty()) return;
  check_list(request);
  const std::vector<AdapterWeight>& list = request.adapters;
  if (list.size() == 1 && list[0].scale == 1.0f) return;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& [name, scale] = list[i];
    AdapterHold adapter = adapters.find(name);
    HEDDLE_CHECK(adapter->runs_alone.empty(), "adapters[", i, "] is \"", name, "\", which has ",
                 adapter->runs_alone, ": it runs alone, with a scale of 1");
    HEDDLE_CHECK(list.size() == 1 || !adapter->has_invocation, "adapters[", i, "] is \"", name,
                 "\", which has alora_invocation_tokens: it runs alone");
    row.uses.push_back({.slot = adapter->slot, .scale = scale});
    row.list.push_back(std::move(adapter));
  }
}

const std::string& adapter_of_text(const Request& request) {
  return request.adapters.empty() ? request.adapter : request.adapters.front().name;
}

}  // namespace heddle
