#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/engine/engine.h"

#include "engine/adapters/adapter_store.h"
#include "engine/cache/prefix_cache.h"
#include "engine/drafters/model_drafter.h"
#include "engine/face/drafter.h"
#include "engine/face/engine_options.h"
#include "engine/face/made_engine.h"
#include "engine/face/stored_pages.h"
#include "engine/options/model_defaults.h"
#include "engine/options/tenants.h"
#include "engine/options/weight_options.h"
#include "engine/rows/row_queue.h"
#include "engine/rows/scheduler.h"
#include "engine/rules/grammar/format_compiler.h"
#include "engine/runner/model_runner.h"
#include "engine/text/prompt_tokens.h"
#include "engine/text/row_text.h"
#include "model/source/model_files.h"

namespace heddle {

/// A step that is in flight while it has a handle.
struct StepInFlight {
  explicit StepInFlight(int max_batch) { schedule.rows.reserve(static_cast<size_t>(max_batch)); }

  StepSchedule schedule{};
  std::optional<StepHandle> handle{};
  bool is_drawn = false;  // what draws its tokens is launched, too
  std::chrono::steady_clock::time_point begin{};
};

struct Engine::State {
  explicit State(const EngineOptions& given) : State(given, model::open_model(given.model_path)) {}
  State(const EngineOptions& given, std::unique_ptr<const model::ModelFiles> opened,
        EngineHooks given_hooks = {})
      : files(std::move(opened)),
        config(files->config()),
        hooks(std::move(given_hooks)),
        options(complete_options(given, config, hooks.as_on_gpu)),
        fairness(fairness_of(options.fairness)),
        generation(generation_defaults(*files, options.generation_config)),
        embedding(files->embedding_settings()),
        text_of_base(text_of_model(*files, options.generation_config)),
        formats(hooks.formats),
        runner(device_of(options), *files, limits_of(options, hooks.steps_as_on_gpu),
               load_options_of(options)),
        adapters(runner, *files, text_of_base, adapter_limits(options)),
        stored(open_stored_pages(options, *files, runner, is_as_on_gpu())),
        prefixes(runner.pages(), options.page_size),
        drafter(options.speculation, options.max_batch),
        model_drafter(make_model_drafter()),
        queue(runner.pages(), queue_rules(), &adapters, shares_prefixes() ? &prefixes : nullptr,
              stored.shelf()),
        steps{StepInFlight(options.max_batch), StepInFlight(options.max_batch)} {
    options.kv_type = kv_type_name(runner.kv_dtype());
    options.kv_memory = runner.pages().num_pages() * runner.page_bytes();
    if (finds_adapters(options)) {
      options.adapter_memory = adapters.tiers().limits().memory_bytes;
      options.adapter_host_memory = adapters.tiers().limits().host_memory_bytes;
    }
    options.kv_host_memory =
        stored.host == nullptr ? 0 : stored.host->stats().max_pages * runner.page_bytes();
    if (PageTier* const tier = stored.tier()) {
      runner.adapters().set_secret(tier->secret());
      prefixes.set_store(*tier, [this](PageId page) { return runner.bytes_of(page); });
    }
    prefixes.set_copy_page([this](PageId from, PageId to) { return runner.copy_page(from, to); });
    files->check_unchanged();
    options.on_load = nullptr;  // what it refers to may be destroyed from here on
    if (drafter.is_on() && !hooks.draft) {
      drafter.set_costs(hooks.step_costs.empty() ? measured_costs() : StepCosts(hooks.step_costs));
    }
    if (model_drafter != nullptr) {
      model_rows.reserve(static_cast<size_t>(options.max_batch));
      const bool is_measured = hooks.step_costs.empty();
      drafter.set_model(model_drafter->source(),
                        is_measured ? model_drafter->measured_cost() : DraftingCost{});
    }
    fill_info();
  }

