#include "heddle/engine/adapter_receipt.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

namespace heddle {
namespace {

std::optional<double> norm_of_all(const std::vector<AdapterSite>& sites,
                                  std::optional<double> AdapterSite::*norm) {
  double sum = 0;
  for (const AdapterSite& site : sites) {
    if (!(site.*norm)) return std::nullopt;
    sum += *(site.*norm) * *(site.*norm);
  }
  return std::sqrt(sum);
}

/// "8", or "8 to 16".
template <class T>
std::string range_of(const std::set<T>& values) {
  std::ostringstream text;
  text << *values.begin();
  if (values.size() > 1) text << " to " << *values.rbegin();
  return text.str();
}

}  // namespace

std::optional<double> AdapterReceipt::delta_norm() const {
  return norm_of_all(sites, &AdapterSite::delta_norm);
}

std::optional<double> AdapterReceipt::base_norm() const {
  return norm_of_all(sites, &AdapterSite::base_norm);
}

std::string AdapterReceipt::summary() const {
  std::set<int64_t> ranks;
  std::set<float> scales;
  std::set<std::string> dtypes;
  for (const AdapterSite& site : sites) {
    dtypes.insert(site.dtype);
    if (site.rank == 0) continue;
    ranks.insert(site.rank);
    scales.insert(site.scale);
  }
  std::ostringstream text;
  text << tensors_given << " tensors";
  if (tensors_applied != tensors_given) text << ", " << tensors_applied << " of them applied";
  text << ", " << sites.size() << (sites.size() == 1 ? " site" : " sites");
  if (!ranks.empty()) text << ", rank " << range_of(ranks) << ", scale " << range_of(scales);
  for (const std::string& dtype : dtypes) text << ", " << dtype;
  if (const auto delta = delta_norm(), base = base_norm(); delta && base && *base > 0) {
    text.precision(3);
    text << ", |delta| / |W| " << *delta / *base;
  } else if (is_zero) {
    text << ", delta 0";
  }
  text << ", digest " << digest;
  return text.str();
}

}  // namespace heddle
