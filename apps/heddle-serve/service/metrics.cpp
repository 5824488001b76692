#include "service/metrics.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "heddle/config.h"

#include "commit.h"
#include "service/label_names.h"
#include "service/process_use.h"

namespace heddle::serve {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

// Names that are labels, before the rest is "other".
constexpr size_t kMostAdapters = 1000;
constexpr size_t kMostTimedAdapters = 100;  // each has some 40 lines
constexpr size_t kMostKeys = 200;

const Buckets kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                          0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80};
const Buckets kTokenGap{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                        0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5};
const Buckets kWhole{0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                     10,   15,  20,  30,  40,  50, 60,  120, 240};

// Of each adapter; every bound is one of the two above.
const Buckets kAdapterFirstToken{0.01, 0.02, 0.04, 0.06, 0.1, 0.25, 0.5,
                                 0.75, 1,    2.5,  5,    10,  20,   40};
const Buckets kAdapterWhole{0.1, 0.3, 0.5, 1, 1.5, 2.5, 5, 10, 15, 20, 30, 60, 120, 240};

constexpr const char* kPagesHelp =
    "Pages of the KV cache: in use by rows, free with what the prefix cache has, and otherwise "
    "free";

}  // namespace

struct Metrics::State {
  using Labels = prometheus::Labels;

  /// Of an engine that speculates; of others there are none.
  struct Drafts {
    explicit Drafts(State& state)
        : rounds(state.counter("vllm:spec_decode_num_drafts_total",
                               "Times that a step had drafts of a row")),
          drafted(state.counter("vllm:spec_decode_num_draft_tokens_total",
                                "Tokens that were drafted and verified")),
          accepted(state.counter("vllm:spec_decode_num_accepted_tokens_total",
                                 "Drafts that were accepted")),
          accepted_at(state.counters("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                                     "Drafts that were accepted, by their place in the row")),
          by_source(state.counters("heddle:draft_tokens_total",
                                   "Drafts and those that were accepted, by their source")),
          by_place(state.counters("heddle:draft_tokens_by_place_total",
                                  "Drafts and those that were accepted, by their place")),
          by_adapter(
              state.counters("heddle:adapter_draft_tokens_total",
                             "Drafts of ended answers and those that were accepted, by adapter")) {}
    Counter &rounds, &drafted, &accepted;
    Family<Counter>&accepted_at, &by_source, &by_place, &by_adapter;
  };

  State(const EngineOptions& options, int64_t num_pages, const std::string& model_name)
      : base{{"model_name", model_name}}, max_lora(std::to_string(options.max_batch)) {
    gauge("vllm:cache_config_info", "Pages of the KV cache",
          {{"block_size", std::to_string(options.page_size)},
           {"enable_prefix_caching", options.prefix_cache ? "True" : "False"},
           {"num_gpu_blocks", std::to_string(num_pages)}})
        .Set(1);
    gauge("heddle:build_info", "1, of the version that runs",
          {{"version", kVersion}, {"commit", app::commit()}, {"device", options.device}})
        .Set(1);
    if (options.speculation.method != "off") drafts.emplace(*this);
  }

  Labels with(Labels more) const {
    more.insert(base.begin(), base.end());
    return more;
  }
  Family<Gauge>& gauges(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  Family<Counter>& counters(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Family<Histogram>& histograms(const std::string& name, const std::string& help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  }
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {}) {
    return gauges(name, help).Add(with(labels));
  }
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {}) {
    return counters(name, help).Add(with(labels));
  }
  Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) {
    return histograms(name, help).Add(base, buckets);
  }
  void show(const ProcessUse& use) {
    raise_to(cpu_seconds, use.cpu_seconds);
    start_time.Set(use.start_time);
    resident_bytes.Set(static_cast<double>(use.resident_bytes));
    virtual_bytes.Set(static_cast<double>(use.virtual_bytes));
    open_files.Set(static_cast<double>(use.num_open_files));
    max_open_files.Set(static_cast<double>(use.max_open_files));
  }
  void show(const std::string& tenant, const TenantUse& use) {
    const Labels of_tenant = with({{"tenant", tenant}});
    tenant_waiting.Add(of_tenant).Set(static_cast<double>(use.num_waiting));
    tenant_running.Add(of_tenant).Set(static_cast<double>(use.num_running));
    for (const auto& [kind, count] :
         {std::pair("prompt", use.prompt_tokens), {"answer", use.answer_tokens}}) {
      raise_to(tenant_tokens.Add(with({{"tenant", tenant}, {"kind", kind}})),
               static_cast<double>(count));
    }
  }
  void show(const DraftCounts& total, const DraftStats& stats) {
    const auto show_counts = [this](Family<Counter>& family, const char* label,
                                    const std::string& value, const DraftCounts& counts) {
      for (const auto& [kind, count] :
           {std::pair("drafted", counts.drafted), {"accepted", counts.accepted}}) {
        raise_to(family.Add(with({{label, value}, {"kind", kind}})), static_cast<double>(count));
      }
    };
    raise_to(drafts->rounds, static_cast<double>(stats.by_place.front().drafted));
    raise_to(drafts->drafted, static_cast<double>(total.drafted));
    raise_to(drafts->accepted, static_cast<double>(total.accepted));
    for (size_t i = 0; i < stats.by_source.size(); ++i) {
      show_counts(drafts->by_source, "source", name(static_cast<DraftSource>(i)),
                  stats.by_source[i]);
    }
    for (size_t i = 0; i < stats.by_place.size(); ++i) {
      const DraftCounts& counts = stats.by_place[i];
      if (counts.drafted == 0) break;  // later places have none either
      const std::string place = std::to_string(i);
      show_counts(drafts->by_place, "place", place, counts);
      raise_to(drafts->accepted_at.Add(with({{"position", place}})),
               static_cast<double>(counts.accepted));
    }
  }
  static void raise_to(Counter& counter, double value) {
    if (value > counter.Value()) counter.Increment(value - counter.Value());
  }

