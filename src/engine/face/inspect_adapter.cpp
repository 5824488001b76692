#include "engine/face/inspect_adapter.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "heddle/engine/engine.h"

#include "engine/adapters/norm_worker.h"
#include "engine/runner/loaded_receipt.h"
#include "files/printable.h"
#include "model/adapters/adapter_vocabulary.h"
#include "model/adapters/contents/adapter_contents.h"
#include "model/adapters/peft_adapter.h"
#include "model/adapters/receipt/adapter_norms.h"
#include "model/adapters/slice_affine.h"

namespace heddle {
namespace {

constexpr size_t kMaxName = 72;  // bytes of a name of a model

/// Bytes of an adapter in memory, without what aligns its parts.
int64_t estimated_bytes(const model::Adapter& adapter) {
  int64_t bytes = model::affine_bytes(adapter) + model::vocabulary_bytes(adapter, false);
  for (const model::AdapterPair& pair : adapter.pairs()) {
    bytes += pair.rank * (pair.in_features + pair.out_features) *
             static_cast<int64_t>(size_of(pair.dtype));
  }
  return bytes;
}

/// What the adapter has in the embedding or the head; returns how many weights that are.
int64_t print_part(std::ostream& out, const char* name, const model::VocabularyPart& part) {
  int64_t num_weights = 0;
  if (part.pair) {
    const model::LowRank& pair = *part.pair;
    out << "  " << name << "  A [" << pair.rank << ", " << pair.in_features << "]  B ["
        << pair.out_features << ", " << pair.rank << "]  " << pair.dtype << "  scale " << pair.scale
        << "\n";
    num_weights += pair.rank * (pair.in_features + pair.out_features);
  }
  for (const auto& [what, values] : {std::pair("  instead of the base model's", &part.weight),
                                     {"  of single tokens", &part.token_rows}}) {
    if (!values->is_present()) continue;
    out << "  " << name << "  [" << values->rows << ", " << values->columns << "]  "
        << values->dtype << what << "\n";
    num_weights += values->num_elements();
  }
  return num_weights;
}

/// "30 layers (0 to 29)", or "layer 7"
std::string shown_layers(const std::set<int64_t>& layers) {
  if (layers.size() == 1) return "layer " + std::to_string(*layers.begin());
  return std::to_string(layers.size()) + " layers (" + std::to_string(*layers.begin()) + " to " +
         std::to_string(*layers.rbegin()) + ")";
}

/// Sites that differ in the layer alone.
struct SiteGroup {
  std::set<int64_t> layers{};  // none of the embedding and the head
  AdapterReceipt receipt{};    // of these sites alone
};

/// A module without its layer, and which layer that is: "model.layers.3.mlp.up_proj" is
/// "mlp.up_proj" of 3.
std::pair<std::string, std::optional<int64_t>> without_layer(const std::string& module) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!module.starts_with(kLayers)) return {module, std::nullopt};
  const size_t dot = module.find('.', kLayers.size());
  return {module.substr(dot + 1), std::stoll(module.substr(kLayers.size(), dot))};
}

void print_norms(std::ostream& out, const AdapterReceipt& receipt) {
  const std::optional<double> delta = receipt.delta_norm(), base = receipt.base_norm();
  if (delta) out << "  |delta| " << *delta;
  if (base) out << "  |W| " << *base;
  if (delta && base && *base > 0) out << "  |delta| / |W| " << *delta / *base;
}

void print_receipt(std::ostream& out, const AdapterReceipt& receipt) {
  std::map<std::string, SiteGroup> groups;
  for (const AdapterSite& site : receipt.sites) {
    const auto [module, layer] = without_layer(site.module);
    std::ostringstream what;
    what << module << "  " << site.kind;
    if (site.rank > 0) what << " of rank " << site.rank << "  scale " << site.scale;
    what << "  " << site.dtype;
    SiteGroup& group = groups[what.str()];
    if (layer) group.layers.insert(*layer);
    group.receipt.sites.push_back(site);
  }
  for (const auto& [what, group] : groups) {
    out << "  " << what;
    if (!group.layers.empty()) out << "  " << shown_layers(group.layers);
    print_norms(out, group.receipt);
    out << "\n";
  }
  out << "  " << receipt.summary() << "\n";
}

}  // namespace