  bool shares_prefixes() const { return options.prefix_cache && !keys_depend_on_length(config); }
  bool is_as_on_gpu() const {
    return hooks.as_on_gpu || device_of(options).type != DeviceType::kCpu;
  }
  RowQueue::Rules queue_rules() const;
  void fill_info();
  const RowText& text_of(const KnownAdapter* adapter) const {
    return adapter == nullptr ? text_of_base : adapter->text;
  }
  /// Of the vocabulary that the model or the adapter embeds.
  int64_t num_tokens_of(const KnownAdapter* adapter) const {
    return adapter == nullptr ? config.vocab_size : adapter->num_tokens;
  }
  void check_tokens(std::span<const int32_t> tokens, const KnownAdapter* adapter) const;
  class TokensOfRows;
  std::shared_ptr<const model::ScoreHead> score_head(const KnownAdapter* adapter) const;
  std::unique_ptr<RowValues> values_of(const Request& request, const KnownAdapter* adapter) const;
  void fill_row(Sequence& sequence, const Request& request, TokensOfRows& of_rows);
  void fill_row(Sequence& sequence, const Request& request);
  void check_length(const RowRequest& request) const;
  void check_may_switch() const;
  AdapterHold switched_from(const std::string& name, const KnownAdapter& to,
                            RunningRequests running) const;
  void switch_adapter(AdapterHold from, const AdapterHold& to);

  // The parts of Engine::step.
  void admit();
  bool reserve_events(std::vector<Event>& events);
  StepInFlight& schedule();
  void launch(StepInFlight& step);
  void draw(StepInFlight& step);
  void take_tokens(std::vector<Event>& events);
  void collect(std::vector<Event>& events);
  void publish(std::vector<Event>& events);

  [[nodiscard]] bool waits_for_format() const;
  void reserve_adjustments();
  void reserve_masks();
  void reserve_values();
  void fail_new(const std::exception& failure, bool (*concerns)(const Sequence&));
  static void check_finite(const Sequence& sequence, std::span<const float> numbers);
  void take_tokens_of(const RowStep& row, const StepTokens& tokens, std::vector<Event>& events);
  struct DrawnToken {
    int32_t token;
    float logprob;
    int64_t num_drafts;  // of its step, that it follows
  };
  void take_token(Sequence& sequence, const DrawnToken& drawn, std::vector<Event>& events);
  void take_values(Sequence& sequence);
  std::string finish_text(Sequence& sequence) const;
  void fail_step(const std::exception& failure, const StepSchedule& step);
  void count_adapters();
  void count_step(double seconds, const StepSchedule& step, int64_t num_taken);

  // Speculation.
  [[nodiscard]] std::unique_ptr<ModelDrafter> make_model_drafter();
  [[nodiscard]] std::unique_ptr<ModelDrafter> make_draft_model();
  [[nodiscard]] std::unique_ptr<ModelDrafter> make_medusa_drafter();
  [[nodiscard]] StepCosts measured_costs();
  [[nodiscard]] static bool may_draft(const Sequence& sequence);
  void draft(Sequence& sequence, int64_t max_drafts);
  void bound_drafts(Sequence& sequence, int64_t max_drafts);
  void draft_with_model() noexcept;
  void draft_tokens() noexcept;
  [[nodiscard]] bool awaits_drawn() const;
  void count_drafts(const RowStep& row, int64_t num_accepted);

  std::unique_ptr<const model::ModelFiles> files;
  const model::DecoderConfig& config;
  EngineHooks hooks;
  EngineOptions options;
  const Fairness fairness;
  GenerationDefaults generation;
  model::EmbeddingSettings embedding;
  RowText text_of_base;
  grammar::FormatCompiler formats;  // before the requests that wait for its results
  ModelRunner runner;
  AdapterStore adapters;
  ModelInfo info;
  EngineStats stats;
  RequestId next_id = 0;
  StoredPages stored;
  PrefixCache prefixes;
  Drafter drafter;
  std::unique_ptr<ModelDrafter> model_drafter;  // null: none; ends after the rows
  std::vector<ModelDrafter::Row> model_rows;    // of draft_with_model
  RowQueue queue;
  std::array<StepInFlight, 2> steps;
  // In the order of their launches; the first one may be in flight between two calls.
  StepInFlight *first_step = &steps[0], *second_step = &steps[1];
  std::chrono::steady_clock::time_point last_collected{};
  std::string ended_by;  // how the device has failed; empty: it works
};

}  // namespace heddle
