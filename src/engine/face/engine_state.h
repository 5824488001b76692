#pragma once

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"

#include "engine/adapters/adapter_store.h"
#include "engine/face/engine_options.h"
#include "engine/face/made_engine.h"
#include "engine/options/model_defaults.h"
#include "engine/options/weight_options.h"
#include "engine/rows/row_queue.h"
#include "engine/rows/step_plan.h"
#include "engine/runner/model_runner.h"
#include "engine/text/prompt_tokens.h"
#include "engine/text/row_text.h"
#include "model/source/model_files.h"

namespace heddle {

/// A step that the device was asked for and whose tokens were not taken yet.
struct LaunchedStep {
  std::vector<std::pair<RequestId, Sequence*>> rows{};  // that draw in it
  int64_t num_prompt_tokens = 0;
  std::chrono::steady_clock::time_point launched_at{};
  bool is_under_way = false;
};

struct Engine::State {
  explicit State(const EngineOptions& given) : State(given, model::open_model(given.model_path)) {}
  State(const EngineOptions& given, std::unique_ptr<const model::ModelFiles> opened,
        BeforeCompute hook = {})
      : files(std::move(opened)),
        config(files->config()),
        options(complete_options(given, config)),
        generation(generation_defaults(*files, options.generation_config)),
        text_of_base(text_of_model(*files, options.generation_config)),
        runner(device_of(options), *files, limits_of(options), load_options_of(options)),
        adapters(runner, *files, text_of_base, adapter_limits(options)),
        queue(runner.pages(), options.max_batch, options.page_size, &adapters),
        plan(static_cast<size_t>(options.max_batch)),
        before_compute(std::move(hook)) {
    options.kv_type = name(runner.kv_dtype());
    options.kv_memory = runner.pages().num_pages() * runner.page_bytes();
    if (!options.adapter_dir.empty()) {
      options.adapter_memory = adapters.tiers().limits().memory_bytes;
      options.adapter_host_memory = adapters.tiers().limits().host_memory_bytes;
    }
    for (LaunchedStep& step : launched) step.rows.reserve(static_cast<size_t>(options.max_batch));
    files->check_unchanged();
    options.on_load = nullptr;  // what it refers to may be gone from here on
    fill_info();
  }

  void fill_info();
  const RowText& text_of(const KnownAdapter* adapter) const {
    return adapter == nullptr ? text_of_base : adapter->text;
  }
  void check_tokens(std::span<const int32_t> tokens, const KnownAdapter* adapter) const;
  class TokensOfRows;
  void fill_row(Sequence& row, const Request& request, TokensOfRows& of_rows);
  void fill_row(Sequence& row, const Request& request);
  void check_length(const Sequence& row) const;
  void reserve_adjustments();
  int64_t make_plan();
  void run_step(std::vector<Event>& events);
  bool runs_ahead();
  void run_ahead(std::vector<Event>& events);
  void launch(LaunchedStep& step);
  void collect(LaunchedStep& step, std::vector<Event>& events);
  static void check_finite(const Sequence& row, float logprob);
  void take_token(Sequence& row, int32_t token, float logprob, std::vector<Event>& events);
  std::string finish_text(Sequence& row) const;
  void fail_running(const std::exception& failure);
  void fail_planned(const std::exception& failure, int64_t num_prompt_tokens);
  bool fail_launched(const std::exception& failure, const LaunchedStep& step);
  void end_engine(const std::exception& failure, int64_t num_rows, int64_t num_prompt_tokens);
  void tell_ended(std::vector<Event>& events);
  void count_adapters();
  void count_step(double seconds, int64_t num_prompt_tokens, int64_t num_drawn);

  std::unique_ptr<const model::ModelFiles> files;
  const model::DecoderConfig& config;
  EngineOptions options;
  GenerationDefaults generation;
  RowText text_of_base;
  ModelRunner runner;
  AdapterStore adapters;
  ModelInfo info;
  EngineStats stats;
  RequestId next_id = 0;
  RowQueue queue;
  StepPlan plan;
  std::array<LaunchedStep, 2> launched;  // the first one may be under way between two calls
  std::chrono::steady_clock::time_point last_collected{};
  std::string ended_by;  // how the device has failed; empty: it has not
  BeforeCompute before_compute;
};

}  // namespace heddle