std::string shown_path(const std::string& path) { return files::printable(path, path.size()); }

int64_t inspect_adapter(std::ostream& out, const std::string& path) {
  model::PeftAdapter adapter(path);
  adapter.load();
  const model::AdapterContents contents(adapter);
  contents.check_finite();
  const model::AdapterConfig& config = adapter.config();
  out << shown_path(path) << ": LoRA adapter for " << files::printable(config.base_model, kMaxName)
      << "\n  r " << config.r << ", lora_alpha " << config.lora_alpha
      << (config.use_rslora ? ", rsLoRA" : "") << (config.use_dora ? ", DoRA" : "")
      << (config.lora_bias ? ", lora_bias" : "") << "\n";
  struct Group {
    std::set<int64_t> layers;
    int64_t weights = 0;
    double squared_delta = 0;
  };
  std::map<std::string, Group> groups;  // pairs that differ in the layer alone
  for (const model::AdapterPair& pair : adapter.pairs()) {
    std::ostringstream what;
    const std::string_view module = pair.module->name;
    what << module.substr(module.find('.') + 1) << "  A [" << pair.rank << ", " << pair.in_features
         << "]  B [" << pair.out_features << ", " << pair.rank << "]  " << pair.dtype << "  scale "
         << pair.scale;
    Group& group = groups[what.str()];
    group.layers.insert(pair.layer);
    group.squared_delta += model::squared_delta(pair);
    group.weights += pair.rank * (pair.in_features + pair.out_features);
  }
  int64_t num_weights = 0;
  for (const auto& [what, group] : groups) {
    out << "  " << what << "  " << shown_layers(group.layers) << "  |scale B A| "
        << std::sqrt(group.squared_delta) << "\n";
    num_weights += group.weights;
  }
  num_weights += print_part(out, "embed_tokens", adapter.embedding());
  num_weights += print_part(out, "lm_head", adapter.head());
  const size_t num_pairs = adapter.pairs().size() + size_t{adapter.embedding().pair.has_value()} +
                           size_t{adapter.head().pair.has_value()};
  const int64_t num_bytes = estimated_bytes(adapter);
  out << "  " << num_pairs << " pairs, " << num_weights << " weights, " << num_bytes
      << " bytes of memory\n  " << receipt_of(adapter, contents.fingerprint()).summary() << "\n";
  for (const std::string& what : config.warnings) out << "  warning: " << what << "\n";
  return num_bytes;
}

void inspect_adapters_on(std::ostream& out, const std::string& base, const std::string& path,
                         const std::vector<std::string>& names) {
  // For adapters alone: the least room for rows.
  Engine engine({.model_path = base, .max_batch = 1, .max_context = 1, .prefix_cache = false});
  const auto inspect_on = [&](const std::string& folder) {
    const std::string name = "adapter";
    const AdapterInfo info = engine.add_adapter(name, folder);
    const AdapterReceipt receipt = *engine.adapter_receipt(name, ReceiptNorms::kComputed);
    (void)engine.remove_adapter(name);
    out << shown_path(folder) << ": adapter on " << shown_path(engine.model().path) << "\n";
    print_receipt(out, receipt);
    for (const std::string& what : info.warnings) out << "  warning: " << what << "\n";
    const std::string odd = odd_norms(folder, receipt);
    if (!odd.empty()) out << "  warning: " << odd << "\n";
  };
  if (names.empty()) inspect_on(path);
  for (const std::string& name : names) inspect_on(path + "/" + name);
}

}  // namespace heddle
