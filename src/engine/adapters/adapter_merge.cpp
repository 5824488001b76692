#include "engine/adapters/adapter_merge.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/settled_read.h"
#include "files/printable.h"
#include "model/adapters/contents/adapter_contents.h"
#include "model/adapters/merge/merged_adapter.h"
#include "model/adapters/open_adapter.h"

namespace heddle {
namespace {

using Method = AdapterMerge::Method;
using Sign = AdapterMerge::MajoritySign;

constexpr std::array<std::string_view, 5> kMethods = {"linear", "ties", "dare_linear", "dare_ties",
                                                      "magnitude_prune"};
constexpr std::array<std::string_view, 2> kSigns = {"total", "frequency"};

/// The index of the name in the list. The error of another one has all names.
template <size_t N>
size_t index_of(const char* what, std::string_view name,
                const std::array<std::string_view, N>& names) {
  const auto* const found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string all;
  for (const std::string_view each : names) all.append(all.empty() ? "" : ", ").append(each);
  throw_error(ErrorCode::kInvalidArgument, what, " is ", files::quote(name), ", expected one of ",
              all);
}

bool elects_sign(Method method) { return method == Method::kTies || method == Method::kDareTies; }
bool draws(Method method) { return method == Method::kDareLinear || method == Method::kDareTies; }

std::unique_ptr<model::Adapter> open_files(const MergeRecipe::Part& part,
                                           const model::ModelFiles& files) {
  auto opened = model::open_adapter(part.path, files.config(), part.bounds);
  opened->check_fits(files.config().dims());
  return opened;
}

/// With its values, which are finite.
std::shared_ptr<const model::Adapter> load_part(const MergeRecipe& recipe,
                                                const MergeRecipe::Part& part,
                                                const model::ModelFiles& files,
                                                std::span<const std::byte> secret) {
  if (part.given != nullptr) return part.given;
  std::unique_ptr<model::Adapter> opened;
  (void)read_settled(part.path, [&] {
    opened = open_files(part, files);
    opened->load();
  });
  const model::AdapterContents contents(*opened, {}, secret);
  HEDDLE_CHECK(contents.digest() == part.content, part.path,
               ": has changed since the adapter was loaded, so ", recipe.name(),
               " cannot be made; load it, or submit the request, again");
  contents.check_finite();
  return opened;
}

}  // namespace

const char* name(Method method) { return kMethods.at(static_cast<size_t>(method)).data(); }
const char* name(Sign sign) { return kSigns.at(static_cast<size_t>(sign)).data(); }

Method merge_method(std::string_view name) {
  if (name == "svd" || name.ends_with("_svd")) {
    throw_error(ErrorCode::kUnsupported, "the merge ", files::quote(name),
                " is not supported, since it decomposes whole products; merge with PEFT's "
                "add_weighted_adapter, and load what it saves");
  }
  return static_cast<Method>(index_of("the method of a merge", name, kMethods));
}

Sign majority_sign_method(std::string_view name) {
  return static_cast<Sign>(index_of("majority_sign_method", name, kSigns));
}

void check_merge(const AdapterMerge& merge, size_t num_adapters) {
  const Method method = merge.method;
  if (method == Method::kLinear) {
    HEDDLE_CHECK(merge == AdapterMerge(),
                 "the merge is linear, which has no density, majority sign and seed");
    return;
  }
  HEDDLE_CHECK(num_adapters >= 2, "the merge is ", name(method),
               ", which takes two adapters or more, adapters has ", num_adapters);
  HEDDLE_CHECK(merge.density > 0 && merge.density <= 1, "the density of the merge is ",
               merge.density, ", ", name(method), " takes one above 0, up to 1");
  HEDDLE_CHECK(elects_sign(method) || merge.majority_sign == Sign::kTotal,
               "the majority sign of the merge is ", name(merge.majority_sign), ", but ",
               name(method), " elects no sign");
  HEDDLE_CHECK(draws(method) || merge.seed == 0, "the seed of the merge is ", merge.seed, ", but ",
               name(method), " draws nothing");
}

model::AdapterMergeRule merge_rule(const AdapterMerge& merge) {
  using Rule = model::AdapterMergeRule;
  const auto method = [&] {
    switch (merge.method) {
      case Method::kDareLinear: return Rule::Method::kDareLinear;
      case Method::kDareTies: return Rule::Method::kDareTies;
      case Method::kMagnitudePrune: return Rule::Method::kMagnitudePrune;
      case Method::kLinear:
      case Method::kTies: break;
    }
    return Rule::Method::kTies;
  }();
  return {.method = method,
          .density = merge.density,
          .majority_sign = merge.majority_sign == Sign::kTotal ? Rule::MajoritySign::kTotal
                                                               : Rule::MajoritySign::kFrequency,
          .seed = merge.seed};
}

std::string MergeRecipe::name() const {
  std::string all = "the merge of ";
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_last = i + 1 == parts.size();
    all += (i == 0 ? "" : is_last ? " and " : ", ") + files::printable(parts[i].name);
  }
  return all;
}

Digest MergeRecipe::digest(std::span<const std::byte> secret) const {
  Hasher hasher(secret);
  hasher.add(rule.method).add(rule.density).add(rule.majority_sign).add(rule.seed);
  for (const Part& part : parts)
    hasher.add(part.content.low).add(part.content.high).add(part.weight);
  return hasher.digest();
}

std::unique_ptr<model::Adapter> open_merge(const MergeRecipe& recipe,
                                           const model::ModelFiles& files) {
  std::vector<model::MergePart> parts;
  for (const MergeRecipe::Part& part : recipe.parts) {
    std::shared_ptr<const model::Adapter> opened = part.given;
    if (opened == nullptr) opened = open_files(part, files);
    parts.push_back({part.name, std::move(opened), part.weight});
  }
  auto merged =
      std::make_unique<model::MergedAdapter>(recipe.name(), std::move(parts), recipe.rule);
  merged->check_fits(files.config().dims());
  return merged;
}

std::unique_ptr<model::Adapter> load_merge(const MergeRecipe& recipe,
                                           const model::ModelFiles& files,
                                           std::span<const std::byte> secret) {
  std::vector<model::MergePart> parts;
  for (const MergeRecipe::Part& part : recipe.parts) {
    parts.push_back({part.name, load_part(recipe, part, files, secret), part.weight});
  }
  auto merged =
      std::make_unique<model::MergedAdapter>(recipe.name(), std::move(parts), recipe.rule);
  merged->load();
  return merged;
}

}  // namespace heddle
