// The functions of c_engine.h about receipts of adapters.
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "heddle/c_engine.h"
#include "heddle/core/error.h"

#include "capi/last_error.h"
#include "engine/bindings/engine_arguments.h"
#include "engine/bindings/engine_handle.h"

namespace heddle::capi {
namespace {

double norm_of(std::optional<double> norm) {
  return norm.value_or(std::numeric_limits<double>::quiet_NaN());
}

/// A receipt with what it points to.
struct GivenReceipt : heddle_engine_receipt {
  explicit GivenReceipt(AdapterReceipt&& given)
      : heddle_engine_receipt(), receipt(std::move(given)), text(receipt.summary()) {
    for (const AdapterSite& site : receipt.sites) {
      views.push_back({.module = view_of(site.module),
                       .kind = view_of(site.kind),
                       .rank = site.rank,
                       .scale = site.scale,
                       .dtype = view_of(site.dtype),
                       .delta_norm = norm_of(site.delta_norm),
                       .base_norm = norm_of(site.base_norm)});
    }
    static_cast<heddle_engine_receipt&>(*this) = {.digest = view_of(receipt.digest),
                                                  .tensors_given = receipt.tensors_given,
                                                  .tensors_applied = receipt.tensors_applied,
                                                  .sites = views.data(),
                                                  .num_sites = views.size(),
                                                  .delta_norm = norm_of(receipt.delta_norm()),
                                                  .base_norm = norm_of(receipt.base_norm()),
                                                  .is_zero = receipt.is_zero,
                                                  .summary = view_of(text)};
  }
  AdapterReceipt receipt;
  std::string text;
  std::vector<heddle_engine_site> views;
};

}  // namespace
}  // namespace heddle::capi

using heddle::capi::guard;
using heddle::capi::required;

heddle_status heddle_engine_adapter_receipt(heddle_engine* engine, heddle_string name,
                                            bool with_norms, heddle_engine_receipt** receipt) {
  return guard([&] {
    required("receipt", receipt) = nullptr;
    const heddle::EngineThread& thread = required("engine", engine).thread;
    const std::string key = heddle::capi::string_of("name", name, heddle::capi::kMaxName);
    auto given = thread.adapter_receipt(
        key, with_norms ? heddle::ReceiptNorms::kComputed : heddle::ReceiptNorms::kAsKnown);
    HEDDLE_CHECK(given, "adapter \"", key, "\" was not loaded yet: no request has named it");
    *receipt = std::make_unique<heddle::capi::GivenReceipt>(std::move(*given)).release();
  });
}

void heddle_engine_receipt_destroy(heddle_engine_receipt* receipt) {
  delete static_cast<heddle::capi::GivenReceipt*>(receipt);
}
