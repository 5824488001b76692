#include "generate/statistics.h"

#include <algorithm>
#include <cstdio>
#include <sys/resource.h>

#include "files/json_text.h"
#include "files/json_value.h"

namespace heddle::app {
namespace {

int64_t peak_memory_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

void print_line(const char* what, int64_t tokens, double seconds) {
  std::fprintf(stderr, "%-9s%8lld%10.3f%12.1f\n", what, static_cast<long long>(tokens), seconds,
               seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
}

files::JsonObject counts_json(const DraftCounts& counts) {
  return {{"drafted", counts.drafted}, {"accepted", counts.accepted}};
}

/// In all, by source, and by place from 0 to the last one that a draft had.
files::JsonObject drafts_json(const EngineStats& stats) {
  files::JsonObject drafts = counts_json(stats.drafts);
  files::JsonObject& sources = drafts["by_source"].emplace_object();
  for (size_t i = 0; i < kNumDraftSources; ++i) {
    sources[name(static_cast<DraftSource>(i))] = counts_json(stats.draft_stats.by_source[i]);
  }
  files::JsonArray& places = drafts["by_place"].emplace_array();
  for (const DraftCounts& counts : stats.draft_stats.by_place) {
    if (counts.drafted == 0) break;
    places.push_back(counts_json(counts));
  }
  return drafts;
}

}  // namespace

void print_statistics(const EngineStats& stats, const RowCounts& rows, bool speculates) {
  const double seconds = stats.prefill_seconds + stats.decode_seconds;
  std::string counts = std::to_string(rows.finished) + (rows.finished == 1 ? " row" : " rows");
  if (rows.failed > 0) counts += ", " + std::to_string(rows.failed) + " failed";
  if (rows.skipped > 0) counts += ", " + std::to_string(rows.skipped) + " were answered before";
  std::fprintf(stderr, "\n%s\n           tokens   seconds    tokens/s\n", counts.c_str());
  print_line("prefill", stats.prefill_tokens, stats.prefill_seconds);
  print_line("decode", stats.decode_tokens, stats.decode_seconds);
  if (stats.prefix_tokens > 0) {
    std::fprintf(stderr, "cached%11lld  (%.1f %% of the prompts' tokens)\n",
                 static_cast<long long>(stats.cached_tokens),
                 100.0 * static_cast<double>(stats.cached_tokens) /
                     static_cast<double>(stats.prefix_tokens));
  }
  if (speculates) {
    std::fprintf(stderr, "drafted%10lld  (%lld accepted, %.1f %%)\n",
                 static_cast<long long>(stats.drafts.drafted),
                 static_cast<long long>(stats.drafts.accepted),
                 100.0 * static_cast<double>(stats.drafts.accepted) /
                     static_cast<double>(std::max<int64_t>(stats.drafts.drafted, 1)));
  }
  if (stats.parkings > 0) {
    std::fprintf(stderr, "parked%11lld  (times that a row gave its pages to others)\n",
                 static_cast<long long>(stats.parkings));
  }
  std::fprintf(stderr, "LoRA%23.3f  (%.1f %% of the time)\n", stats.lora_seconds,
               100.0 * stats.lora_seconds / std::max(seconds, 1e-9));
}

std::string statistics_json(const EngineStats& stats, const RowCounts& rows, bool speculates) {
  files::JsonObject object = {{"rows", rows.finished},
                              {"failed_rows", rows.failed},
                              {"skipped_rows", rows.skipped},
                              {"prefix_tokens", stats.prefix_tokens},
                              {"cached_tokens", stats.cached_tokens},
                              {"host_tokens", stats.host_tokens},
                              {"disk_tokens", stats.disk_tokens},
                              {"parkings", stats.parkings},
                              {"prefill_tokens", stats.prefill_tokens},
                              {"prefill_seconds", stats.prefill_seconds},
                              {"decode_tokens", stats.decode_tokens},
                              {"decode_seconds", stats.decode_seconds},
                              {"generated_tokens", stats.generated_tokens},
                              {"prefill_steps", stats.prefill_steps},
                              {"decode_steps", stats.decode_steps},
                              {"lora_seconds", stats.lora_seconds},
                              {"adapter_loads", stats.adapter_loads},
                              {"adapter_seconds", stats.adapter_seconds},
                              {"peak_memory_bytes", peak_memory_bytes()}};
  if (speculates) object["drafts"] = drafts_json(stats);
  return files::json_lines(object) + "\n";
}

}  // namespace heddle::app
