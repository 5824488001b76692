#include "engine/adapters/row_adapters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "heddle/core/error.h"

namespace heddle {
namespace {

void check_list(const Request& request) {
  const std::vector<AdapterWeight>& list = request.adapters;
  HEDDLE_CHECK(request.adapter.empty(),
               "a request has adapter and adapters, expected only one of them");
  HEDDLE_CHECK(list.size() <= kMaxAdaptersOfRow, "adapters has ", list.size(),
               " entries, expected at most ", kMaxAdaptersOfRow);
  for (size_t i = 0; i < list.size(); ++i) {
    HEDDLE_CHECK(!list[i].name.empty(), "adapters[", i, "].name is empty");
    HEDDLE_CHECK(std::isfinite(list[i].scale), "adapters[", i, "].scale is ", list[i].scale,
                 ", expected a finite number");
    for (size_t before = 0; before < i; ++before) {
      HEDDLE_CHECK(list[before].name != list[i].name, "adapters[", i, "].name is \"", list[i].name,
                   "\", which adapters[", before, "] already has");
    }
  }
}

void set_merge(RowAdapters& to, const Request& request, AdapterStore& adapters) {
  std::vector<AdapterHold> parts;
  for (const AdapterWeight& each : request.adapters) parts.push_back(adapters.find(each.name));
  to.holds.push_back(adapters.find_merge(request.adapters, parts, request.merge));
  to.of_text = std::move(parts.front());
}

}  // namespace

void set_adapters(RowAdapters& to, const Request& request, AdapterStore& adapters) {
  const std::vector<AdapterWeight>& list = request.adapters;
  check_merge(request.merge, list.size());
  if (list.empty()) {
    if (!request.adapter.empty()) to.holds.push_back(adapters.find(request.adapter));
  } else {
    check_list(request);
  }
  if (request.merge.method != AdapterMerge::Method::kLinear) {
    set_merge(to, request, adapters);
    return adapters.check_ever_fit(to.holds);
  }
  const bool is_plain = list.size() == 1 && list[0].scale == 1.0f;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto& [name, scale] = list[i];
    AdapterHold adapter = adapters.find(name);
    HEDDLE_CHECK(is_plain || adapter->runs_alone.empty(), "adapters[", i, "] is \"", name,
                 "\", which has ", adapter->runs_alone,
                 ": it must be the only adapter, with a scale of 1");
    HEDDLE_CHECK(list.size() == 1 || adapter->invocation.empty(), "adapters[", i, "] is \"", name,
                 "\", which has alora_invocation_tokens: it must be the only adapter");
    if (!is_plain) to.uses.push_back({.scale = scale});
    to.holds.push_back(std::move(adapter));
  }
  adapters.check_ever_fit(to.holds);
}

void set_active_positions(RowAdapters& adapters, std::span<const int32_t> prompt) {
  adapters.active_from = 0;
  adapters.keys_from = RowAdapters::kNever;
  if (adapters.holds.empty()) return;
  const std::vector<int32_t>& invocation = adapters.first()->invocation;
  if (!invocation.empty()) {
    // Clang 14, which builds the fuzz targets, does not compile that of std::ranges.
    const auto found =
        std::find_end(prompt.begin(), prompt.end(), invocation.begin(), invocation.end());
    adapters.active_from = found == prompt.end() ? RowAdapters::kNever : found - prompt.begin();
  }
  adapters.keys_from = adapters.first()->has_embedding ? 0 : adapters.active_from;
}

void check_switch(const KnownAdapter& from, const KnownAdapter& to) {
  const auto check = [&](bool is_same, std::string_view what) {
    HEDDLE_CHECK(is_same, to.path, ": requests that run cannot go on with it, since it has ", what,
                 " than the adapter that they began with; replace that with running \"finish\"");
  };
  check(from.text.tokenizer == to.text.tokenizer, "another tokenizer");
  check(from.text.end_tokens == to.text.end_tokens, "other end tokens");
  check(from.num_tokens == to.num_tokens, "an embedding of more or fewer tokens");
  check(from.num_logits == to.num_logits, "a head of more or fewer tokens");
  check(from.invocation == to.invocation, "other alora_invocation_tokens");
  const bool acts_late = !from.invocation.empty();
  check(!acts_late || from.has_embedding == to.has_embedding, "another kind of embedding");
  check(!from.runs_alone.empty() || to.runs_alone.empty(),
        std::string(to.runs_alone) + ", which lists of adapters cannot have, rather");
}

const std::string& adapter_of_text(const Request& request) {
  return request.adapters.empty() ? request.adapter : request.adapters.front().name;
}

}  // namespace heddle
