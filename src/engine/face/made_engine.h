#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/engine/engine.h"

#include "engine/drafts/step_costs.h"
#include "engine/rules/grammar/format_compiler.h"

namespace heddle {

/// Called before each step is computed, with its context. What it throws, the step throws: a test
/// can so make a device fail.
using BeforeCompute = std::function<void(const ExecContext& ctx)>;

/// What tests ask of an engine besides.
struct EngineHooks {
  BeforeCompute before_compute{};
  /// On the CPU, too, there is host memory for pages, and what is drawn is never found by others or
  /// computed as a prompt.
  bool as_on_gpu = false;
  bool steps_as_on_gpu = false;  // ModelRunner::Limits
  grammar::FormatCompiler::Limits formats{};
  /// In place of the engine's own drafts: up to max_drafts tokens that would follow `tokens`, the
  /// prompt and the answer so far.
  std::function<void(std::span<const int32_t> tokens, int64_t max_drafts,
                     std::vector<int32_t>& drafts)>
      draft{};
  std::vector<StepCost> step_costs{};  // in place of those that the engine measures; empty: those
};

/// An engine with hooks.
[[nodiscard]] Engine open_engine(const EngineOptions& options, EngineHooks hooks);

/// An engine of a model whose weights are made of a seed, for measurements and tests (model/source/
/// made_model.h). config_json: as a config.json of transformers. options.weights: the type in which
/// the matrices are made, empty: bf16; options.model_path is not read. vocabulary: a GGUF file with
/// its tokens; empty: it has one.
[[nodiscard]] Engine make_engine(std::string_view config_json, uint64_t seed,
                                 const EngineOptions& options, BeforeCompute hook = {},
                                 const std::string& vocabulary = {});

}  // namespace heddle
