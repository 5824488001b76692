#include "generate.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sys/resource.h>
#include <unistd.h>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "prompts_file.h"
#include "results.h"

namespace heddle::app {
namespace {

/// Rows that may be read ahead of the first one that is not written yet: bounds the memory of a
/// long file.
constexpr int64_t kMaxRowsAhead = 1024;

/// The rows of the command line or of the file, one after the other.
std::function<std::optional<Request>()> row_source(const GenerateOptions& options) {
  const RowDefaults defaults{options.raw, options.seed};
  if (!options.prompts_path.empty()) {
    auto file = std::make_shared<PromptsFile>(options.prompts_path,
                                              defaults);  // shared: std::function copies
    return [file] { return file->next(); };
  }
  return [&options, next = size_t{0}]() mutable -> std::optional<Request> {
    if (next == options.prompts.size()) return std::nullopt;
    Request request;
    request.sampling.seed = options.seed + static_cast<int64_t>(next);
    const std::string& prompt = options.prompts[next++];
    if (options.raw) {
      request.text = prompt;
    } else {
      request.messages = {{"user", prompt}};
    }
    return request;
  };
}

/// A line on the terminal that is written over; silent when stderr is no terminal.
class Progress {
 public:
  void show(int64_t done, int64_t total, const EngineStats& stats) {
    const auto now = std::chrono::steady_clock::now();
    if (!enabled_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    const double seconds = stats.prefill_seconds + stats.decode_seconds;
    std::fprintf(stderr, "\r\033[K%lld of %lld rows, %.0f tokens/s", static_cast<long long>(done),
                 static_cast<long long>(total),
                 static_cast<double>(stats.generated_tokens) / std::max(seconds, 1e-9));
  }
  void clear() const {
    if (enabled_) std::fputs("\r\033[K", stderr);
  }

 private:
  // Text that streams to the same terminal would be torn apart by the line.
  bool enabled_ = isatty(STDERR_FILENO) != 0 && isatty(STDOUT_FILENO) == 0;
  std::chrono::steady_clock::time_point next_{};
};

int64_t peak_memory_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

void print_table(const EngineStats& stats, int64_t num_rows) {
  const double seconds = stats.prefill_seconds + stats.decode_seconds;
  const auto line = [](const char* what, int64_t tokens, double time) {
    std::cout << std::left << std::setw(9) << what << std::right << std::setw(8) << tokens
              << std::setw(10) << std::fixed << std::setprecision(3) << time << std::setw(12)
              << std::setprecision(1) << per_second(tokens, time) << "\n";
  };
  std::cout << "\n" << num_rows << " rows     tokens   seconds    tokens/s\n";
  line("prefill", stats.prefill_tokens, stats.prefill_seconds);
  line("decode", stats.decode_tokens, stats.decode_seconds);
  std::cout << "LoRA" << std::setw(23) << std::setprecision(3) << stats.lora_seconds << "  ("
            << std::setprecision(1) << 100.0 * stats.lora_seconds / std::max(seconds, 1e-9)
            << " % of the time)\n";
}

/// The file appears whole or not at all.
void write_stats(const std::string& path, const EngineStats& stats, int64_t num_rows,
                 int64_t num_failed) {
  const nlohmann::ordered_json object = {{"rows", num_rows},
                                         {"failed_rows", num_failed},
                                         {"prefill_tokens", stats.prefill_tokens},
                                         {"prefill_seconds", stats.prefill_seconds},
                                         {"decode_tokens", stats.decode_tokens},
                                         {"decode_seconds", stats.decode_seconds},
                                         {"generated_tokens", stats.generated_tokens},
                                         {"prefill_steps", stats.prefill_steps},
                                         {"decode_steps", stats.decode_steps},
                                         {"lora_seconds", stats.lora_seconds},
                                         {"peak_memory_bytes", peak_memory_bytes()}};
  const std::string partial = path + ".partial";
  std::ofstream file(partial);
  file << object.dump(1) << "\n";
  file.close();
  const bool written = file.good() && std::rename(partial.c_str(), path.c_str()) == 0;
  HEDDLE_CHECK(written, path, ": cannot write the statistics");
}

void check_writable(const std::string& path) {
  const std::string partial = path + ".partial";
  const bool opened = std::ofstream(partial).good();
  HEDDLE_CHECK(opened, path, ": cannot write the statistics");
  std::remove(partial.c_str());
}

}  // namespace

int generate(const GenerateOptions& options) {
  const int64_t num_rows =
      options.prompts_path.empty()
          ? static_cast<int64_t>(options.prompts.size())
          : PromptsFile::check(options.prompts_path, {options.raw, options.seed});
  if (!options.stats_path.empty()) check_writable(options.stats_path);
  Engine engine(options.engine);
  for (const auto& [name, folder] : options.adapters) engine.add_adapter(name, folder);

  const auto form = options.json ? ResultWriter::Form::kJson : ResultWriter::Form::kText;
  ResultWriter writer(std::cout, form, options.logprobs);
  const auto next_row = row_source(options);
  std::unordered_map<RequestId, int64_t> index_of;
  Progress progress;
  int64_t num_read = 0;
  for (bool more = true; more || engine.num_unfinished() > 0;) {
    while (more && engine.num_unfinished() < engine.options().max_batch &&
           num_read - writer.next_index() < kMaxRowsAhead) {
      const std::optional<Request> request = next_row();
      more = request.has_value();
      if (!more) break;
      writer.add_row(num_read, request->adapter);
      index_of[engine.submit(*request)] = num_read++;
    }
    for (Event& event : engine.step()) {
      const int64_t index = index_of.at(event.request);
      writer.add_text(index, event.text);
      if (!event.completion) continue;
      index_of.erase(event.request);
      writer.finish_row(index, std::move(*event.completion));
    }
    progress.show(writer.next_index(), num_rows, engine.stats());
  }
  progress.clear();
  if (!options.json) print_table(engine.stats(), num_rows);
  std::cout.flush();
  HEDDLE_CHECK(std::cout.good(), "standard output: cannot write the results");
  if (!options.stats_path.empty()) {
    write_stats(options.stats_path, engine.stats(), num_rows, writer.num_failed());
  }
  return writer.num_failed() > 0 ? 1 : 0;
}

}  // namespace heddle::app
