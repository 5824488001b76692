#include "api/forms/receipt_json.h"

#include <utility>

#include "api/forms/token_json.h"

namespace heddle::serve {
namespace {

json norm_json(std::optional<double> norm) { return norm ? json(*norm) : json(); }

}  // namespace

JsonObject receipt_json(const AdapterReceipt& receipt) {
  JsonArray sites;
  for (const AdapterSite& site : receipt.sites) {
    JsonObject one{{"module", site.module}, {"kind", site.kind}, {"dtype", site.dtype}};
    if (site.rank > 0) {
      one["rank"] = site.rank;
      one["scale"] = site.scale;
    }
    one["delta_norm"] = norm_json(site.delta_norm);
    one["base_norm"] = norm_json(site.base_norm);
    sites.push_back(std::move(one));
  }
  return {{"digest", receipt.digest},
          {"summary", receipt.summary()},
          {"tensors_given", receipt.tensors_given},
          {"tensors_applied", receipt.tensors_applied},
          {"is_zero", receipt.is_zero},
          {"delta_norm", norm_json(receipt.delta_norm())},
          {"base_norm", norm_json(receipt.base_norm())},
          {"sites", std::move(sites)}};
}

}  // namespace heddle::serve
