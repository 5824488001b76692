#include "service/metrics.h"

#include <algorithm>
#include <set>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace heddle::serve {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr size_t kMostAdapterLabels = 1000;  // more adapters are counted as one, "other"

const Buckets kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                          0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80};
const Buckets kTokenGap{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                        0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5};
const Buckets kWhole{0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                     10,   15,  20,  30,  40,  50, 60,  120, 240};

constexpr const char* kPagesHelp =
    "Pages of the KV cache: in use by rows, free with what the prefix cache has, and otherwise "
    "free";

}  // namespace

struct Metrics::State {
  using Labels = prometheus::Labels;

  State(const EngineOptions& options, int64_t num_pages, const std::string& model_name)
      : base{{"model_name", model_name}}, max_lora(std::to_string(options.max_batch)) {
    gauge("vllm:cache_config_info", "Pages of the KV cache",
          {{"block_size", std::to_string(options.page_size)},
           {"enable_prefix_caching", options.prefix_cache ? "True" : "False"},
           {"num_gpu_blocks", std::to_string(num_pages)}})
        .Set(1);
  }

  Labels with(Labels more) const {
    more.insert(base.begin(), base.end());
    return more;
  }
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(with(labels));
  }
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(with(labels));
  }
  Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(base, buckets);
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
  Family<Gauge>& lora_info = prometheus::BuildGauge()
                                 .Name("vllm:lora_requests_info")
                                 .Help("Adapters of running and waiting rows")
                                 .Register(registry);
  Family<Counter>& finished = prometheus::BuildCounter()
                                  .Name("vllm:request_success_total")
                                  .Help("Answers by the reason of their end")
                                  .Register(registry);
  Family<Counter>& requests = prometheus::BuildCounter()
                                  .Name("heddle:requests_total")
                                  .Help("Requests by route and status")
                                  .Register(registry);
  Family<Counter>& of_adapter = prometheus::BuildCounter()
                                    .Name("heddle:adapter_tokens_total")
                                    .Help("Tokens of answers by adapter")
                                    .Register(registry);
  Family<Gauge>& tenant_waiting = prometheus::BuildGauge()
                                      .Name("heddle:tenant_requests_waiting")
                                      .Help("Rows that wait, by key or adapter (--fairness)")
                                      .Register(registry);
  Family<Gauge>& tenant_running = prometheus::BuildGauge()
                                      .Name("heddle:tenant_requests_running")
                                      .Help("Rows in the batch, by key or adapter (--fairness)")
                                      .Register(registry);
  Family<Counter>& tenant_tokens =
      prometheus::BuildCounter()
          .Name("heddle:tenant_tokens_total")
          .Help("Tokens of prompts and answers, by key or adapter (--fairness)")
          .Register(registry);
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
  std::set<std::string> seen_adapters;
  Gauge* lora_now = nullptr;
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
  std::string label = adapter;
  if (!s.seen_adapters.contains(label)) {
    if (s.seen_adapters.size() < kMostAdapterLabels) {
      s.seen_adapters.insert(label);
    } else {
      label = "other";
    }
  }
  s.of_adapter.Add(s.with({{"adapter", label}}))
      .Increment(static_cast<double>(answer.token_ids.size()));
}

void Metrics::count_request(const char* route, unsigned status, const RequestTimes& times) {
  State& s = *state_;
  s.requests.Add(s.with({{"route", route}, {"status", std::to_string(status)}})).Increment();
  if (times.first_token >= 0) {
    s.first_token.Observe(times.first_token);
    s.whole.Observe(times.end);
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
  for (const auto& [tenant, use] : now.tenants) s.show(tenant, use);
  if (s.lora_now != nullptr) s.lora_info.Remove(s.lora_now);
  s.lora_now = &s.lora_info.Add(s.with({{"max_lora", s.max_lora},
                                        {"running_lora_adapters", now.running_adapters},
                                        {"waiting_lora_adapters", now.waiting_adapters}}));
  s.lora_now->SetToCurrentTime();
  return prometheus::TextSerializer().Serialize(s.registry.Collect());
}

}  // namespace heddle::serve
