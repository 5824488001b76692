#include "engine/options/tenants.h"

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle {
namespace {

constexpr size_t kLongestName = 256;  // bytes
constexpr double kLeastWeight = 1e-3, kMostWeight = 1e3;

}  // namespace

Fairness fairness_of(const std::string& option) {
  if (option.empty() || option == "off") return Fairness::kOff;
  if (option == "adapter") return Fairness::kAdapter;
  HEDDLE_CHECK(option == "tenant", "fairness is ", files::quote(option),
               ", expected off, adapter or tenant");
  return Fairness::kTenant;
}

std::string tenant_of(const Request& request, Fairness fairness) {
  HEDDLE_CHECK(request.tenant.empty() || fairness == Fairness::kTenant, "tenant is ",
               files::quote(request.tenant),
               ", but tenants do not share the engine; make it with fairness tenant");
  HEDDLE_CHECK(request.tenant.size() <= kLongestName, "tenant has ", request.tenant.size(),
               " bytes, expected at most ", kLongestName);
  const double weight = request.tenant_weight;
  HEDDLE_CHECK(weight >= kLeastWeight && weight <= kMostWeight, "tenant_weight is ", weight,
               ", expected ", kLeastWeight, " to ", kMostWeight);
  HEDDLE_CHECK(weight == 1 || fairness != Fairness::kOff, "tenant_weight is ", weight,
               ", but there are no shares of the engine; make it with fairness adapter or "
               "tenant");
  if (fairness != Fairness::kAdapter) return request.tenant;
  return request.adapters.empty() ? request.adapter : request.adapters.front().name;
}

}  // namespace heddle