  prometheus::Registry registry;
  Labels base;
  std::string max_lora;
  Gauge& running = gauge("vllm:num_requests_running", "Rows in the batch");
  Gauge& waiting = gauge("vllm:num_requests_waiting", "Rows that wait for a place in the batch");
  Gauge& kv_usage =
      gauge("vllm:kv_cache_usage_perc", "Share of the KV cache's pages in use, 0 to 1");
  Counter& prefix_queries = counter("vllm:prefix_cache_queries_total",
                                    "Tokens of prompts that were looked for in the prefix cache");
  Counter& prefix_hits = counter("vllm:prefix_cache_hits_total", "Tokens of these that it had");
  Counter& host_hits = counter("heddle:prefix_cache_host_hits_total",
                               "Tokens whose keys and values came from --kv-host-memory");
  Counter& disk_hits = counter("heddle:prefix_cache_disk_hits_total",
                               "Tokens whose keys and values were read from --kv-cache-dir");
  Counter& parkings =
      counter("vllm:num_preemptions_total", "Times that a row was parked for lack of pages");
  Gauge& parked = gauge("heddle:rows_parked", "Waiting rows that were parked");
  Gauge& used_pages = gauge("heddle:kv_pages", kPagesHelp, {{"state", "in_use"}});
  Gauge& cached_pages = gauge("heddle:kv_pages", kPagesHelp, {{"state", "cached"}});
  Gauge& free_pages = gauge("heddle:kv_pages", kPagesHelp, {{"state", "free"}});
  Gauge& host_pages = gauge("heddle:kv_pages", kPagesHelp, {{"state", "host"}});
  Gauge& disk_pages = gauge("heddle:kv_pages", kPagesHelp, {{"state", "disk"}});
  Counter& prompt_tokens = counter("vllm:prompt_tokens_total", "Tokens of prompts");
  Counter& generation_tokens = counter("vllm:generation_tokens_total", "Tokens of answers");
  Histogram& first_token = histogram("vllm:time_to_first_token_seconds",
                                     "From a request's arrival to its first token", kFirstToken);
  Histogram& token_gap =
      histogram("vllm:inter_token_latency_seconds", "Between two tokens of a row", kTokenGap);
  Histogram& queued = histogram("vllm:request_queue_time_seconds",
                                "From a row's submission to its place in the batch", kWhole);
  Histogram& whole = histogram("vllm:e2e_request_latency_seconds",
                               "From a request's arrival to the end of its answer", kWhole);
  Family<Gauge>& lora_info =
      gauges("vllm:lora_requests_info", "Adapters of running and waiting rows");
  Family<Counter>& finished =
      counters("vllm:request_success_total", "Answers by the reason of their end");
  Family<Counter>& requests = counters("heddle:requests_total", "Requests by route and status");
  Family<Counter>& of_adapter =
      counters("heddle:adapter_tokens_total", "Tokens of answers by adapter");
  Family<Counter>& adapter_requests =
      counters("heddle:adapter_requests_total", "Requests by adapter and status");
  Family<Histogram>& adapter_first_token =
      histograms("heddle:adapter_time_to_first_token_seconds",
                 "From a request's arrival to its first token, by adapter");
  Family<Histogram>& adapter_whole =
      histograms("heddle:adapter_e2e_request_latency_seconds",
                 "From a request's arrival to the end of its answer, by adapter");
  Family<Counter>& key_requests =
      counters("heddle:key_requests_total", "Requests by the name of their key and status");
  Family<Counter>& key_tokens =
      counters("heddle:key_tokens_total", "Tokens of prompts and answers by the name of their key");
  Family<Gauge>& tenant_waiting =
      gauges("heddle:tenant_requests_waiting", "Rows that wait, by key or adapter (--fairness)");
  Family<Gauge>& tenant_running =
      gauges("heddle:tenant_requests_running", "Rows in the batch, by key or adapter (--fairness)");
  Family<Counter>& tenant_tokens =
      counters("heddle:tenant_tokens_total",
               "Tokens of prompts and answers, by key or adapter (--fairness)");
  Gauge& adapters = gauge("heddle:adapters_in_memory", "Adapters whose weights are in memory");
  Gauge& adapter_bytes = gauge("heddle:adapter_bytes", "Bytes of adapters in memory");
  Counter& adapter_loads = counter("heddle:adapter_loads_total", "Adapters loaded into memory");
  Counter& adapter_seconds =
      counter("heddle:adapter_load_seconds_total", "Seconds spent loading adapters into memory");
  Counter& adapter_uses = counter("heddle:adapter_uses_total", "Adapters of requests that started");
  Counter& adapter_reads = counter("heddle:adapter_reads_total", "Adapters read from their files");
  Gauge& host_adapter_bytes =
      gauge("heddle:adapter_host_bytes", "Bytes of copies in host memory of adapters of a GPU");
  Counter& adapter_evictions =
      counter("heddle:adapter_evictions_total", "Adapters evicted from memory for others");
  Counter& graphs = counter("heddle:graphs_total", "CUDA graphs of decode steps recorded");
  Counter& graph_seconds =
      counter("heddle:graph_seconds_total", "Seconds spent recording CUDA graphs");
  Gauge& connections = gauge("heddle:connections", "Open connections");
  Gauge& known = gauge("heddle:adapters_known", "Adapters that the engine knows");
  Gauge& in_use = gauge("heddle:adapters_in_use", "Adapters of running and waiting rows");
  Gauge& buffered =
      gauge("heddle:buffered_bytes",
            "Bytes of bodies that are read and of answers that wait for their reader");
  Counter& given_up = counter("heddle:buffered_given_up_total",
                              "Connections closed because buffered_bytes exceeded --max-buffered");
  Counter& fetched = counter("heddle:adapter_downloads_total", "Adapters brought from a source",
                             {{"outcome", "fetched"}});
  Counter& not_fetched = counter("heddle:adapter_downloads_total", "Adapters brought from a source",
                                 {{"outcome", "failed"}});
  Gauge& fetching = gauge("heddle:adapter_downloads_in_flight", "Downloads of adapters");
  Gauge& cache_bytes =
      gauge("heddle:adapter_cache_bytes", "Bytes of --adapter-cache, those to come included");
  // Of the process, whose metrics have the names that all programs give them, and no label.
  Counter& cpu_seconds =
      counters("process_cpu_seconds_total", "CPU time of the process, user and system, in seconds")
          .Add({});
  Gauge& start_time =
      gauges("process_start_time_seconds", "When the process started, seconds since 1970").Add({});
  Gauge& resident_bytes =
      gauges("process_resident_memory_bytes", "Resident memory of the process").Add({});
  Gauge& virtual_bytes =
      gauges("process_virtual_memory_bytes", "Address space of the process").Add({});
  Gauge& open_files = gauges("process_open_fds", "Open file descriptors").Add({});
  Gauge& max_open_files = gauges("process_max_fds", "Maximum number of these").Add({});
  LabelNames adapter_names{kMostAdapters}, timed_adapters{kMostTimedAdapters}, key_names{kMostKeys};
  Gauge* lora_now = nullptr;
  std::optional<Drafts> drafts;
};

Metrics::Metrics(const EngineOptions& options, int64_t num_pages, const std::string& model_name)
    : state_(std::make_unique<State>(options, num_pages, model_name)) {}
Metrics::~Metrics() = default;

const AdapterState* Metrics::Now::find(const std::string& name) const {
  const auto place = std::ranges::lower_bound(adapters, name, {}, &AdapterState::name);
  return place == adapters.end() || place->name != name ? nullptr : &*place;
}

void Metrics::count_answer(const Completion& answer, const std::string& adapter) {
  State& s = *state_;
  s.prompt_tokens.Increment(static_cast<double>(answer.prompt_tokens));
  s.generation_tokens.Increment(static_cast<double>(answer.token_ids.size()));
  s.queued.Observe(answer.wait_seconds);
  s.finished.Add(s.with({{"finished_reason", name(answer.finish_reason)}})).Increment();
  const std::string label = s.adapter_names.label_of(adapter);
  s.of_adapter.Add(s.with({{"adapter", label}}))
      .Increment(static_cast<double>(answer.token_ids.size()));
  if (!s.drafts) return;
  for (const auto& [kind, count] :
       {std::pair("drafted", answer.drafts.drafted), {"accepted", answer.drafts.accepted}}) {
    s.drafts->by_adapter.Add(s.with({{"adapter", label}, {"kind", kind}}))
        .Increment(static_cast<double>(count));
  }
}

void Metrics::count_request(const EndedRequest& request) {
  State& s = *state_;
  const std::string status = std::to_string(request.status);
  s.requests.Add(s.with({{"route", request.route}, {"status", status}})).Increment();
  const bool has_times = request.times.first_token >= 0;
  if (has_times) {
    s.first_token.Observe(request.times.first_token);
    s.whole.Observe(request.times.end);
  }
  if (!request.adapter.empty()) {
    const std::string adapter = s.adapter_names.label_of(request.adapter);
    s.adapter_requests.Add(s.with({{"adapter", adapter}, {"status", status}})).Increment();
  }
  if (!request.adapter.empty() && has_times) {
    const State::Labels adapter = s.with({{"adapter", s.timed_adapters.label_of(request.adapter)}});
    s.adapter_first_token.Add(adapter, kAdapterFirstToken).Observe(request.times.first_token);
    s.adapter_whole.Add(adapter, kAdapterWhole).Observe(request.times.end);
  }
  if (request.key.empty()) return;
  const std::string key = s.key_names.label_of(request.key);
  s.key_requests.Add(s.with({{"key", key}, {"status", status}})).Increment();
  for (const auto& [kind, count] :
       {std::pair("prompt", request.prompt_tokens), {"answer", request.answer_tokens}}) {
    s.key_tokens.Add(s.with({{"key", key}, {"kind", kind}})).Increment(static_cast<double>(count));
  }
}

void Metrics::observe_token_gap(double seconds) { state_->token_gap.Observe(seconds); }

std::string Metrics::text(const Now& now) {
  State& s = *state_;
  s.running.Set(static_cast<double>(now.num_running));
  s.waiting.Set(static_cast<double>(now.num_waiting));
  const auto pages = static_cast<double>(now.load.num_pages);
  s.kv_usage.Set(pages == 0 ? 0 : 1 - static_cast<double>(now.load.num_free_pages) / pages);
  s.used_pages.Set(static_cast<double>(now.load.num_pages - now.load.num_free_pages));
  s.cached_pages.Set(static_cast<double>(now.load.num_cached_pages));
  s.free_pages.Set(static_cast<double>(now.load.num_free_pages - now.load.num_cached_pages));
  s.host_pages.Set(static_cast<double>(now.load.num_host_pages));
  s.disk_pages.Set(static_cast<double>(now.load.num_disk_pages));
  s.parked.Set(static_cast<double>(now.load.num_parked));
  State::raise_to(s.prefix_queries, static_cast<double>(now.stats.prefix_tokens));
  State::raise_to(s.prefix_hits, static_cast<double>(now.stats.cached_tokens));
  State::raise_to(s.host_hits, static_cast<double>(now.stats.host_tokens));
  State::raise_to(s.disk_hits, static_cast<double>(now.stats.disk_tokens));
  State::raise_to(s.parkings, static_cast<double>(now.stats.parkings));
  s.adapters.Set(static_cast<double>(now.load.num_adapters));
  s.adapter_bytes.Set(static_cast<double>(now.load.adapter_bytes));
  s.host_adapter_bytes.Set(static_cast<double>(now.load.host_adapter_bytes));
  s.connections.Set(now.num_connections);
  s.known.Set(static_cast<double>(now.adapters.size()));
  s.in_use.Set(static_cast<double>(now.num_adapters_in_use));
  s.buffered.Set(static_cast<double>(now.num_buffered_bytes));
  State::raise_to(s.given_up, static_cast<double>(now.num_given_up));
  State::raise_to(s.adapter_loads, static_cast<double>(now.stats.adapter_loads));
  State::raise_to(s.adapter_uses, static_cast<double>(now.stats.adapter_uses));
  State::raise_to(s.adapter_reads, static_cast<double>(now.stats.adapter_reads));
  State::raise_to(s.adapter_seconds, now.stats.adapter_seconds);
  State::raise_to(s.adapter_evictions, static_cast<double>(now.stats.adapter_evictions));
  State::raise_to(s.fetched, static_cast<double>(now.fetches.num_fetched));
  State::raise_to(s.not_fetched, static_cast<double>(now.fetches.num_failed));
  s.fetching.Set(static_cast<double>(now.fetches.num_in_flight));
  s.cache_bytes.Set(static_cast<double>(now.fetches.cache_bytes));
  State::raise_to(s.graphs, static_cast<double>(now.stats.graphs));
  State::raise_to(s.graph_seconds, now.stats.graph_seconds);
  if (s.drafts) s.show(now.stats.drafts, now.stats.draft_stats);
  for (const auto& [tenant, use] : now.tenants) s.show(tenant, use);
  s.show(process_use());
  if (s.lora_now != nullptr) s.lora_info.Remove(s.lora_now);
  s.lora_now = &s.lora_info.Add(s.with({{"max_lora", s.max_lora},
                                        {"running_lora_adapters", now.running_adapters},
                                        {"waiting_lora_adapters", now.waiting_adapters}}));
  s.lora_now->SetToCurrentTime();
  return prometheus::TextSerializer().Serialize(s.registry.Collect());
}

}  // namespace heddle::serve
