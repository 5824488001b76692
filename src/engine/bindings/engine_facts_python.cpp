#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "heddle/engine/engine.h"

namespace heddle::python {
namespace {

namespace nb = nanobind;

/// "EngineLoad(num_waiting=0, num_running=2, ...)" of an object whose fields are bound.
nb::str named_fields(const nb::handle& self) {
  const nb::handle type = self.type();
  nb::list fields;
  for (const nb::handle name : type.attr("__dict__")) {
    const auto key = nb::cast<std::string>(name);
    if (key.starts_with('_')) continue;
    fields.append(nb::str("{}={!r}").format(name, self.attr(key.c_str())));
  }
  return nb::str("{}({})").format(type.attr("__name__"), nb::str(", ").attr("join")(fields));
}

void bind_receipt(nb::module_& m) {
  nb::class_<AdapterSite>(m, "AdapterSite")
      .def_ro("module", &AdapterSite::module)
      .def_ro("kind", &AdapterSite::kind)
      .def_ro("rank", &AdapterSite::rank)
      .def_ro("scale", &AdapterSite::scale)
      .def_ro("dtype", &AdapterSite::dtype)
      .def_ro("delta_norm", &AdapterSite::delta_norm)
      .def_ro("base_norm", &AdapterSite::base_norm);
  nb::class_<AdapterReceipt>(m, "AdapterReceipt")
      .def_ro("digest", &AdapterReceipt::digest)
      .def_ro("tensors_given", &AdapterReceipt::tensors_given)
      .def_ro("tensors_applied", &AdapterReceipt::tensors_applied)
      .def_ro("sites", &AdapterReceipt::sites)
      .def_ro("is_zero", &AdapterReceipt::is_zero)
      .def_prop_ro("delta_norm", &AdapterReceipt::delta_norm)
      .def_prop_ro("base_norm", &AdapterReceipt::base_norm)
      .def("summary", &AdapterReceipt::summary)
      .def("__str__", &AdapterReceipt::summary);
}

/// Drafted and accepted.
using Counts = std::pair<int64_t, int64_t>;

Counts counts_of(const DraftCounts& counts) { return {counts.drafted, counts.accepted}; }

std::map<std::string, Counts> drafts_by_source(const EngineStats& stats) {
  std::map<std::string, Counts> drafts;
  for (size_t i = 0; i < kNumDraftSources; ++i) {
    drafts[name(static_cast<DraftSource>(i))] = counts_of(stats.draft_stats.by_source[i]);
  }
  return drafts;
}

std::vector<Counts> drafts_by_place(const EngineStats& stats) {
  std::vector<Counts> drafts;
  for (const DraftCounts& counts : stats.draft_stats.by_place) {
    if (counts.drafted > 0) drafts.push_back(counts_of(counts));  // later places have none either
  }
  return drafts;
}

/// What the engine has done, and what it has to do.
void bind_state(nb::module_& m) {
  nb::class_<EngineStats>(m, "EngineStats")
      .def_ro("prefill_seconds", &EngineStats::prefill_seconds)
      .def_ro("decode_seconds", &EngineStats::decode_seconds)
      .def_ro("lora_seconds", &EngineStats::lora_seconds)
      .def_ro("prefill_tokens", &EngineStats::prefill_tokens)
      .def_ro("decode_tokens", &EngineStats::decode_tokens)
      .def_ro("generated_tokens", &EngineStats::generated_tokens)
      .def_ro("prefill_steps", &EngineStats::prefill_steps)
      .def_ro("decode_steps", &EngineStats::decode_steps)
      .def_ro("wait_seconds", &EngineStats::wait_seconds)
      .def_ro("device_seconds", &EngineStats::device_seconds)
      .def_ro("device_gap_seconds", &EngineStats::device_gap_seconds)
      .def_ro("graphs", &EngineStats::graphs)
      .def_ro("graph_seconds", &EngineStats::graph_seconds)
      .def_ro("adapter_uses", &EngineStats::adapter_uses)
      .def_ro("adapter_loads", &EngineStats::adapter_loads)
      .def_ro("adapter_reads", &EngineStats::adapter_reads)
      .def_ro("adapter_seconds", &EngineStats::adapter_seconds)
      .def_ro("adapter_evictions", &EngineStats::adapter_evictions)
      .def_ro("prefix_tokens", &EngineStats::prefix_tokens)
      .def_ro("cached_tokens", &EngineStats::cached_tokens)
      .def_ro("host_tokens", &EngineStats::host_tokens)
      .def_ro("disk_tokens", &EngineStats::disk_tokens)
      .def_ro("parkings", &EngineStats::parkings)
      .def_prop_ro("drafted_tokens", [](const EngineStats& s) { return s.drafts.drafted; })
      .def_prop_ro("accepted_tokens", [](const EngineStats& s) { return s.drafts.accepted; })
      .def_prop_ro("drafts_by_source", &drafts_by_source)
      .def_prop_ro("drafts_by_place", &drafts_by_place)
      .def("__repr__", &named_fields);
  nb::class_<EngineLoad>(m, "EngineLoad")
      .def_ro("num_waiting", &EngineLoad::num_waiting)
      .def_ro("num_running", &EngineLoad::num_running)
      .def_ro("num_ended", &EngineLoad::num_ended)
      .def_ro("num_pages", &EngineLoad::num_pages)
      .def_ro("num_free_pages", &EngineLoad::num_free_pages)
      .def_ro("num_cached_pages", &EngineLoad::num_cached_pages)
      .def_ro("num_host_pages", &EngineLoad::num_host_pages)
      .def_ro("num_disk_pages", &EngineLoad::num_disk_pages)
      .def_ro("num_parked", &EngineLoad::num_parked)
      .def_ro("num_adapters", &EngineLoad::num_adapters)
      .def_ro("adapter_bytes", &EngineLoad::adapter_bytes)
      .def_ro("num_host_adapters", &EngineLoad::num_host_adapters)
      .def_ro("host_adapter_bytes", &EngineLoad::host_adapter_bytes)
      .def("__repr__", &named_fields);
}

void bind_model(nb::module_& m) {
  nb::class_<ModelInfo>(m, "ModelInfo")
      .def_ro("path", &ModelInfo::path)
      .def_ro("name", &ModelInfo::name)
      .def_ro("architecture", &ModelInfo::architecture)
      .def_ro("num_layers", &ModelInfo::num_layers)
      .def_ro("hidden_size", &ModelInfo::hidden_size)
      .def_ro("intermediate_size", &ModelInfo::intermediate_size)
      .def_ro("num_q_heads", &ModelInfo::num_q_heads)
      .def_ro("num_kv_heads", &ModelInfo::num_kv_heads)
      .def_ro("head_dim", &ModelInfo::head_dim)
      .def_ro("vocab_size", &ModelInfo::vocab_size)
      .def_ro("context_length", &ModelInfo::context_length)
      .def_ro("num_parameters", &ModelInfo::num_parameters)
      .def_ro("weight_bytes", &ModelInfo::weight_bytes)
      .def_ro("device_name", &ModelInfo::device_name)
      .def_ro("activations", &ModelInfo::activations)
      .def_ro("settings_path", &ModelInfo::settings_path)
      .def_ro("unread_settings", &ModelInfo::unread_settings)
      .def_ro("warnings", &ModelInfo::warnings)
      .def_ro("notes", &ModelInfo::notes)
      .def_ro("generation", &ModelInfo::generation);
  nb::class_<GenerationDefaults>(m, "GenerationDefaults")
      .def_ro("temperature", &GenerationDefaults::temperature)
      .def_ro("top_k", &GenerationDefaults::top_k)
      .def_ro("top_p", &GenerationDefaults::top_p)
      .def_ro("min_p", &GenerationDefaults::min_p)
      .def_ro("repetition_penalty", &GenerationDefaults::repetition_penalty)
      .def_ro("max_tokens", &GenerationDefaults::max_tokens)
      .def_ro("path", &GenerationDefaults::path)
      .def_ro("not_done", &GenerationDefaults::not_done)
      .def("describe", &GenerationDefaults::describe);
}

}  // namespace

void bind_engine_facts(nb::module_& m) {
  bind_model(m);
  bind_state(m);
  bind_receipt(m);
}

}  // namespace heddle::python
