#include "engine_record.h"

#include <string>

#include "figures.h"

namespace heddle::app {

nlohmann::ordered_json engine_record(const char* what, const Engine& engine,
                                     const BenchOptions& options) {
  const ModelInfo& model = engine.model();
  const std::string& weights = options.model.engine.weights;
  return {{"what", what},
          {"device",
           {{"name", model.device_name.empty() ? "CPU" : model.device_name},
            {"threads", engine.options().num_threads}}},
          {"commit", options.commit},
          {"date", today()},
          {"model", options.shape},
          {"weights", weights.empty() ? "bf16" : weights},
          {"activations", model.activations},
          {"kv_type", engine.options().kv_type},
          {"speculation", engine.options().speculation.method},
          {"page_size", engine.options().page_size},
          {"prefill_chunk", engine.options().prefill_chunk},
          {"weight_bytes", model.weight_bytes},
          {"rank", options.rank},
          {"records", nlohmann::ordered_json::array()}};
}

}  // namespace heddle::app
